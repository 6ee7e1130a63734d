package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// reserve is the part of a filesystem that images leave free: a tenth, where the kubelet
// begins to evict pods (Kubernetes v1.37.1, pkg/kubelet/apis/config/v1beta1/defaults_linux.go,
// nodefs.available<10%).
const reserve = 10

// permitRoom refuses an image that needs more bytes than its filesystem can give. Images
// are sparse: each of them may become as large as it looks.
func permitRoom(imageRoot, image string, more int64) error {
	fail := func(err error) error { return fmt.Errorf("find room for image %s: %w", image, err) }
	dir, err := os.Open(imageRoot)
	if errors.Is(err, fs.ErrNotExist) {
		return fail(fmt.Errorf("%w (is the disk that should hold it mounted?)", err))
	}
	if err != nil {
		return fail(err)
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &st); err != nil {
		dir.Close()
		return fail(err)
	}
	promised, err := promisedBelow(dir)
	if err != nil {
		return fail(err)
	}
	total, free := int64(st.Blocks)*st.Frsize, int64(st.Bavail)*st.Frsize
	if total > 0 && free-promised-more < total/reserve {
		return fail(fmt.Errorf("%w: it needs %d bytes; the filesystem of %s has %d free, of which %d are promised to other images and %d are a reserve; remove images, or ask for less", mounter.ErrTooLarge, more, imageRoot, free, promised, total/reserve))
	}
	return nil
}

// promisedBelow sums what files below a directory may take yet. It closes the directory.
// Nothing that is mounted there is touched: a filesystem may be silent.
func promisedBelow(dir *os.File) (promised int64, err error) {
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		more, err := promisedAt(dir, name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
		promised += more
	}
	return promised, nil
}

func promisedAt(dir *os.File, name string) (int64, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW, Resolve: unix.RESOLVE_NO_XDEV}
	fd, err := unix.Openat2(int(dir.Fd()), name, &how)
	if errors.Is(err, unix.ENOSYS) { // before Linux 5.6
		fd, err = unix.Openat(int(dir.Fd()), name, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	}
	if errors.Is(err, unix.EXDEV) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return max(0, st.Size-st.Blocks*512), nil
	case unix.S_IFDIR:
		below, err := os.Open("/proc/self/fd/" + strconv.Itoa(fd))
		if err != nil {
			return 0, err
		}
		return promisedBelow(below)
	}
	return 0, nil
}
