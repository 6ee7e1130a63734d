package bridge_test

import (
	"os"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// TestPodInfo: who the pod is says the kubelet, and not the volume's options.
func TestPodInfo(t *testing.T) {
	n := newNode(t)
	d := n.bridge.Drivers[flexDriver]
	d.PodInfo = true
	d.Map = func(o flex.Options) (*csivol.Volume, error) {
		v, err := mapOptions(o)
		v.Context = map[string]string{"share": "a", "csi.storage.k8s.io/pod.namespace": "of-another"}
		v.Pod = csivol.Pod{Name: "p1", Namespace: "own"}
		return v, err
	}
	n.succeed("mount", n.podDir("p1"), options)
	if got := n.driver.context; got["csi.storage.k8s.io/pod.namespace"] != "own" || got["share"] != "a" {
		t.Errorf("NodePublish got the context %v", got)
	}
}

// TestOtherCSIDriver: the configuration has another CSI driver for the same
// FlexVolume driver now, which may know another volume by the same handle.
func TestOtherCSIDriver(t *testing.T) {
	n := newNode(t)
	dir, device := n.podDir("p1"), n.deviceDir()
	if err := os.MkdirAll(device, 0o750); err != nil {
		t.Fatal(err)
	}
	n.succeed("attach", options, "node-1")
	n.succeed("mountdevice", device, "csi:h1", options)
	n.succeed("mount", dir, options)
	n.start("boot-1")
	d := n.bridge.Drivers[flexDriver]
	d.CSIDriver, d.Republish = "other.example.com", true
	n.bridge.Grace = 1
	n.driver.called()
	for _, args := range [][]string{{"unmount", dir}, {"unmountdevice", device}, {"detach", "pv1", "node-1"}, {"expandfs", options, "", dir, "2000", "1000"}} {
		if s := n.call(args...); s.Status != flex.StatusFailure || !strings.Contains(s.Message, "other.example.com") {
			t.Errorf("%s: %+v", args[0], s)
		}
	}
	n.die()
	n.reconcile()
	if got := n.driver.called(); got != "" {
		t.Errorf("the other driver was called: %s", got)
	}
	d.CSIDriver = "csi.example.com"
	n.succeed("unmount", dir)
	n.succeed("unmountdevice", device)
	n.succeed("detach", "pv1", "node-1")
	n.empty()
}
