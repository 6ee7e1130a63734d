package escape

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/test/trace"
)

// mounting holds what makes and removes mounts to the rules.
func (g *guard) mounting(c *trace.Call) bool {
	switch c.Nr {
	case unix.SYS_FSOPEN:
		g.reach(worked)
		return g.mayBeType(c, c.Text(0))
	case unix.SYS_FSCONFIG:
		return g.configuring(c)
	case unix.SYS_FSPICK:
		path := g.pathOf(c, at{dir: here, path: 1})
		return c.Text(1) == "" || g.isTarget(path) || g.bad(c.Process, "changes the mount at %s", path)
	case unix.SYS_OPEN_TREE:
		return c.Args[2]&unix.OPEN_TREE_CLONE == 0 || g.mayBind(c, g.pathOf(c, at{dir: here, path: 1}))
	case unix.SYS_MOVE_MOUNT:
		g.reach(mounted)
		path := g.pathOf(c, at{dir: 2, path: 3})
		return g.isTarget(path) || g.bad(c.Process, "mounts at %s", path)
	case unix.SYS_UMOUNT2:
		path := g.pathOf(c, at{path: 0})
		return g.isTarget(path) || g.isPrivate(path) || path == "/" && strings.HasPrefix(c.Text(0), "/proc/self/fd/") || g.bad(c.Process, "unmounts %s", path)
	}
	return g.mountingClassically(c)
}

// mountingClassically is mount(2).
func (g *guard) mountingClassically(c *trace.Call) bool {
	target, flags := g.pathOf(c, at{path: 1}), c.Args[3]
	if target == "/" && flags == unix.MS_REC|unix.MS_SLAVE && g.unshared[c.ID] {
		return true // a namespace of its own, to grow a filesystem in
	}
	g.reach(worked)
	if !g.isTarget(target) {
		return g.bad(c.Process, "mounts at %s", target)
	}
	switch {
	case flags&unix.MS_BIND != 0 && flags&unix.MS_REMOUNT == 0, flags&unix.MS_MOVE != 0:
		return g.mayBind(c, g.pathOf(c, at{path: 0}))
	case flags&(unix.MS_SHARED|unix.MS_PRIVATE|unix.MS_SLAVE|unix.MS_UNBINDABLE) != 0:
		return g.bad(c.Process, "changes the propagation of %s", target)
	}
	for option := range strings.SplitSeq(c.Text(4), ",") {
		key, value, _ := strings.Cut(option, "=")
		if !g.mayBeOption(c, key, value) {
			return false
		}
	}
	return flags&unix.MS_REMOUNT != 0 || g.mayBeType(c, c.Text(2)) && g.mayBeSource(c, c.Text(0))
}

// isTarget: where the kubelet wants the driver's volumes.
func (g *guard) isTarget(path string) bool {
	if rest, ok := strings.CutPrefix(path, g.w.kubelet+"/pods/"); ok {
		parts := strings.Split(rest, "/")
		return len(parts) == 4 && parts[1] == "volumes" && parts[2] == g.driver.escaped()
	}
	rest, ok := strings.CutPrefix(path, g.w.kubelet+"/plugins/kubernetes.io/flexvolume/"+g.driver.name+"/mounts/")
	return ok && !strings.Contains(rest, "/")
}

func (g *guard) mayBeType(c *trace.Call, fsType string) bool {
	known := []string{"tmpfs"}
	if g.driver.rooted {
		known = append(known, "ext4", "ext3", "xfs", "btrfs")
		known = append(known, sourceTypes()...)
	}
	return slices.Contains(known, fsType) || g.bad(c.Process, "mounts a filesystem of type %q", fsType)
}

// configuring is fsconfig(2).
func (g *guard) configuring(c *trace.Call) bool {
	switch c.Args[1] {
	case unix.FSCONFIG_SET_FLAG:
		return g.mayBeOption(c, c.Text(2), "")
	case unix.FSCONFIG_SET_STRING:
		key, value := c.Text(2), c.Text(3)
		if key == "source" {
			return g.mayBeSource(c, value)
		}
		return g.mayBeOption(c, key, value)
	case unix.FSCONFIG_CMD_CREATE, unix.FSCONFIG_CMD_RECONFIGURE:
		return true
	}
	return g.bad(c.Process, "gives the mount option %q another way than as a string", c.Text(2))
}

