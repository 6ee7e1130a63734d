package contract

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"k8s.io/kubernetes/pkg/volume/util/operationexecutor"
)

// TestUnmountThatFailsIsCalledAgain: a failed tear-down, unlike a failed
// set-up, is remembered as uncertain and repeated.
func TestUnmountThatFailsIsCalledAgain(t *testing.T) {
	for _, attach := range []bool{false, true} {
		n := newNode(t, attach)
		v, pod := n.newVolume(imageExt4(), "pv-1"), newPod("a")
		n.attach(v)
		n.must(n.mount(v, pod))
		n.failUnmount(func() error { return n.unmount(v, pod) })
		n.checkVolumeState(v, pod, operationexecutor.VolumeMountUncertain)
		v.checkMounted(v.dir(pod))
		n.takeDown(v, pod)
		n.checkVolumeState(v, pod, operationexecutor.VolumeNotMounted)
	}
}

// failUnmount lets f call unmount while the kernel refuses to.
func (n *node) failUnmount(f func() error) {
	n.t.Helper()
	need(n.t, "strace")
	trace := filepath.Join(n.work, "trace")
	var err error
	n.runner.wrapped("unmount", failing(trace, "umount2", "EIO", ""), func() { err = f() })
	if err == nil || n.injected(trace) == 0 {
		n.t.Fatalf("unmount returned %v though %d unmounts failed", err, n.injected(trace))
	}
	if a := n.runner.last(n.t, "unmount").answer(n.t); a.Status != "Failure" {
		n.t.Errorf("answered %+v", a)
	}
}

// TestUnmountOfABusyVolume: a process that holds a file is what users see as a
// pod that does not end. Failure while it is held, Success after.
func TestUnmountOfABusyVolume(t *testing.T) {
	forDisks(t, onlyDetached(), testUnmountBusy)
}

func testUnmountBusy(t *testing.T, n *node, v *vol) {
	pod := newPod("a")
	n.must(n.mount(v, pod))
	held, err := os.Create(filepath.Join(v.dir(pod), "held"))
	n.must(err)
	defer held.Close()
	if err := n.unmount(v, pod); err == nil {
		t.Error("unmounted under an open file")
	}
	n.checkVolumeState(v, pod, operationexecutor.VolumeMountUncertain)
	v.checkMounted(v.dir(pod))
	n.must(held.Close())
	n.takeDown(v, pod)
}

// TestMountAfterAFailedUnmountIsDoneAlready: the pod came back; the kubelet
// finds the mount and does not call, so it has to be whole.
func TestMountAfterAFailedUnmountIsDoneAlready(t *testing.T) {
	n := newNode(t, false)
	v, pod := n.newVolume(imageExt4(), "pv-1"), newPod("a")
	n.must(n.mount(v, pod))
	n.writeFile(filepath.Join(v.dir(pod), "file"), "x")
	n.failUnmount(func() error { return n.unmount(v, pod) })
	n.must(n.mount(v, pod))
	n.checkVolumeState(v, pod, operationexecutor.VolumeMounted)
	n.checkFile(filepath.Join(v.dir(pod), "file"), "x")
	if calls := n.runner.made("mount"); len(calls) != 1 {
		t.Errorf("%d calls of mount, so this contract has changed", len(calls))
	}
	n.takeDown(v, pod)
}

// TestUnmountOfWhatIsNotMountedSucceeds: after a reboot, a crash or a call that
// was answered twice the kubelet still calls unmount for the directory.
func TestUnmountOfWhatIsNotMountedSucceeds(t *testing.T) {
	forDisks(t, onlyDetached(), testUnmountOfNothing)
}

func testUnmountOfNothing(t *testing.T, n *node, v *vol) {
	pod := newPod("a")
	for range 2 { // never mounted
		n.must(os.MkdirAll(v.dir(pod), 0o750))
		n.must(n.unmounter(v, pod).TearDown())
		if exists(v.dir(pod)) {
			t.Errorf("%s is still there", v.dir(pod))
		}
	}
	n.must(n.mount(v, pod)) // unmounted twice
	n.must(n.unmounter(v, pod).TearDown())
	n.must(os.MkdirAll(v.dir(pod), 0o750))
	n.must(n.unmounter(v, pod).TearDown())
	v.checkNothingLeft()
	// By hand, because the kubelet does not call for a path that is not there.
	if a := n.executeOne("unmount", filepath.Join(n.podsDir(), "uid-x/volumes", driverDir, "pv-x")); a.Status != "Success" {
		t.Errorf("unmount of a path that does not exist: %+v", a)
	}
}

// TestUnmountNeverTouchesFilesInAPlainDirectory: they may be data,
// written while nothing was mounted. The kubelet's rmdir fails, visibly.
func TestUnmountNeverTouchesFilesInAPlainDirectory(t *testing.T) {
	forDisks(t, onlyDetached(), testUnmountOfPlainDirectory)
}

func testUnmountOfPlainDirectory(t *testing.T, n *node, v *vol) {
	pod := newPod("a")
	file := filepath.Join(v.dir(pod), "precious")
	n.must(os.MkdirAll(v.dir(pod), 0o750))
	n.writeFile(file, "x")
	if err := n.unmounter(v, pod).TearDown(); err == nil {
		t.Error("the kubelet removed a directory with a file in it")
	}
	if a := n.runner.last(t, "unmount").answer(t); a.Status != "Success" {
		t.Errorf("answered %+v", a)
	}
	n.checkFile(file, "x")
}

// TestUnmountRemovesStackedMounts: whatever lies on top, the kubelet's rmdir
// needs a plain directory.
func TestUnmountRemovesStackedMounts(t *testing.T) {
	forDisks(t, onlyDetached(), testUnmountOfStack)
}

func testUnmountOfStack(t *testing.T, n *node, v *vol) {
	pod := newPod("a")
	n.must(n.mount(v, pod))
	n.mountTmpfs(v.dir(pod), "size=4k")
	n.mountTmpfs(v.dir(pod), "size=4k")
	n.takeDown(v, pod)
}

// TestPodDeletedWhileItsVolumeIsMounted: the executor lets the mount end first
// and then unmounts; nothing is left of either.
func TestPodDeletedWhileItsVolumeIsMounted(t *testing.T) {
	need(t, "strace")
	n := newNode(t, false)
	k := n.startKubelet()
	v, pod := n.newVolume(imageExt4(), "pv-1"), newPod("a")
	n.runner.wrapped("mount", slowly("delay_enter", 500*time.Millisecond), func() {
		k.add(pod, v)
		eventually(t, "mount runs", func() bool { return slices.ContainsFunc(n.drivers(), inSyscall) })
		k.remove(pod, v)
		eventually(t, "unmounted", func() bool { return len(n.runner.made("unmount")) == 1 && k.gone(pod, v) })
	})
	mounts, unmounts := n.runner.made("mount"), n.runner.made("unmount")
	if len(mounts) != 1 || unmounts[0].start.Before(mounts[0].end) {
		t.Errorf("%d mounts, unmount began %v after the end of mount", len(mounts), unmounts[0].start.Sub(mounts[0].end))
	}
	v.checkNothingLeft()
}
