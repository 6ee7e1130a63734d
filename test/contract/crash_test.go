package contract

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

func (n *node) mountTmpfs(dir, options string) {
	n.t.Helper()
	n.must(unix.Mount("tmpfs", dir, "tmpfs", 0, options))
	n.t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }) // it may be gone
}

func (n *node) remountTmpfs(dir, options string) {
	n.t.Helper()
	n.must(unix.Mount("", dir, "", unix.MS_REMOUNT, options))
}

// slowly returns a wrapper in which each system call that can make a mount
// visible waits before it begins (delay_enter) or before it returns (delay_exit).
func slowly(where string, delay time.Duration) wrapper {
	return func(argv []string) []string {
		return append([]string{
			"strace", "-f", "-o", "/dev/null", "-e", "trace=mount,move_mount",
			"-e", fmt.Sprintf("inject=mount,move_mount:%s=%d", where, delay.Microseconds()),
		}, argv...)
	}
}

// drivers returns the running processes of this node's driver.
func (n *node) drivers() []int {
	n.t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	n.must(err)
	var pids []int
	for _, link := range links {
		if exe, err := os.Readlink(link); err == nil && exe == n.executable() {
			var pid int
			_, err := fmt.Sscanf(link, "/proc/%d/exe", &pid)
			n.must(err)
			pids = append(pids, pid)
		}
	}
	return pids
}

// inSyscall reports whether a thread of pid is at mount(2) or move_mount(2).
func inSyscall(pid int) bool {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	wanted := []string{fmt.Sprint(unix.SYS_MOUNT), fmt.Sprint(unix.SYS_MOVE_MOUNT)}
	return slices.ContainsFunc(files, func(f string) bool {
		text, _ := os.ReadFile(f) // the thread may have ended
		number, _, _ := strings.Cut(string(text), " ")
		return slices.Contains(wanted, number)
	})
}

// mountAndKill starts a mount and kills the driver with SIGKILL as soon as now
// holds for its process.
func (n *node) mountAndKill(v *vol, pod *v1.Pod, w wrapper, now func(pid int) bool) {
	n.t.Helper()
	done := make(chan error)
	n.runner.wrapped("mount", w, func() {
		go func() { done <- n.mount(v, pod) }()
		eventually(n.t, "the moment to kill the driver", func() bool {
			return slices.ContainsFunc(n.drivers(), func(pid int) bool {
				return now(pid) && n.killTraced(pid)
			})
		})
		if err := <-done; err == nil {
			n.t.Error("a driver that was killed is no error to the kubelet")
		}
	})
	eventually(n.t, "the driver is dead", func() bool { return len(n.drivers()) == 0 })
}

// killTraced kills a driver and the strace above it, which would otherwise
// first wait to the end of the delay.
func (n *node) killTraced(pid int) bool {
	n.t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, fields, _ := strings.Cut(string(stat), ") ")
	var state string
	var parent int
	_, err = fmt.Sscan(fields, &state, &parent)
	n.must(err)
	n.must(unix.Kill(pid, unix.SIGKILL))
	n.must(unix.Kill(parent, unix.SIGKILL))
	return true
}

// TestDriverKilledAfterTheMountLeavesAUsableVolume: the kubelet takes a mount
// that it finds for success and does not call again. Where it calls again, the
// driver finds the mount.
func TestDriverKilledAfterTheMountLeavesAUsableVolume(t *testing.T) {
	need(t, "strace")
	for _, k := range []kind{imageExt4(), directory(), memory()} {
		for _, attach := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/attach=%t", k.name, attach), func(t *testing.T) {
				n := newNode(t, attach)
				v, pod := n.newVolume(k, "pv-1"), newPod("a")
				n.attach(v)
				n.mountAndKill(v, pod, slowly("delay_exit", patience), func(int) bool { return len(mountsAt(t, v.dir(pod))) > 0 })
				calls := len(n.runner.made("mount"))
				n.must(n.mount(v, pod))
				again, bind := len(n.runner.made("mount")) != calls, k.name == directory().name
				if again != (bind && !seesBinds) {
					t.Errorf("the kubelet called mount again: %t, so this contract has changed", again)
				}
				v.checkMounted(v.dir(pod))
				n.writeFile(filepath.Join(v.dir(pod), "file"), "x")
				n.takeDown(v, pod)
			})
		}
	}
}

// TestDriverKilledBeforeTheMountLeavesNone: dir is no mount point, and with
// attach:false nothing else of the volume is left either.
func TestDriverKilledBeforeTheMountLeavesNone(t *testing.T) {
	need(t, "strace")
	for _, k := range []kind{imageExt4(), directory(), memory()} {
		t.Run(k.name, func(t *testing.T) {
			n := newNode(t, false)
			v, pod := n.newVolume(k, "pv-1"), newPod("a")
			n.attach(v)
			n.mountAndKill(v, pod, slowly("delay_enter", patience), inSyscall)
			checkFailedSetup(n, v, pod)
			n.must(n.mount(v, pod))
			v.checkMounted(v.dir(pod))
			n.takeDown(v, pod)
		})
	}
}
