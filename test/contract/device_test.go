package contract

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/util/operationexecutor"
)

// TestUnmountDeviceIsRefusedOnlyWhileAPodHasTheVolume: the kubelet looks for
// other mounts of the same file system, so what is at the device mount path
// must not share one with anything but the pods' mounts.
func TestUnmountDeviceIsRefusedOnlyWhileAPodHasTheVolume(t *testing.T) {
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			n := newNode(t, true)
			v, a, b := n.newVolume(k, "pv-1"), newPod("a"), newPod("b")
			n.attach(v)
			n.must(n.mount(v, a))
			n.must(n.mount(v, b))
			n.must(n.unmount(v, a))
			if staged := len(mountsAt(t, v.deviceDir())) > 0; staged {
				if err := n.unmountDevice(v); err == nil {
					t.Error("unmounted the device under a pod")
				}
				if len(n.runner.made("unmountdevice")) != 0 {
					t.Error("the kubelet did not refuse by itself, so this contract has changed")
				}
			}
			v.checkMounted(v.dir(b))
			n.takeDown(v, b)
			if exists(v.deviceDir()) {
				t.Errorf("%s is still there", v.deviceDir())
			}
		})
	}
}

// TestTwoVolumesInOneImageDirectoryDoNotRefuseEachOther: volumes that lie side
// by side on one file system of the host are not references of each other.
func TestTwoVolumesInOneImageDirectoryDoNotRefuseEachOther(t *testing.T) {
	n := newNode(t, true)
	pod := newPod("a")
	volumes := []*vol{n.newVolume(imageExt4(), "pv-1"), n.newVolume(imageExt4(), "pv-2"), n.newVolume(directory(), "pv-3"), n.newVolume(directory(), "pv-4")}
	for _, v := range volumes {
		n.attach(v)
		n.must(n.mount(v, pod))
	}
	for _, v := range volumes {
		n.must(n.unmount(v, pod))
		n.must(n.unmountDevice(v))
	}
	n.detach(volumes[0])
	volumes[0].checkNothingLeft()
}

// TestUnmountDeviceThatFailsIsCalledAgain: the device stays uncertain until it
// succeeds, and mounting it again in between is possible.
func TestUnmountDeviceThatFailsIsCalledAgain(t *testing.T) {
	need(t, "strace")
	n := newNode(t, true)
	v, a, b := n.newVolume(deviceExt4(), "pv-1"), newPod("a"), newPod("b")
	n.attach(v)
	n.must(n.mount(v, a))
	n.must(n.unmount(v, a))
	trace := filepath.Join(n.work, "trace")
	n.runner.wrapped("unmountdevice", failing(trace, "umount2", "EIO", ""), func() {
		if err := n.unmountDevice(v); err == nil {
			t.Error("unmountdevice succeeded though every unmount failed")
		}
	})
	if got := n.asw.GetDeviceMountState(v.uniqueName(nil)); got != operationexecutor.DeviceMountUncertain {
		t.Errorf("device state %s", got)
	}
	n.must(n.mount(v, b))
	n.writeFile(filepath.Join(v.dir(b), "file"), "x")
	n.takeDown(v, b)
}

// TestUnmountDeviceByHand is safe for paths that are no mounts and not there:
// the kubelet does not call for them, a person may.
func TestUnmountDeviceByHand(t *testing.T) {
	forDisks(t, onlyAttached(), testUnmountDeviceByHand)
}

func testUnmountDeviceByHand(t *testing.T, n *node, v *vol) {
	if a := n.executeOne("unmountdevice", v.deviceDir()); a.Status != "Success" {
		t.Errorf("path that is not there: %+v", a)
	}
	n.must(os.MkdirAll(v.deviceDir(), 0o750))
	n.writeFile(filepath.Join(v.deviceDir(), "precious"), "x")
	if a := n.executeOne("unmountdevice", v.deviceDir()); a.Status != "Success" {
		t.Errorf("path that is no mount point: %+v", a)
	}
	n.checkFile(filepath.Join(v.deviceDir(), "precious"), "x")
	n.detach(v)
}

// TestStagedVolumeOutlivesAKubeletRestart: a new plugin object and a spec
// without options still find the mount, do not call again, and end it.
func TestStagedVolumeOutlivesAKubeletRestart(t *testing.T) {
	forDisks(t, onlyAttached(), testStagedOutlivesRestart)
}

func testStagedOutlivesRestart(t *testing.T, n *node, v *vol) {
	a, b := newPod("a"), newPod("b")
	n.must(n.mount(v, a))
	n.writeFile(filepath.Join(v.dir(a), "file"), "x")
	n.restart()
	k := n.startKubelet(podVolume{a, v})
	eventually(t, "the kubelet knows the volume again", func() bool { return k.ready(a, v) })
	k.add(b, v)
	eventually(t, "a second pod has it", func() bool { return k.ready(b, v) })
	n.checkFile(filepath.Join(v.dir(b), "file"), "x")
	if got := len(n.runner.made("mountdevice")); got != 1 {
		t.Errorf("%d calls of mountdevice, want 1", got)
	}
	k.remove(a, v)
	k.remove(b, v)
	eventually(t, "all is forgotten", k.idle)
	n.detach(v)
	v.checkNothingLeft()
}

