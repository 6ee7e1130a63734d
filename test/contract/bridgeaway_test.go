package contract

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// forMountedCSIDisk runs f on a disk of a CSI driver that pod "a" has, with a
// file on it.
func forMountedCSIDisk(t *testing.T, modes []bool, f func(t *testing.T, n *node, v *vol, a *v1.Pod)) {
	forKinds(t, []kind{csiExt4()}, modes, func(t *testing.T, n *node, v *vol) {
		a := newPod("a")
		n.must(n.mount(v, a))
		n.writeFile(v.dir(a)+"/file", "x")
		f(t, n, v, a)
	})
}

// TestCSIDriverIsAway, as it is while it is updated: a clear Failure, and all
// goes on when it is back.
func TestCSIDriverIsAway(t *testing.T) {
	forMountedCSIDisk(t, onlyAttached(), func(t *testing.T, n *node, v *vol, a *v1.Pod) {
		n.stopProgram(n.csiProcess, unix.SIGKILL)
		b := newPod("b")
		err := n.mount(v, b)
		if err == nil || !strings.Contains(err.Error(), n.csi.name) || !strings.Contains(err.Error(), "running") {
			t.Errorf("mount without the CSI driver: %v, want a message about it", err)
		}
		if err := n.unmount(v, a); err == nil {
			t.Error("unmounted without the CSI driver")
		}
		n.startCSIDriver()
		n.must(n.unmount(v, a))
		n.must(n.mount(v, b))
		n.checkFile(v.dir(b)+"/file", "x")
		n.takeDown(v, b)
	})
}

// TestFUSEDriverDiesUnderAPod: what the pod has is dead and can be taken away.
// Another pod is told to wait for that, and then has the whole volume.
func TestFUSEDriverDiesUnderAPod(t *testing.T) {
	forKinds(t, []kind{csiFUSE()}, bothModes(), func(t *testing.T, n *node, v *vol) {
		a, b, c := newPod("a"), newPod("b"), newPod("c")
		k := n.startKubelet(podVolume{a, v})
		eventually(t, "mounted", func() bool { return k.ready(a, v) })
		n.writeFile(v.dir(a)+"/file", "x")
		n.stopProgram(n.csiProcess, unix.SIGKILL)
		if _, err := os.ReadDir(v.dir(a)); !errors.Is(err, unix.ENOTCONN) {
			t.Errorf("a pod of a dead driver reads: %v", err)
		}
		n.startCSIDriver()
		k.add(b, v)
		eventually(t, "another pod is told", func() bool {
			mounts := n.runner.made("mount")
			return strings.Contains(mounts[len(mounts)-1].output, "delete these pods, and it is staged again: default/a")
		})
		k.remove(a, v)
		eventually(t, "the other pod has it", func() bool { return k.ready(b, v) })
		n.checkFile(v.dir(b)+"/file", "x")
		n.stopProgram(n.csiProcess, unix.SIGKILL)
		n.startCSIDriver()
		k.remove(b, v)
		eventually(t, "taken away", func() bool { return k.gone(b, v) })
		k.add(c, v)
		eventually(t, "the next pod has it", func() bool { return k.ready(c, v) })
		n.checkFile(v.dir(c)+"/file", "x")
		k.remove(c, v)
		eventually(t, "all is forgotten", k.idle)
		n.detach(v)
		v.checkNothingLeft()
	})
}

// TestDaemonIsAway: pods keep their volumes, new ones have to wait, and a pod
// can end: what flexdriver does by itself the daemon takes up when it is back.
func TestDaemonIsAway(t *testing.T) {
	forMountedCSIDisk(t, onlyAttached(), func(t *testing.T, n *node, v *vol, a *v1.Pod) {
		n.stopProgram(n.daemon, unix.SIGKILL)
		n.checkFile(v.dir(a)+"/file", "x")
		b := newPod("b")
		err := n.mount(v, b)
		if err == nil || !strings.Contains(err.Error(), "flex2csi") || strings.Contains(err.Error(), "\n") {
			t.Errorf("mount without the daemon: %v, want a message about it", err)
		}
		n.must(n.unmount(v, a))
		if exists(v.dir(a)) {
			t.Errorf("%s is still there", v.dir(a))
		}
		n.startDaemon()
		n.must(n.mount(v, b))
		n.checkFile(v.dir(b)+"/file", "x")
		n.takeDown(v, b)
	})
}

// TestLastPodEndsWhileTheDaemonIsAway: no call comes again, and all is undone.
func TestLastPodEndsWhileTheDaemonIsAway(t *testing.T) {
	forKinds(t, []kind{csiExt4()}, onlyDetached(), func(t *testing.T, n *node, v *vol) {
		a := newPod("a")
		n.must(n.mount(v, a))
		n.stopProgram(n.daemon, unix.SIGKILL)
		n.must(n.unmount(v, a))
		if len(n.csi.left(n)) == 0 {
			t.Error("the CSI driver has nothing any more: the test has lost its grip")
		}
		n.startDaemon()
		eventually(t, "the daemon has undone it", func() bool { return len(n.records())+len(n.csi.left(n)) == 0 })
		v.checkNothingLeft()
	})
}

// TestDaemonIsReplaced, twice in different ways, under a pod.
func TestDaemonIsReplaced(t *testing.T) {
	forMountedCSIDisk(t, bothModes(), func(t *testing.T, n *node, v *vol, a *v1.Pod) {
		for _, signal := range []unix.Signal{unix.SIGKILL, unix.SIGTERM} {
			n.stopProgram(n.daemon, signal)
			n.startDaemon()
			b := newPod("b")
			n.must(n.mount(v, b))
			n.checkFile(v.dir(b)+"/file", "x")
			n.must(n.unmount(v, b))
			v.checkMounted(v.dir(a))
		}
		n.takeDown(v, a)
	})
}

// TestCSIDriverIsFoundByItsRegistration, again after a restart, and is not told
// that its registration has failed.
func TestCSIDriverIsFoundByItsRegistration(t *testing.T) {
	k := csiExt4()
	args := k.csi.args
	k.csi.args = func(n *node) []string { return append(args(n), "--register", n.root) }
	k.csi.registers = true
	n := k.newNode(t, false)
	v := n.newVolume(k, "pv-1")
	for range 2 {
		n.must(n.mount(v, newPod("a")))
		n.takeDown(v, newPod("a"))
		n.stopProgram(n.csiProcess, unix.SIGKILL)
		n.startCSIDriver()
	}
}
