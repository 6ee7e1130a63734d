package nodemounts

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// Size returns the sizes of the filesystem at path and of its block device; 0: no device,
// as for network filesystems and FUSE. Like [Mounts.Healthy] it does not wait for a
// filesystem that hangs.
func (m *Mounts) Size(path string) (fs, device int64, err error) {
	info, err := m.info(path)
	if err != nil {
		return 0, 0, err
	}
	if info == nil {
		return 0, 0, fmt.Errorf("nothing is mounted at %s", path)
	}
	if fs, err = m.statfs(path); err != nil {
		return 0, 0, err
	}
	device, err = deviceSize(info)
	return fs, device, err
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