// mayBeSource: a disk, or with a type that the rules let pass something that is no
// file of the node.
func (g *guard) mayBeSource(c *trace.Call, source string) bool {
	switch {
	case source == "", source == "tmpfs", source == "none":
		return true
	case strings.HasPrefix(source, "/dev/"):
		return g.isOurDevice(source) || g.bad(c.Process, "mounts %s (%s)", source, backing(source))
	}
	return g.driver.rooted && (!strings.HasPrefix(source, "/") || strings.HasPrefix(source, "//")) || g.bad(c.Process, "mounts the source %q", source)
}

// mayBeOption: none that names a file of the node or another device, or that asks for
// more memory than there may be.
func (g *guard) mayBeOption(c *trace.Call, key, value string) bool {
	foreign := []string{"device", "journal_dev", "journal_path", "logdev", "rtdev", "fd", "lowerdir", "upperdir", "workdir", "rfdno", "wfdno", "cachetag", "helper", "mpol"}
	if slices.Contains(foreign, key) || strings.Contains(value, "/") {
		return g.bad(c.Process, "mounts with the option %s=%s", key, value)
	}
	if key == "size" && !g.isBounded(value) {
		return g.bad(c.Process, "mounts with the size %s", value)
	}
	return true
}

func (g *guard) isBounded(size string) bool {
	number := strings.TrimRight(strings.ToLower(size), "kmgtpe")
	n, err := strconv.ParseInt(number, 0, 64)
	if err != nil {
		return false
	}
	for _, suffix := range size[len(number):] {
		factor := int64(1) << (10 * (1 + strings.IndexRune("kmgtpe", suffix|0x20)))
		if n > math.MaxInt64/factor {
			return false
		}
		n *= factor
	}
	return n <= largest
}

func (g *guard) mayBind(c *trace.Call, path string) bool {
	g.reach(worked)
	return g.driver.rooted && below(g.w.directories, path) && !g.w.canaries[inode(path)] || g.bad(c.Process, "binds %s", path)
}

const loopMajor = 7

// isOurDevice: a disk that may be named, or the loop device of an image that may.
func (g *guard) isOurDevice(device string) bool {
	file := backing(device)
	return strings.HasPrefix(device, "/dev/loop") && (g.mayAttach(file) || g.driver.rooted && g.w.disks[file])
}

// mayUseDevice: the driver itself may look behind any loop device whether that is its
// image, blkid for labels, and mkfs and fsck whether the one that they are given is
// mounted by another name (e2fsprogs, lib/ext2fs/ismounted.c, check_loop_mounted).
func (g *guard) mayUseDevice(p trace.Process, f file, writes bool) bool {
	g.reach(looked)
	name := "/dev/loop" + strconv.Itoa(int(unix.Minor(f.rdev)))
	if unix.Major(f.rdev) == loopMajor {
		asks := !writes && (g.isDriver(p) || g.program(p) == "blkid" || !strings.Contains(read(p, "cmdline"), name+"\x00"))
		if asks || slices.Contains(g.free, name) || backing(name) == "" || g.isOurDevice(name) {
			return true
		}
	}
	return g.bad(p, "opens the device %s (%s)", f.path, backing(name))
}

// attaching holds what is put behind a loop device to the rules.
func (g *guard) attaching(c *trace.Call) bool {
	fd := int32(c.Args[2])
	if uint32(c.Args[1]) == unix.LOOP_CONFIGURE {
		fd = int32(binary.LittleEndian.Uint32(append(c.Memory(2, 4), 0, 0, 0, 0)))
	}
	path := c.Link(fmt.Sprintf("fd/%d", fd))
	return g.mayAttach(path) || g.bad(c.Process, "attaches %s to a loop device", path)
}
