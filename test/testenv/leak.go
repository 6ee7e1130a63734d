package testenv

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// leakPatience is how long loop devices and processes may take to go: the
// kernel detaches an autoclear loop device some time after the last user left.
const leakPatience = 5 * time.Second

// LeakCheck makes t fail if, when it ends, something is mounted below dir, a
// loop device has a file below dir, or a process has to do with dir (its
// program, working directory, arguments, environment or an open file). What is
// found is removed as well, so that one leak is not reported twice.
//
// Call it before what it watches is set up: cleanups run last in, first out.
func LeakCheck(t testing.TB, dir string) {
	t.Helper()
	leakCheck(t, dir, leakPatience)
}

func leakCheck(t testing.TB, dir string, patience time.Duration) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatalf("testenv.LeakCheck: %v", err)
	}
	t.Cleanup(func() {
		t.Helper()
		for _, l := range findLeaks(dir, patience) {
			t.Errorf("leaked: %s", l.what)
			if err := l.remove(); err != nil {
				t.Logf("remove the leak: %v", err)
			}
		}
	})
}

// leak is one thing left behind and the way to get rid of it.
type leak struct {
	what   string
	remove func() error
}

// findLeaks returns what is left below dir, in the order in which to remove it.
// It waits up to patience for what may end by itself; a mount never does.
func findLeaks(dir string, patience time.Duration) []leak {
	mounts := leakedMounts(dir)
	deadline := time.Now().Add(patience)
	for {
		rest := append(leakedProcesses(dir), leakedLoops(dir)...)
		if len(rest) == 0 || len(mounts) > 0 || time.Now().After(deadline) {
			return append(mounts, rest...)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func leakedMounts(dir string) []leak {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return []leak{{what: "unknown: " + err.Error(), remove: func() error { return nil }}}
	}
	var leaks []leak
	for _, m := range slices.Backward(mounts) { // the last one lies on top
		leaks = append(leaks, leak{
			what: fmt.Sprintf("mount of %s (%s) on %s", m.Source, m.FSType, m.Mountpoint),
			remove: func() error {
				return unix.Unmount(m.Mountpoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
			},
		})
	}
	return leaks
}

func leakedLoops(dir string) []leak {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil // the pattern is well formed
	}
	var leaks []leak
	for _, f := range files {
		backing, err := os.ReadFile(f)
		if err != nil || !below(dir, strings.TrimSpace(string(backing))) {
			continue // detached since, or not ours
		}
		device := filepath.Join("/dev", strings.Split(f, "/")[3])
		leaks = append(leaks, leak{
			what:   fmt.Sprintf("loop device %s on %s", device, strings.TrimSpace(string(backing))),
			remove: func() error { return detachLoop(device) },
		})
	}
	return leaks
}

func detachLoop(device string) error {
	f, err := os.OpenFile(device, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0)
}

func leakedProcesses(dir string) []leak {
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil // the pattern is well formed
	}
	own := ancestors()
	var leaks []leak
	for _, proc := range procs {
		pid, err := strconv.Atoi(filepath.Base(proc))
		if err != nil || slices.Contains(own, pid) || !concerns(proc, dir) {
			continue
		}
		cmdline, _ := os.ReadFile(filepath.Join(proc, "cmdline")) // for the message only
		leaks = append(leaks, leak{
			what:   fmt.Sprintf("process %d: %s", pid, strings.ReplaceAll(string(cmdline), "\x00", " ")),
			remove: func() error { return unix.Kill(pid, unix.SIGKILL) },
		})
	}
	return leaks
}

// ancestors returns this process and those above it: go test, make, a shell.
func ancestors() []int {
	var pids []int
	for pid := os.Getpid(); pid > 0; {
		pids = append(pids, pid)
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			break
		}
		// pid (comm) state ppid …; comm may hold spaces and parentheses.
		_, rest, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')'):]), " ")
		fields := strings.Fields(rest)
		if len(fields) < 2 {
			break
		}
		if pid, err = strconv.Atoi(fields[1]); err != nil {
			break
		}
	}
	return pids
}

// concerns reports whether the process has to do with dir. Each file may be
// unreadable: the process has ended, is a zombie or belongs to someone else.
func concerns(proc, dir string) bool {
	links, _ := filepath.Glob(filepath.Join(proc, "fd", "*"))
	for _, link := range append(links, filepath.Join(proc, "exe"), filepath.Join(proc, "cwd")) {
		if target, err := os.Readlink(link); err == nil && below(dir, target) {
			return true
		}
	}
	for _, name := range []string{"cmdline", "environ"} {
		text, _ := os.ReadFile(filepath.Join(proc, name))
		if mentions(string(text), dir) {
			return true
		}
	}
	return false
}

// mentions finds dir in text, but not another directory with a name that only begins
// like it: tests that run in parallel often have similar names.
func mentions(text, dir string) bool {
	for {
		_, rest, found := strings.Cut(text, dir)
		if !found || rest == "" || !strings.ContainsRune(nameRunes, rune(rest[0])) {
			return found
		}
		text = rest
	}
}

const nameRunes = "-_.#abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

func below(dir, path string) bool {
	return path == dir || strings.HasPrefix(path, dir+"/")
}
