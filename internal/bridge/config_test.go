package bridge_test

import (
	"os"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

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
