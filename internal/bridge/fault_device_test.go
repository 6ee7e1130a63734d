package bridge_test

import (
	"os"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// unclearDevice returns a node after the last pod of a volume with attach: true was
// removed. The kubelet's CSI plugin may have the volume.
func unclearDevice(t *testing.T) (n *node, file string) {
	n = newNode(t)
	n.succeed("attach", options, "node-1")
	if err := os.MkdirAll(n.deviceDir(), 0o750); err != nil {
		t.Fatal(err)
	}
	n.succeed("mountdevice", n.deviceDir(), "csi:h1", options)
	n.succeed("mount", n.podDir("p1"), options)
	file = n.takeOver()
	n.succeed("unmount", n.podDir("p1"))
	n.driver.called()
	return n, file
}

// refuses checks that unmountdevice fails, changes nothing, and is called again.
func (n *node) refuses(when string) {
	n.t.Helper()
	for range 2 {
		s := n.call("unmountdevice", n.deviceDir())
		if s.Status != flex.StatusFailure || s.Code != flex.CodeFailedPrecondition || !strings.Contains(s.Message, "CSI plugin") {
			n.t.Errorf("%s: unmountdevice: %+v", when, s)
		}
	}
	n.succeedNot("detach", "pv1", "node-1")
	n.expect(when, "")
	if !n.mounts.mounted[n.deviceDir()] {
		n.t.Errorf("%s: the marker is gone, and the kubelet will not call again", when)
	}
	if r := n.record(); r.Stage != volstate.Done || r.Attach != volstate.Done {
		n.t.Errorf("%s: %+v", when, r)
	}
}

// TestUnmountDeviceUnclear: a vol_data.json is next to the staging path, and no pod has
// the volume by it. unmountdevice answered Success, with the stage still there: the
// kubelet took the volume off volumesInUse, and the control plane detached the disk
// under a mounted filesystem.
func TestUnmountDeviceUnclear(t *testing.T) {
	t.Run("the plugin ends it", func(t *testing.T) {
		n, file := unclearDevice(t)
		n.refuses("unclear")
		n.kubeletUnstages(file)
		n.succeed("unmountdevice", n.deviceDir())
		n.expect("unstaged by the kubelet", "")
		n.succeed("detach", "pv1", "node-1")
		n.empty()
	})
	t.Run("the plugin has it for a pod", func(t *testing.T) {
		n, _ := unclearDevice(t)
		n.refuses("unclear")
		n.kubeletMounts("p2", "pv1")
		n.succeed("unmountdevice", n.deviceDir())
		n.succeed("detach", "pv1", "node-1")
		n.expect("handed over", "")
		if len(n.bridge.Records()) > 0 {
			t.Errorf("the record is left: %+v", n.record())
		}
	})
	t.Run("a pod has it before unmountdevice is called again", func(t *testing.T) {
		n, _ := unclearDevice(t)
		n.refuses("unclear")
		n.kubeletMounts("p2", "pv1")
		n.reconcile()
		n.succeed("unmountdevice", n.deviceDir())
		n.succeed("detach", "pv1", "node-1")
		n.expect("handed over", "")
		if len(n.bridge.Records()) > 0 {
			t.Errorf("the record is left: %+v", n.record())
		}
	})
	t.Run("it is a FlexVolume again", func(t *testing.T) {
		n, file := unclearDevice(t)
		n.refuses("unclear")
		n.succeed("mount", n.podDir("p3"), options)
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		n.succeed("unmount", n.podDir("p3"))
		n.succeed("unmountdevice", n.deviceDir())
		n.succeed("detach", "pv1", "node-1")
		n.empty()
	})
}

// TestUnmountDeviceStale: the file is from before a restart of the kubelet, which has
// forgotten it (kubernetes/kubernetes#85476). That does not keep the volume for ever.
func TestUnmountDeviceStale(t *testing.T) {
	for _, forgets := range []bool{false, true} { // the kubelet does not call unmountdevice again
		n, file := unclearDevice(t)
		n.refuses("unclear")
		n.later()
		n.reconcile()
		n.expect("after its time", "NodeUnstage")
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			t.Errorf("the file is left, and would be believed: %v", err)
		}
		if !forgets {
			n.succeed("unmountdevice", n.deviceDir())
		}
		n.reconcile()
		n.succeed("detach", "pv1", "node-1")
		n.expect("at last", "ControllerUnpublish")
		n.empty()
	}
}

// TestUnmountDeviceRestarted: the process ends while it is unclear.
func TestUnmountDeviceRestarted(t *testing.T) {
	n, _ := unclearDevice(t)
	n.refuses("unclear")
	n.start("boot-1")
	n.refuses("after a restart")
}

// TestUnmountDeviceNextPod: a pod is about to have it as a CSI volume. Detached now,
// it would have to be attached again, or go under NodeStageVolume of the plugin.
func TestUnmountDeviceNextPod(t *testing.T) {
	n := newNode(t)
	n.succeed("attach", options, "node-1")
	n.succeed("mountdevice", n.deviceDir(), "csi:h1", options)
	n.succeed("mount", n.podDir("p1"), options)
	n.succeed("unmount", n.podDir("p1"))
	n.driver.called()
	n.becomes(csivol.PVState{Replaced: "is the CSI volume by now", Next: "shop/web-2"})
	n.refuses("about to be taken over")
	n.takeOver()
	n.kubeletMounts("p2", "pv1")
	n.succeed("unmountdevice", n.deviceDir())
	n.expect("taken over", "")
}

// TestUnmountDeviceUnclearInCluster: the attachment is that of the control plane. It
// must be there for as long as the volume is staged.
func TestUnmountDeviceUnclearInCluster(t *testing.T) {
	n := newClusterNode(t)
	n.succeed("attach", options, "node-1")
	n.succeed("mountdevice", n.deviceDir(), "csi:h1", options)
	n.succeed("mount", n.podDir("p1"), options)
	n.takeOver()
	n.succeed("unmount", n.podDir("p1"))
	n.cluster.called()
	n.succeedNot("unmountdevice", n.deviceDir())
	n.succeedNot("detach", "pv1", "node-1")
	if got := n.cluster.called(); got != "" {
		t.Errorf("called %s while it is staged", got)
	}
}
