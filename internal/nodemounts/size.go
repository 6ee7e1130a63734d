package nodemounts

import (
	"fmt"
	"math"
	"os"
	"sort"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// Size returns the sizes of the filesystem at path, with its own data where the kernel
// tells that, and of its block device; 0: no device, as for network filesystems and FUSE.
// Like [Mounts.Healthy] it does not wait for a filesystem that hangs.
func (m *Mounts) Size(path string) (fs, device int64, err error) {
	info, err := m.info(path)
	if err != nil {
		return 0, 0, err
	}
	if info == nil {
		return 0, 0, fmt.Errorf("nothing is mounted at %s", path)
	}
	if device, err = deviceSize(info); err != nil {
		return 0, 0, err
	}
	fs, err = m.ask("measure", path, func(path string) (int64, error) { return measure(path, device) })
	return fs, device, err
}

// step is how exactly measure finds the end of a filesystem.
const step = 64 << 10

// measure returns the size of the filesystem at path. To statfs(2) ext4 and XFS have less
// than they take of their device: inode tables, journal, log, at mkfs's defaults 2 % of 100
// GiB, 5 % of 1 GiB, 12 % of XFS on 512 MiB. An expansion may be smaller than that. So they
// are asked for their end. If that is far away, the difference is no own data: a project
// quota limits what statfs tells. btrfs tells all that it has.
func measure(path string, device int64) (int64, error) {
	told, err := mounter.Statfs(path)
	if err != nil || told >= device {
		return told, err
	}
	dir, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	more := sort.Search(int((device-told)/step), func(i int) bool { return !reaches(dir, told+int64(i)*step) })
	const quota = 4
	if end := told + int64(max(more-1, 0))*step; told >= end-end/quota {
		return end, nil
	}
	return told, nil
}

// An fsmap is struct fsmap of linux/fsmap.h.
type fsmap struct {
	device, flags                   uint32
	physical, owner, offset, length uint64
	_                               [3]uint64
}

// reaches reports whether the filesystem of dir has anything of its device after offset,
// used or free; false where the kernel cannot tell: FS_IOC_GETFSMAP is of Linux 4.12, for
// ext4 and XFS (ioctl_getfsmap(2)).
func reaches(dir *os.File, offset int64) bool {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return false
	}
	const fsIocGetFSMap = 0xc0c0583b // _IOWR('X', 59, struct fsmap_head)
	var head struct {
		iflags, oflags, count, entries uint32
		_                              [6]uint64
		low, high, first               fsmap
	}
	head.count = 1 // the first is enough
	major, minor := unix.Major(st.Dev), unix.Minor(st.Dev)
	device := minor&0xff | major<<8 | minor&^0xff<<12 // new_encode_dev of linux/kdev_t.h
	head.low = fsmap{device: device, physical: uint64(offset)}
	head.high = fsmap{device: device, flags: math.MaxUint32, physical: math.MaxUint64, owner: math.MaxUint64, offset: math.MaxUint64}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), fsIocGetFSMap, uintptr(unsafe.Pointer(&head)))
	return errno == 0 && head.entries > 0
}

// deviceSize returns the size of a mount's block device. The device number is that of the
// filesystem. For filesystems with several devices (btrfs, bcachefs) the mount table has
// one of them.
func deviceSize(info *mounter.Info) (int64, error) {
	major, minor := uint32(info.Major), uint32(info.Minor)
	if major == 0 {
		if !strings.HasPrefix(info.Source, "/dev/") || strings.HasPrefix(info.FSType, "fuse") {
			return 0, nil
		}
		var st unix.Stat_t
		if err := unix.Stat(info.Source, &st); err != nil {
			return 0, &os.PathError{Op: "stat", Path: info.Source, Err: err}
		}
		if st.Mode&unix.S_IFMT != unix.S_IFBLK {
			return 0, nil
		}
		major, minor = unix.Major(st.Rdev), unix.Minor(st.Rdev)
	}
	file := fmt.Sprintf("/sys/dev/block/%d:%d/size", major, minor)
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	sectors, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	return sectors * sectorSize, nil
}

// sectorSize is the unit of sizes in sysfs (Documentation/ABI/stable/sysfs-block).
const sectorSize = 512
