package escape

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/trace"
)

// A guard holds a call to the rules. What it has seen is for one call.
type guard struct {
	w       *world
	command flex.Command
	// namespace is that of the pod: mount alone tells it.
	namespace string
	driver    *driver
	secrets   map[string]string
	locks     bool // it may lock the disk

	escapes []string
	// reached is how far the call has got.
	reached stage
	// programs that processes run; one that is not there runs the driver's.
	programs map[int]string
	// stubs are processes of the programs that stand for mount.nfs and the like.
	stubs    map[int]bool
	leader   int      // the driver itself
	free     []string // loop devices that the kernel has said are free; others may have taken them
	unshared map[int]bool
}

// A stage is how far a call has got.
type stage int

const (
	refused stage = iota // before anything was done
	looked               // a file, a device or a program was asked
	worked               // mkfs or fsck, or a mount was tried
	mounted              // something was mounted
	stages
)

func (s stage) String() string { return [...]string{"refused", "looked", "worked", "mounted"}[s] }

func (g *guard) reach(s stage) { g.reached = max(g.reached, s) }

// bad notes an escape. Its result is for the watcher: end the program. Of a thread that ends
// meanwhile, as its process does or is killed, /proc shows nothing, and what was made of that is no
// escape.
func (g *guard) bad(p trace.Process, format string, args ...any) bool {
	if p.Ends() {
		return true
	}
	what := g.program(p) + " " + fmt.Sprintf(format, args...)
	if g.driver.refusal != "" {
		what = fmt.Sprintf("%s %s: %s", driverProgram, g.driver.refusal, what)
	}
	g.escapes = append(g.escapes, what)
	return false
}

func (g *guard) program(p trace.Process) string {
	if name, ok := g.programs[p.PID]; ok {
		return filepath.Base(name)
	}
	return driverProgram
}

func (g *guard) isDriver(p trace.Process) bool { return g.programs[p.PID] == "" }

// An at is where a system call has a path: the number of the argument, and of that
// with the directory, or 0 if there is none. It is never the first.
type at struct{ dir, path int }

// A change is a system call that changes what paths lead to.
type change struct {
	verb string
	at   []at
}

func changes() map[uint64]change {
	inDir := []at{{dir: here, path: 1}}
	all := map[uint64]change{
		unix.SYS_LINKAT:       {"links", []at{{dir: here, path: 1}, {dir: 2, path: 3}}},
		unix.SYS_RENAMEAT:     {"renames", []at{{dir: here, path: 1}, {dir: 2, path: 3}}},
		unix.SYS_RENAMEAT2:    {"renames", []at{{dir: here, path: 1}, {dir: 2, path: 3}}},
		unix.SYS_SYMLINKAT:    {"links", []at{{dir: 1, path: 2}}},
		unix.SYS_UNLINKAT:     {"removes", inDir},
		unix.SYS_MKDIRAT:      {"makes", inDir},
		unix.SYS_MKNODAT:      {"makes", inDir},
		unix.SYS_FCHMODAT:     {"changes", inDir},
		unix.SYS_FCHMODAT2:    {"changes", inDir},
		unix.SYS_FCHOWNAT:     {"changes", inDir},
		unix.SYS_TRUNCATE:     {"truncates", []at{{path: 0}}},
		unix.SYS_SETXATTR:     {"changes", []at{{path: 0}}},
		unix.SYS_LSETXATTR:    {"changes", []at{{path: 0}}},
		unix.SYS_REMOVEXATTR:  {"changes", []at{{path: 0}}},
		unix.SYS_LREMOVEXATTR: {"changes", []at{{path: 0}}},
	}
	maps.Copy(all, oldCalls())
	return all
}

// here is the first argument as the place of a directory.
const here = -1

