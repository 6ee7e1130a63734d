package escape

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/trace"
)

// A file is what a path or descriptor has led to.
type file struct {
	path     string
	dev, ino uint64
	mode     uint32
	rdev     uint64
}

// opened holds what was opened to the rules, and what could not be since the machine's
// files are read-only here.
func (g *guard) opened(c *trace.Call) bool {
	path, flags := openArguments(c)
	if below(g.w.roots, path) {
		g.reach(looked)
	}
	writes := flags&(unix.O_WRONLY|unix.O_RDWR|unix.O_CREAT|unix.O_TRUNC) != 0
	if c.Errno != 0 {
		if c.Errno != unix.EROFS || !writes {
			return true
		}
		return g.mayWrite(c.Process, file{path: resolve(c.Process, path)}, "would write to")
	}
	if flags&unix.O_PATH != 0 {
		return true // which looks at nothing but the name
	}
	name := fmt.Sprintf("/proc/%d/fd/%d", c.ID, c.Result)
	var st unix.Stat_t
	if unix.Stat(name, &st) != nil {
		return true // killed meanwhile
	}
	f := file{path: c.Link(fmt.Sprintf("fd/%d", c.Result)), dev: st.Dev, ino: st.Ino, mode: st.Mode, rdev: st.Rdev}
	f.path = strings.TrimSuffix(f.path, " (deleted)")
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFBLK:
		return g.mayUseDevice(c.Process, f, writes)
	case st.Mode&unix.S_IFMT == unix.S_IFCHR:
		return slices.Contains(harmlessDevices(), f.path) || g.bad(c.Process, "opens %s", f.path)
	case writes:
		return g.mayWrite(c.Process, f, "opens for writing")
	}
	return g.mayRead(c.Process, f)
}

func openArguments(c *trace.Call) (path string, flags uint64) {
	arg, dir := 1, int32(c.Args[0])
	switch c.Nr {
	case unix.SYS_OPENAT:
		flags = c.Args[2]
	case unix.SYS_OPENAT2:
		flags = binary.LittleEndian.Uint64(append(c.Memory(2, 8), make([]byte, 8)...))
	case sysOpen:
		arg, dir, flags = 0, unix.AT_FDCWD, c.Args[1]
	default:
		arg, dir, flags = 0, unix.AT_FDCWD, unix.O_CREAT|unix.O_WRONLY|unix.O_TRUNC
	}
	path = c.Text(arg)
	switch {
	case filepath.IsAbs(path):
	case dir == unix.AT_FDCWD:
		path = c.Link("cwd") + "/" + path
	default:
		path = c.Link(fmt.Sprintf("fd/%d", dir)) + "/" + path
	}
	return path, flags
}

func harmlessDevices() []string {
	return []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/loop-control", "/dev/mapper/control"}
}

// inVolume: the file is on a filesystem of its own, which is in an image or on a
// device that the rules for those have let pass.
func (g *guard) inVolume(f file) bool { return f.dev != 0 && !g.w.filesystems[f.dev] }

// isDetached: the file is seen by a mount that is nowhere yet, and its path begins
// there. The rules for mounts have let that pass.
func (g *guard) isDetached(f file) bool {
	return f.dev == g.w.dev && !below(g.w.dir, f.path) && !g.w.canaries[f.ino]
}

func (g *guard) mayRead(p trace.Process, f file) bool {
	switch {
	case g.inVolume(f), g.isDetached(f), g.isOurs(f), !g.isDriver(p) && below(g.w.kubelet, f.path) && f.mode&unix.S_IFMT == unix.S_IFDIR:
		return true
	case f.dev == g.w.dev && (f.path == g.w.roots || f.path == g.w.devicesDir && g.driver.rooted || f.mode&unix.S_IFMT == unix.S_IFDIR && g.driver.rooted && below(g.w.images, f.path)): // looked through
		return true
	case !below(g.w.dir, f.path) && isSystem(f.path):
		return true
	case g.program(p) == "btrfs" && below("/sys/fs/btrfs", f.path) && filepath.Base(f.path) == "exclusive_operation": // before it grows a filesystem
		return true
	}
	return g.bad(p, "opens %s for reading", f.path)
}

