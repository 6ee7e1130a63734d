package mounter

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// CheckUse refuses a disk that has a use which d.Shares does not allow.
// [Mounter.MountDisk] asks by itself.
func (d Disk) CheckUse() error {
	if d.Shares == nil {
		return nil
	}
	if _, err := d.uses(); err != nil {
		return &Error{Op: "use device", Source: d.Device, Err: err}
	}
	return nil
}

// requireShared refuses a disk that is held, and not by a mount that d.Shares
// allows: the kernel does not say by what, but it says that.
func (d Disk) requireShared() error {
	if d.Shares == nil {
		return nil
	}
	if shared, err := d.uses(); err != nil || shared {
		return err
	}
	return d.heldByOther()
}

// uses refuses a disk that has a use which d.Shares does not allow: a
// mount of it, of the whole disk that it is a partition of or of one of its
// partitions, or a device that is made of it. It reports whether the disk has
// a mount that is allowed.
func (d Disk) uses() (shared bool, err error) {
	rdev := numberOf(d.Device)
	if used := holders(rdev); used != "" {
		return false, because(ErrBusy, "it is part of %s (LVM, RAID, multipath or encryption)", used)
	}
	relatives := relativesOf(rdev)
	for _, table := range mountTables() {
		infos, err := MountsIn(table, nil)
		if err != nil {
			return false, err
		}
		for _, i := range infos {
			number := mountedDevice(i)
			name, relative := relatives[number]
			switch {
			case relative:
				return false, because(ErrBusy, "%s, which shares its blocks, is mounted at %s", name, i.Mountpoint)
			case number != rdev:
			case !d.Shares(i.Mountpoint):
				return false, because(ErrBusy, "it is mounted at %s, which is no volume of the kubelet's: a disk of the node is not shared with pods; unmount it there, or name another device", i.Mountpoint)
			default:
				shared = true
			}
		}
	}
	return shared, nil
}

// mountTables are those of this process and, where it can be seen and differs,
// that of the node's first process: a kubelet may run in a container.
func mountTables() []string {
	tables := []string{"/proc/thread-self/mountinfo"}
	own, errOwn := os.Readlink("/proc/thread-self/ns/mnt")
	first, errFirst := os.Readlink("/proc/1/ns/mnt")
	if errOwn == nil && errFirst == nil && own != first {
		tables = append(tables, "/proc/1/mountinfo")
	}
	return tables
}

// mountedDevice is the number of the block device that is mounted, or 0. Of
// filesystems that span devices, btrfs for one, the table has an invented
// number, and the device by its path.
func mountedDevice(i *Info) uint64 {
	if i.Major != 0 {
		return unix.Mkdev(uint32(i.Major), uint32(i.Minor))
	}
	if strings.HasPrefix(i.Source, "/dev/") {
		return numberOf(i.Source)
	}
	return 0
}

// relativesOf are the devices that have blocks in common with one: the whole
// disk of a partition, the partitions of a disk.
func relativesOf(rdev uint64) map[uint64]string {
	relatives := map[uint64]string{}
	add := func(dir string) {
		var major, minor uint32
		text, err := os.ReadFile(filepath.Join(dir, "dev"))
		if err != nil {
			return
		}
		if _, err := fmt.Sscanf(string(text), "%d:%d", &major, &minor); err == nil {
			relatives[unix.Mkdev(major, minor)] = "/dev/" + uevent(unix.Mkdev(major, minor), "DEVNAME")
		}
	}
	dir, err := filepath.EvalSymlinks(sysDir(rdev))
	if err != nil {
		return nil
	}
	if _, err := os.Stat(dir + "/partition"); err == nil {
		add(filepath.Dir(dir))
	}
	partitions, _ := filepath.Glob(dir + "/*/partition")
	for _, p := range partitions {
		add(filepath.Dir(p))
	}
	return relatives
}

// holders names the devices that are made of one, and of its partitions.
func holders(rdev uint64) string {
	var names []string
	for _, pattern := range []string{"/holders/*", "/*/holders/*"} {
		found, _ := filepath.Glob(sysDir(rdev) + pattern)
		for _, f := range found {
			names = append(names, "/dev/"+filepath.Base(f))
		}
	}
	return strings.Join(names, ", ")
}

func (d Disk) heldByOther() error {
	return because(ErrBusy, "something other than a mounted filesystem has the device: LVM, RAID, multipath, swap, or a program that writes to it (lsblk %s and lsof %s show which)", d.Device, d.Device)
}