// selected are the system calls that a guard wants to see.
func selected() []trace.Selection {
	numbers := []uint64{
		unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE,
		unix.SYS_FSOPEN, unix.SYS_FSPICK, unix.SYS_FSCONFIG, unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_CHROOT, unix.SYS_PIVOT_ROOT,
		unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE, unix.SYS_SWAPON,
		unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_PROCESS_VM_WRITEV,
	}
	if sysOpen != unix.SYS_OPENAT && sysCreat < 1<<32 {
		numbers = append(numbers, sysOpen, sysCreat)
	}
	numbers = append(numbers, slices.Collect(maps.Keys(changes()))...)
	slices.Sort(numbers)
	all := []trace.Selection{{Nr: unix.SYS_IOCTL, Requests: []uint32{unix.LOOP_SET_FD, unix.LOOP_CONFIGURE, loopChangeFD, unix.LOOP_CTL_GET_FREE}}}
	for _, nr := range numbers {
		all = append(all, trace.Selection{Nr: nr})
	}
	return all
}

// Before holds a system call to the rules.
func (g *guard) Before(c *trace.Call) bool {
	if g.leader == 0 {
		g.leader = c.PID
	}
	if g.stubs[c.PID] {
		return true
	}
	switch c.Nr {
	case unix.SYS_OPENAT, unix.SYS_OPENAT2, sysOpen, sysCreat:
		c.Await = true
		return true
	case unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_FSOPEN, unix.SYS_FSPICK, unix.SYS_FSCONFIG:
		return g.mounting(c)
	case unix.SYS_IOCTL:
		c.Await = uint32(c.Args[1]) == unix.LOOP_CTL_GET_FREE
		return c.Await || g.attaching(c)
	case unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE:
		return g.growing(c)
	case unix.SYS_CONNECT, unix.SYS_BIND:
		return g.connecting(c)
	case unix.SYS_UNSHARE:
		g.unshared[c.ID] = true
		return true
	}
	if ch, ok := changes()[c.Nr]; ok {
		return g.changing(c, ch)
	}
	return g.bad(c.Process, "makes system call %d, which it has no use for", c.Nr)
}

// After looks what was opened, or which loop device is free.
func (g *guard) After(c *trace.Call) bool {
	if c.Nr == unix.SYS_IOCTL {
		g.free = append(g.free, fmt.Sprintf("/dev/loop%d", c.Result))
		return true
	}
	return g.opened(c)
}

// pathOf is the absolute path that a system call names, with the links of its
// directory resolved, not that of its last part.
func (g *guard) pathOf(c *trace.Call, a at) string {
	path := c.Text(a.path)
	switch {
	case filepath.IsAbs(path):
	case path == "" && a.dir != 0:
		return c.Link(fmt.Sprintf("fd/%d", int32(c.Args[max(a.dir, 0)])))
	case a.dir == 0 || int32(c.Args[max(a.dir, 0)]) == unix.AT_FDCWD:
		path = c.Link("cwd") + "/" + path
	default:
		path = c.Link(fmt.Sprintf("fd/%d", int32(c.Args[max(a.dir, 0)]))) + "/" + path
	}
	return resolve(c.Process, path)
}

// resolve follows the links of the directory that path is in, as the process sees
// them: /proc/self is its own.
func resolve(p trace.Process, path string) string {
	for _, self := range []string{"/proc/self/", "/proc/thread-self/", fmt.Sprintf("/proc/%d/", p.PID)} {
		if rest, ok := strings.CutPrefix(path, self); ok {
			first, below, _ := strings.Cut(strings.TrimPrefix(rest, "fd/"), "/")
			if to := p.Link("fd/" + first); strings.HasPrefix(rest, "fd/") && to != "" {
				return filepath.Clean(to + "/" + below)
			}
			return filepath.Clean(path)
		}
	}
	if hangs(path) {
		return filepath.Clean(path)
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, filepath.Base(path))
}

func below(dir, path string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

func belowAny(path string, dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return below(dir, path) })
}

// backing is the file behind a loop device, or "".
func backing(device string) string {
	text, _ := os.ReadFile("/sys/block/" + filepath.Base(device) + "/loop/backing_file")
	return strings.TrimSuffix(strings.TrimSpace(string(text)), " (deleted)")
}

// loopChangeFD is LOOP_CHANGE_FD of linux/loop.h.
const loopChangeFD = 0x4c06