// TestDeviceForgottenByARestartIsTakenUpAgain: between the last unmount and
// unmountdevice nothing below pods/ remembers the volume, so that a kubelet
// that restarts there forgets it. Nothing is wrong with the next pod.
func TestDeviceForgottenByARestartIsTakenUpAgain(t *testing.T) {
	forDisks(t, onlyAttached(), testDeviceForgotten)
}

func testDeviceForgotten(t *testing.T, n *node, v *vol) {
	a, b := newPod("a"), newPod("b")
	n.must(n.mount(v, a))
	n.writeFile(filepath.Join(v.dir(a), "file"), "x")
	n.must(n.unmount(v, a))
	n.restart()
	k := n.startKubelet()
	k.add(b, v)
	eventually(t, "the next pod has it", func() bool { return k.ready(b, v) })
	n.checkFile(filepath.Join(v.dir(b), "file"), "x")
	k.remove(b, v)
	eventually(t, "all is forgotten", k.idle)
	n.detach(v)
	v.checkNothingLeft()
	if got := len(n.runner.made("unmountdevice")); got != 1 {
		t.Errorf("%d calls of unmountdevice, want the one of the second pod", got)
	}
}

// TestDeviceMountedElsewhereIsKept: an administrator has bound the volume
// somewhere. The kubelet refuses unmountdevice until that is gone, and the driver
// gives the volume to no other pod: a disk that the node uses is not shared.
func TestDeviceMountedElsewhereIsKept(t *testing.T) {
	n := newNode(t, true)
	v, a := n.newVolume(deviceExt4(), "pv-1"), newPod("a")
	n.attach(v)
	n.must(n.mount(v, a))
	n.writeFile(filepath.Join(v.dir(a), "file"), "x")
	elsewhere := filepath.Join(n.work, "elsewhere")
	n.must(os.Mkdir(elsewhere, 0o755))
	n.must(unix.Mount(v.deviceDir(), elsewhere, "", unix.MS_BIND, ""))
	n.must(n.unmount(v, a))
	if err := n.unmountDevice(v); err == nil {
		t.Error("unmounted the device though it is mounted elsewhere")
	}
	if err := n.mount(v, newPod("b")); err == nil || !strings.Contains(err.Error(), "mounted at "+elsewhere) {
		t.Errorf("a second pod: %v, want a message about %s", err, elsewhere)
	}
	n.must(unix.Unmount(elsewhere, 0))
	n.must(n.mount(v, newPod("b")))
	n.checkFile(filepath.Join(v.dir(newPod("b")), "file"), "x")
	n.takeDown(v, newPod("b"))
}

// TestControllerNeedsNothingOfTheNode: attach, isattached and detach run in the
// controller manager's container, which has neither programs nor /proc.
func TestControllerNeedsNothingOfTheNode(t *testing.T) {
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			n := newNode(t, true)
			v := n.newVolume(k, "pv-1")
			before := fmt.Sprint(loopsBelow(t, n.work))
			for _, command := range []string{"attach", "isattached", "detach"} {
				n.runner.wrapped(command, inRole("empty-root"), func() { n.controllerCall(v, command) })
				if a := n.runner.last(t, command).answer(t); a.Status != "Success" {
					t.Errorf("%s: %+v", command, a)
				}
			}
			if after := fmt.Sprint(loopsBelow(t, n.work)); after != before {
				t.Errorf("loop devices before %s, after %s", before, after)
			}
			if image := v.pv.Spec.FlexVolume.Options["image"]; image != "" && exists(image) {
				t.Error("the controller created an image")
			}
		})
	}
}

// controllerCall makes the controller's call of one command and expects
// success and, of isattached, that the volume is attached.
func (n *node) controllerCall(v *vol, command string) {
	n.t.Helper()
	switch command {
	case "attach":
		_, err := n.attacher().Attach(v.spec, nodeName)
		n.must(err)
	case "isattached":
		n.checkAttached(v)
	case "detach":
		n.must(n.detacher().Detach(v.spec.Name(), nodeName))
	}
}

// checkAttached asks as kube-controller-manager does every minute. It takes a
// Success without "attached":true for "detached" and attaches again.
func (n *node) checkAttached(v *vol) {
	n.t.Helper()
	attached, err := n.attacher().VolumesAreAttached([]*volume.Spec{v.spec}, nodeName)
	n.must(err)
	if !attached[v.spec] {
		n.t.Errorf("isattached says no: %s", n.runner.last(n.t, "isattached").output)
	}
	if a := n.runner.last(n.t, "isattached").answer(n.t); a.Attached == nil {
		n.t.Error("isattached does not say whether the volume is attached")
	}
}
