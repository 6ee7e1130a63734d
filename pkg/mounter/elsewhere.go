package mounter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// CheckUse refuses a disk that has a use which d.Shares does not allow.
// [Mounter.MountDisk] asks by itself.
func (d Disk) CheckUse(ctx context.Context) error {
	if d.Shares == nil {
		return nil
	}
	if _, err := d.uses(ctx); err != nil {
		return &Error{Op: "use device", Source: d.Device, Err: err}
	}
	return nil
}

// requireShared refuses a disk that is held, and not by a mount that d.Shares
// allows: the kernel does not say by what, but it says that.
func (d Disk) requireShared(ctx context.Context) error {
	if d.Shares == nil {
		return nil
	}
	if shared, err := d.uses(ctx); err != nil || shared {
		return err
	}
	return d.heldByOther()
}

// uses refuses a disk that has a use which d.Shares does not allow: of it, of the whole
// disk that it is a partition of, or of one of its partitions. It reports whether the disk
// has a mount that is allowed.
//
// The kernel refuses to mount what is claimed: by a mount, LVM, RAID, swap (block/bdev.c,
// bd_may_claim). It notices neither loop devices, which claim nothing, nor programs, nor
// nodes that containers get. A disk that has an allowed mount was checked before that.
func (d Disk) uses(ctx context.Context) (shared bool, err error) {
	f, err := familyOf(d.Device)
	if err != nil {
		return false, fmt.Errorf("cannot tell what uses it: %w", err)
	}
	if used := f.holders(); used != "" {
		return false, because(ErrBusy, "it is part of %s (LVM, RAID, multipath or encryption)", used)
	}
	if err := f.checkLoops(); err != nil {
		return false, err
	}
	if shared, err = f.checkMounts(numberOf(d.Device), d.Shares); err != nil || shared {
		return shared, err
	}
	return false, f.awaitUnused(ctx)
}

// A family are the devices that have blocks in common with one: itself, the whole disk
// of a partition, the partitions of a disk. It has their names by their numbers.
type family map[uint64]string

func familyOf(device string) (family, error) {
	rdev := numberOf(device)
	dir, err := filepath.EvalSymlinks(sysDir(rdev))
	if err != nil {
		return nil, err
	}
	f := family{rdev: "/dev/" + uevent(rdev, "DEVNAME")}
	if _, err := os.Stat(dir + "/partition"); err == nil {
		if err := f.add(filepath.Dir(dir)); err != nil {
			return nil, err
		}
	}
	partitions, _ := filepath.Glob(dir + "/*/partition")
	for _, p := range partitions {
		if err := f.add(filepath.Dir(p)); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f family) add(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, "dev"))
	if err != nil {
		return err
	}
	// Not fmt.Sscanf, which would be 30 KiB of the program for this line.
	major, minor, _ := strings.Cut(strings.TrimSpace(string(text)), ":")
	ma, errMajor := strconv.ParseUint(major, 10, 32)
	mi, errMinor := strconv.ParseUint(minor, 10, 32)
	if err := errors.Join(errMajor, errMinor); err != nil {
		return fmt.Errorf("%s/dev: %w", dir, err)
	}
	rdev := unix.Mkdev(uint32(ma), uint32(mi))
	f[rdev] = "/dev/" + uevent(rdev, "DEVNAME")
	return nil
}

// has reports whether one of the family is at path.
func (f family) has(path string) bool {
	rdev := numberOf(path)
	return rdev != 0 && f[rdev] != ""
}

// holders names the devices that are made of the family.
func (f family) holders() string {
	var names []string
	for rdev := range f {
		found, _ := filepath.Glob(sysDir(rdev) + "/holders/*")
		for _, h := range found {
			names = append(names, "/dev/"+filepath.Base(h))
		}
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}

// checkLoops refuses what a loop device shows too, whether that is mounted or not: the
// kubelet attaches one to each volume with volumeMode: Block (Kubernetes v1.37.1,
// pkg/volume/util/volumepathhandler/volume_path_handler_linux.go, AttachFileDevice).
func (f family) checkLoops() error {
	loops, err := attachedLoops()
	if err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(loops))
	for _, own := range names {
		info := loops[own]
		if !f.has(own) {
			continue
		}
		if showsDevice(info) {
			return because(ErrBusy, "it is a loop device that shows another block device, %s; name that one", BackingFile(own))
		}
		for _, other := range names {
			if l := loops[other]; other != own && l.Device == info.Device && l.Inode == info.Inode {
				return shownBy(other)
			}
		}
	}
	for _, name := range names {
		if l := loops[name]; showsDevice(l) && f[l.Rdevice] != "" {
			return shownBy(name)
		}
	}
	return nil
}

func shownBy(loop string) error {
	return because(ErrBusy, "the loop device %s shows it too: it is a volume with volumeMode: Block, or attached by a program (losetup -l %s); detach that one, or name another device", loop, loop)
}

// showsDevice: kernels before 4.18 give the number of a file's filesystem instead
// (drivers/block/loop.c, loop_get_status).
func showsDevice(l *unix.LoopInfo64) bool { return l.Rdevice != 0 && l.Rdevice != l.Device }

// checkMounts refuses what is mounted where it may not be, and reports whether the disk
// with the number rdev is mounted elsewhere.
func (f family) checkMounts(rdev uint64, allowed func(mountpoint string) bool) (shared bool, err error) {
	for _, table := range mountTables() {
		infos, err := MountsIn(table, nil)
		if err != nil {
			return false, err
		}
		for _, i := range infos {
			number := mountedDevice(i)
			switch name := f[number]; {
			case name == "" || number == 0:
			case number != rdev:
				return false, because(ErrBusy, "%s, which shares its blocks, is mounted at %s", name, i.Mountpoint)
			case !allowed(i.Mountpoint):
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

func (d Disk) heldByOther() error {
	return because(ErrBusy, "something other than a mounted filesystem has the device: LVM, RAID, multipath, swap, or a program that writes to it (lsblk %s and lsof %s show which)", d.Device, d.Device)
}
