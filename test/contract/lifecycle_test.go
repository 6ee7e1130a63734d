package contract

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestVolumeLivesFromAttachToDetach walks two pods and then a third through
// every kind of volume, with the operations of the kubelet.
func TestVolumeLivesFromAttachToDetach(t *testing.T) {
	for _, attach := range []bool{false, true} {
		for _, k := range append(kinds(), bridged()...) {
			t.Run(fmt.Sprintf("attach=%t/%s", attach, k.name), func(t *testing.T) {
				n := k.newNode(t, attach)
				testLife(t, n, n.newVolume(k, "pv-1"), attach)
			})
		}
	}
}

// TestForgottenLoopDeviceIsTakenOver: losetup on the image has left a loop device. No
// second one may be made, and none may be left in the end.
func TestForgottenLoopDeviceIsTakenOver(t *testing.T) {
	for _, attach := range []bool{false, true} {
		t.Run(fmt.Sprintf("attach=%t", attach), func(t *testing.T) {
			n := newNode(t, attach)
			v := n.newVolume(imageExt4(), "pv-1")
			image := v.pv.Spec.FlexVolume.Options["image"]
			n.must(os.WriteFile(image, nil, 0o600))
			n.must(os.Truncate(image, 64<<20))
			n.losetup(image)
			pod := newPod("a")
			n.attach(v)
			n.must(n.mount(v, pod))
			if loops := loopsBelow(t, image); len(loops) != 1 {
				t.Errorf("loop devices of one image: %v", loops)
			}
			n.takeDown(v, pod)
		})
	}
}

func testLife(t *testing.T, n *node, v *vol, attach bool) {
	a, b, c := newPod("a"), newPod("b"), newPod("c")
	n.attach(v)
	n.must(n.mount(v, a))
	v.checkMounted(v.dir(a))
	n.writeFile(filepath.Join(v.dir(a), "file"), "from a")
	n.must(n.mount(v, b))
	v.checkMounted(v.dir(b))
	if v.kind.shared {
		n.checkFile(filepath.Join(v.dir(b), "file"), "from a")
	}
	n.must(n.unmount(v, a))
	if exists(v.dir(a)) {
		t.Errorf("%s is still there", v.dir(a))
	}
	v.checkMounted(v.dir(b))
	n.writeFile(filepath.Join(v.dir(b), "file"), "from b")
	staged := len(mountsAt(t, v.deviceDir())) > 0
	n.takeDown(v, b)

	n.attach(v)
	n.must(n.mount(v, c))
	if v.kind.shared {
		n.checkFile(filepath.Join(v.dir(c), "file"), "from b")
	}
	n.takeDown(v, c)

	want := []string{"mount", "mount", "unmount", "unmount", "mount", "unmount"}
	if attach {
		want = []string{
			"attach", "waitforattach", "mountdevice", "mount", "waitforattach", "mount", "unmount", "unmount", "unmountdevice", "detach",
			"attach", "waitforattach", "mountdevice", "mount", "unmount", "unmountdevice", "detach",
		}
	}
	if !staged { // the kubelet does not call for a path that is no mount point
		want = slices.DeleteFunc(want, func(c string) bool { return c == "unmountdevice" })
	}
	// The bridge has a marker there.
	if staged != (attach && (v.kind.csi != nil || v.kind.name == deviceExt4().name)) {
		t.Errorf("mounted at the device mount path: %t", staged)
	}
	if got := n.runner.sequence(); !slices.Equal(got, want) {
		t.Errorf("Kubernetes called %q, want %q", got, want)
	}
}
