package contract

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// mountFUSE mounts a FUSE file system on dir with a server that never answers. After die
// the server is dead and every access fails with ENOTCONN.
func (n *node) mountFUSE(dir string) (die func()) {
	n.t.Helper()
	need(n.t, "fuse")
	n.must(os.MkdirAll(dir, 0o750))
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	n.must(err)
	server := os.NewFile(uintptr(fd), "/dev/fuse")
	die = func() { server.Close() } // twice does no harm
	n.t.Cleanup(die)
	n.must(unix.Mount("server", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV,
		fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)))
	return die
}

// TestUnmountRemovesADeadFUSEMount: the kubelet calls for it, and needs it to
// be gone: a path that it cannot examine keeps the pod Terminating for ever.
func TestUnmountRemovesADeadFUSEMount(t *testing.T) {
	forDisks(t, onlyAttached(), testUnmountOfDeadFUSE)
}

func testUnmountOfDeadFUSE(t *testing.T, n *node, v *vol) {
	a, b := newPod("a"), newPod("b")
	n.must(n.mount(v, a))
	for _, dir := range []string{v.dir(a), v.dir(b), v.deviceDir()} {
		n.mountFUSE(dir)()
		if _, err := os.Stat(dir); !errors.Is(err, unix.ENOTCONN) {
			t.Fatalf("stat of a dead FUSE mount: %v", err)
		}
	}
	// A set-up would not help: the kubelet looks with AT_STATX_DONT_SYNC, sees a
	// mount and takes it for done (mount-utils, mount_linux.go, statx). An old one
	// looks with stat, and fails. Neither calls.
	if err := n.mounter(v, b).SetUp(noArgs()); (err == nil) != takesDeadMounts || len(n.runner.made("mount")) != 1 {
		t.Errorf("set-up over a dead mount: %v, so this contract has changed", err)
	}
	for _, pod := range []*v1.Pod{a, b} {
		n.must(n.unmounter(v, pod).TearDown())
	}
	n.must(n.deviceUnmounter().UnmountDevice(v.deviceDir()))
	for _, dir := range []string{v.dir(a), v.dir(b), v.deviceDir()} {
		if exists(dir) {
			t.Errorf("%s is still there", dir)
		}
	}
	v.checkNotMounted()
	n.restart()
	n.must(n.mount(v, b))
	v.checkMounted(v.dir(b))
	n.takeDown(v, b)
}

// TestHungMountHangsNoOther: only the kubelet's own statfs of it hangs. Calls for other
// volumes go on, and unmount ends in bounded time, although the statfs that hangs makes
// the mount busy.
func TestHungMountHangsNoOther(t *testing.T) {
	// A mount that does not answer for half of the deadline is forced off.
	n := newNode(t, false, deadline("unmount", "8s"))
	v, w, a := n.newVolume(imageExt4(), "pv-1"), n.newVolume(memory(), "pv-2"), newPod("a")
	die := n.mountFUSE(v.dir(a))
	mounter, hung := n.mounter(v, a), make(chan error, 1)
	go func() {
		_, err := mounter.GetMetrics()
		hung <- err
	}()
	begin := time.Now()
	for _, pod := range []*v1.Pod{newPod("b"), newPod("c")} {
		for _, other := range []*vol{v, w} {
			n.must(n.mount(other, pod))
			n.writeFile(filepath.Join(other.dir(pod), "file"), "x")
			n.must(n.unmount(other, pod))
		}
	}
	if took := time.Since(begin); took > patience {
		t.Errorf("took %v with a hung mount", took)
	}
	select {
	case err := <-hung:
		t.Errorf("the kubelet's metrics did not hang (%v): the test has lost its grip", err)
	default:
	}
	// By hand: the kubelet looks at the directory before it calls, and hangs.
	begin = time.Now()
	if got := n.executeOne("unmount", v.dir(a)); got.Status != "Success" {
		t.Errorf("unmount of a hung mount answered %+v", got)
	}
	if took := time.Since(begin); took > 12*time.Second {
		t.Errorf("unmount of a hung mount took %v with a deadline of 8 s", took)
	}
	die() // should it hang still
	if err := <-hung; err == nil {
		t.Error("metrics of a dead mount")
	}
	n.must(n.unmounter(v, a).TearDown())
}

// TestUnmountOfAHungMountIsBounded: its server does not answer, and no process uses it.
func TestUnmountOfAHungMountIsBounded(t *testing.T) {
	n := newNode(t, false)
	v, a := n.newVolume(memory(), "pv-1"), newPod("a")
	die := n.mountFUSE(v.dir(a))
	begin := time.Now()
	if got := n.executeOne("unmount", v.dir(a)); got.Status != "Success" {
		t.Errorf("answered %+v", got)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
	if left := mountsAt(t, v.dir(a)); len(left) > 0 {
		t.Errorf("still mounted: %+v", left)
	}
	die()
	n.must(n.unmounter(v, a).TearDown())
}
