package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// reserve is the part of a filesystem that images leave free: a tenth, where the kubelet
// begins to evict pods (Kubernetes v1.37.1, pkg/kubelet/apis/config/v1beta1/defaults_linux.go,
// nodefs.available<10%).
const reserve = 10

// permitRoom refuses an image that needs more bytes than its filesystem can give, or
// than its namespace may have there. It returns the root that the image is below.
// images is 1 if it is a new one.
func (b *Backend) permitRoom(v *Volume, more int64, images int) (imageRoot string, err error) {
	imageRoot, err = permitPath(v, b.ImageRoots, "imageRoots", "--image-root")
	if err != nil {
		return "", err
	}
	if err = b.permitNamespace(imageRoot, namespaceBelow(imageRoot, v), more, images); err == nil {
		err = requireRoom(imageRoot, more)
	}
	if err != nil {
		return "", fmt.Errorf("find room for image %s: %w", v.Source, err)
	}
	return imageRoot, nil
}

// permitNamespace bounds what the images of a namespace below a root have in all.
func (b *Backend) permitNamespace(imageRoot, namespace string, more int64, images int) error {
	all, err := usageOf(filepath.Join(imageRoot, namespace))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	switch size := all.size + more; {
	case images > 0 && all.images >= b.MaxImagesPerNamespace:
		return denied("namespace %s has %d images below %s, and maxImagesPerNamespace in this node's configuration is %d; remove images, or have an administrator raise it (flexdriver install --max-images-per-namespace N)", namespace, all.images, imageRoot, b.MaxImagesPerNamespace)
	case size > b.MaxSizePerNamespace:
		return denied("the images of namespace %s would have %d bytes below %s, and maxSizePerNamespace in this node's configuration is %d; remove images, ask for less, or have an administrator raise it (flexdriver install --max-size-per-namespace SIZE)", namespace, size, imageRoot, b.MaxSizePerNamespace)
	}
	return nil
}

// AboveBounds names the namespaces that have more than they may, as after an update from a
// version without bounds. Images that exist are mounted all the same.
func (b *Backend) AboveBounds() (all []string) {
	for _, root := range b.ImageRoots {
		entries, _ := os.ReadDir(root) // one that does not exist yet has none
		for _, e := range entries {
			u, err := usageOf(filepath.Join(root, e.Name()))
			if err == nil && u.images > b.MaxImagesPerNamespace {
				all = append(all, fmt.Sprintf("namespace %s has %d images below %s, and maxImagesPerNamespace is %d, so it can create none; remove images, or raise it (--max-images-per-namespace N)", e.Name(), u.images, root, b.MaxImagesPerNamespace))
			}
			if err == nil && u.size > b.MaxSizePerNamespace {
				all = append(all, fmt.Sprintf("the images of namespace %s have %d bytes below %s, and maxSizePerNamespace is %d, so it can neither create nor grow one; remove images, or raise it (--max-size-per-namespace SIZE)", e.Name(), u.size, root, b.MaxSizePerNamespace))
			}
		}
	}
	return all
}

// requireRoom: images are sparse, and each of them may become as large as it looks.
func requireRoom(imageRoot string, more int64) error {
	all, err := usageOf(imageRoot)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w (is the disk that should hold it mounted?)", err)
	}
	if err != nil {
		return err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(imageRoot, &st); err != nil {
		return err
	}
	total, free := int64(st.Blocks)*st.Frsize, int64(st.Bavail)*st.Frsize
	if total > 0 && free-all.promised-more < total/reserve {
		return fmt.Errorf("%w: it needs %d bytes; the filesystem of %s has %d free, of which %d are promised to other images and %d are a reserve; remove images, or ask for less", mounter.ErrTooLarge, more, imageRoot, free, all.promised, total/reserve)
	}
	return nil
}

// usage is what the files below a directory have.
type usage struct {
	images   int
	size     int64
	promised int64 // what they may take yet
}

// usageOf touches nothing that is mounted below dir: a filesystem may be silent.
func usageOf(dir string) (u usage, err error) {
	d, err := os.Open(dir)
	if err != nil {
		return u, err
	}
	return u, u.addBelow(d)
}

// addBelow closes the directory.
func (u *usage) addBelow(dir *os.File) error {
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := u.add(dir, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (u *usage) add(dir *os.File, name string) error {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW, Resolve: unix.RESOLVE_NO_XDEV}
	fd, err := unix.Openat2(int(dir.Fd()), name, &how)
	if errors.Is(err, unix.ENOSYS) { // before Linux 5.6
		fd, err = unix.Openat(int(dir.Fd()), name, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	}
	if errors.Is(err, unix.EXDEV) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		if st.Size == 0 { // no image yet: a creation that was killed leaves it
			return nil
		}
		u.images++
		u.size += st.Size
		u.promised += max(0, st.Size-st.Blocks*512)
	case unix.S_IFDIR:
		below, err := os.Open("/proc/self/fd/" + strconv.Itoa(fd))
		if err != nil {
			return err
		}
		return u.addBelow(below)
	}
	return nil
}