func (g *guard) mayWrite(p trace.Process, f file, verb string) bool {
	if g.inVolume(f) && !isKernels(f.path) || g.isDetached(f) || g.isOurs(f) && !below(g.w.dir+"/plugins", f.path) || g.mayLock(f.path) || f.path == g.w.log ||
		g.driver.socket != "" && below(g.w.dir+"/run/state", f.path) || // what it has done without the daemon
		g.driver.rooted && g.w.disks[f.path] || g.program(p) == "mount" && below("/run/mount", f.path) {
		return true
	}
	return g.bad(p, "%s %s", verb, f.path)
}

// isOurs: the driver's own, and what the call may be about.
func (g *guard) isOurs(f file) bool {
	if g.w.canaries[f.ino] && f.dev == g.w.dev && !(g.namespace == "" && g.mayBeImage(f.path)) {
		return false
	}
	if g.driver.socket != "" && below(g.w.dir+"/run/state", f.path) {
		return true
	}
	dirs := []string{
		filepath.Dir(g.driver.program),
		g.w.kubelet + "/plugins/kubernetes.io/flexvolume",
	}
	if rest, ok := strings.CutPrefix(f.path, g.w.kubelet+"/pods/"); ok {
		parts := strings.SplitN(rest, "/", 4)
		return len(parts) > 2 && parts[1] == "volumes" && parts[2] == g.driver.escaped() || g.isPrivate(f.path)
	}
	if g.driver.rooted {
		dirs = append(dirs, g.w.directories)
		return belowAny(f.path, dirs...) || g.mayBeImage(f.path) || f.path == g.w.images
	}
	return belowAny(f.path, dirs...)
}

// isPrivate: where a CSI driver publishes to (kubeletdir.TargetPath).
func (g *guard) isPrivate(path string) bool {
	rest, ok := strings.CutPrefix(path, g.w.kubelet+"/pods/")
	_, rest, _ = strings.Cut(rest, "/")
	return ok && g.driver.socket != "" && below("flex2csi", rest)
}

// mayBeImage: images are separated by namespace. Calls that do not tell it may look
// whether there is one; see mayAttach.
func (g *guard) mayBeImage(path string) bool {
	rest, ok := strings.CutPrefix(path, g.w.images+"/")
	if !ok || !g.driver.rooted {
		return false
	}
	namespace, _, _ := strings.Cut(rest, "/")
	return g.namespace == "" || namespace == g.namespace
}

// mayAttach: without a namespace there is only expansion, which a pod cannot ask for
// by itself: it takes a PersistentVolume.
func (g *guard) mayAttach(path string) bool {
	expands := g.command == flex.CommandExpandFS || g.command == flex.CommandExpandVolume
	return g.mayBeImage(path) && (g.namespace != "" || expands) && (expands || !g.w.canaries[inode(path)])
}

// isKernels are files of the kernel's, in filesystems that are none.
func isKernels(path string) bool { return belowAny(path, "/proc", "/sys") }

// isSystem: what programs of the system read of it.
func isSystem(path string) bool {
	return belowAny(path, "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/locale", "/usr/share/zoneinfo", "/dev/disk", "/sys/block", "/sys/devices", "/sys/dev", "/sys/class/block", "/sys/kernel/mm", "/sys/fs/cgroup") ||
		isProc(path) || strings.HasPrefix(path, "/memfd:") || strings.HasPrefix(path, "pipe:") ||
		slices.Contains(systemFiles(), path)
}

func systemFiles() []string {
	return []string{
		"/etc/ld.so.cache", "/etc/ld.so.preload", "/etc/localtime", "/etc/locale.alias", "/etc/mke2fs.conf", "/etc/e2fsck.conf", "/etc/blkid.conf",
		"/etc/fstab", "/etc/mtab", "/etc/nsswitch.conf", "/etc/passwd", "/etc/group", "/dev", "/dev/mapper", "/dev/shm",
		"/run/mount/utab", "/run/blkid/blkid.tab", "/usr/share/locale/locale.alias", "/usr/bin/dash", "/usr/sbin/xfs_growfs", "/sys/block",
	}
}

// isProc matches what /proc has of the kernel, and of the process itself.
func isProc(path string) bool {
	rest, ok := strings.CutPrefix(path, "/proc/")
	if !ok {
		return path == "/proc"
	}
	first, name, _ := strings.Cut(rest, "/")
	if strings.Trim(first, "0123456789") == "" {
		return slices.Contains([]string{"", "mountinfo", "mounts", "status", "stat", "cgroup", "maps", "comm", "fd", "uid_map", "oom_score_adj", "auxv"}, strings.TrimPrefix(name, "task/")) || strings.HasSuffix(name, "/mountinfo") || strings.HasPrefix(name, "fdinfo/")
	}
	return slices.Contains([]string{"filesystems", "partitions", "devices", "meminfo", "swaps", "cmdline", "cpuinfo", "sys/vm/overcommit_memory", "sys/kernel/ngroups_max", "sys/kernel/overflowuid", "sys/fs/pipe-max-size", "sys/kernel/random/boot_id", "mdstat", "modules", "misc", "tty/ldisc"}, rest)
}

// changing holds a change of what paths lead to to the rules.
func (g *guard) changing(c *trace.Call, ch change) bool {
	for _, a := range ch.at {
		path := g.pathOf(c, a)
		if c.Nr == unix.SYS_MKNODAT && g.isLoopNode(c, path) {
			continue
		}
		if !g.mayWrite(c.Process, g.named(c, a, ch, path), ch.verb) {
			return false
		}
	}
	return true
}

// named is what a system call names, or the filesystem where it would be. It is looked
// at from the process's own directory: in a mount that is nowhere yet there is no other way.
func (g *guard) named(c *trace.Call, a at, ch change, path string) file {
	f := file{path: path}
	name, at := c.Text(a.path), "cwd"
	if a.dir != 0 && int32(c.Args[max(a.dir, 0)]) != unix.AT_FDCWD {
		at = fmt.Sprintf("fd/%d", int32(c.Args[max(a.dir, 0)]))
	}
	if rest, ok := strings.CutPrefix(name, "/proc/self/fd/"); ok {
		name, at = "", "fd/"+rest
	}
	switch {
	case name == "":
		name = fmt.Sprintf("/proc/%d/%s", c.ID, at)
	case !filepath.IsAbs(name):
		name = fmt.Sprintf("/proc/%d/%s/%s", c.ID, at, name)
	}
	// A link of the process's own directory is one to a descriptor, which is followed.
	_, number, isFD := strings.Cut(name, "/fd/")
	isFD = isFD && !strings.Contains(number, "/")
	var st unix.Stat_t
	switch {
	case hangs(path):
		f.dev = g.w.dev
	case (isFD || ch.follows(c)) && unix.Stat(name, &st) == nil, unix.Lstat(name, &st) == nil:
		f.ino, f.dev = st.Ino, st.Dev
	case unix.Stat(filepath.Dir(name), &st) == nil:
		f.dev = st.Dev
	}
	return f
}

// follows reports whether a system call changes what a link leads to, not the link.
func (ch change) follows(c *trace.Call) bool {
	switch c.Nr {
	case unix.SYS_FCHOWNAT:
		return c.Args[4]&unix.AT_SYMLINK_NOFOLLOW == 0
	case unix.SYS_FCHMODAT2:
		return c.Args[3]&unix.AT_SYMLINK_NOFOLLOW == 0
	case unix.SYS_LSETXATTR, unix.SYS_LREMOVEXATTR, sysLchown:
		return false
	}
	return ch.verb == "changes" || ch.verb == "truncates"
}

// isLoopNode: the file of a loop device is made where /dev does not have it.
func (g *guard) isLoopNode(c *trace.Call, path string) bool {
	return strings.HasPrefix(path, "/dev/loop") && c.Args[2]&unix.S_IFMT == unix.S_IFBLK && unix.Major(c.Args[3]) == loopMajor
}

// connecting holds sockets to the rules: the daemon's, and what libraries ask.
func (g *guard) connecting(c *trace.Call) bool {
	address := c.Memory(1, int(min(c.Args[2], 110)))
	if len(address) < 2 || binary.LittleEndian.Uint16(address) != unix.AF_UNIX {
		return g.bad(c.Process, "connects to an address of family %d", binary.LittleEndian.Uint16(append(address, 0, 0)))
	}
	path, _, _ := strings.Cut(string(address[2:]), "\x00")
	if path == "/var/run/nscd/socket" || c.Nr == unix.SYS_CONNECT && g.driver.socket != "" && path == g.driver.socket {
		return true
	}
	return g.bad(c.Process, "connects to %q", path)
}

// inode is that of an existing file.
func inode(path string) uint64 {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return 0
	}
	return st.Ino
}
