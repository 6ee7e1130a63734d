package bridge_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// where is where the driver is.
func where() *csivol.Endpoints {
	return &csivol.Endpoints{Node: "/run/node.sock", Controller: "/run/controller.sock"}
}

// withEndpoints returns a node with these endpoints of its driver.
func withEndpoints(t *testing.T) *node {
	n := newNode(t)
	n.bridge.Drivers.All[0].Endpoints = where()
	return n
}

// remove takes the driver out of the configuration.
func (n *node) remove() {
	n.t.Helper()
	n.removed = func(flexDriver, csiDriver string, at csivol.Endpoints) *bridge.FlexDriver {
		if at != *where() || csiDriver != "csi.example.com" {
			n.t.Errorf("asked for %s at %+v", csiDriver, at)
		}
		return &bridge.FlexDriver{Name: flexDriver, CSIDriver: csiDriver, Service: n.driver, Endpoints: &at}
	}
	n.start("boot-1")
	n.driver.called()
}

// TestRemovedDriver: a driver was taken out of the configuration while pods had its
// volumes. No pod could end, and no node be drained, until it was put back.
func TestRemovedDriver(t *testing.T) {
	n := withEndpoints(t)
	n.succeed("mount", n.podDir("p1"), options)
	n.succeed("mount", n.podDir("p2"), options)
	n.remove()
	for _, call := range [][]string{
		{"mount", n.podDir("p3"), options},
		{"attach", options, "node-1"},
		{"isattached", options, "node-1"},
		{"waitforattach", "csi:h1", options},
		{"mountdevice", n.deviceDir(), "csi:h1", options},
		{"expandfs", options, "", n.podDir("p1"), "2000", "1000"},
		{"expandvolume", options, "", "2000", "1000"},
	} {
		if s := n.call(call...); s.Status != flex.StatusFailure || !strings.Contains(s.Message, "has no driver "+flexDriver) {
			t.Errorf("%s: %+v", call[0], s)
		}
	}
	n.expect("nothing is set up", "")
	n.succeed("unmount", n.podDir("p1"))
	n.succeed("unmount", n.podDir("p2"))
	n.expect("ended", "NodeUnpublish NodeUnpublish NodeUnstage ControllerUnpublish")
	n.succeed("unmount", n.podDir("p2")) // the kubelet has not heard it
	n.empty()
	n.mounts.set(n.podDir("p4"), true)
	n.succeedNot("unmount", n.podDir("p4"))
	n.succeedNot("unmountdevice", n.podDir("p4"))
}

// TestRemovedDriverDevice is that with attach: true.
func TestRemovedDriverDevice(t *testing.T) {
	n := withEndpoints(t)
	n.succeed("attach", options, "node-1")
	n.succeed("mountdevice", n.deviceDir(), "csi:h1", options)
	n.succeed("mount", n.podDir("p1"), options)
	n.remove()
	n.succeed("unmount", n.podDir("p1"))
	n.succeed("unmountdevice", n.deviceDir())
	n.succeed("detach", "pv1", "node-1")
	n.succeed("detach", "pv1", "node-1")
	n.empty()
}

// TestRemovedDriverReconciles: what no pod wants is undone, and nothing is repaired
// without what the configuration said.
func TestRemovedDriverReconciles(t *testing.T) {
	n := withEndpoints(t)
	n.succeed("mount", n.podDir("p1"), options)
	if err := os.MkdirAll(n.podDir("p1"), 0o750); err != nil {
		t.Fatal(err)
	}
	n.remove()
	n.die()
	n.reconcile()
	n.expect("dead", "")
	if err := os.RemoveAll(filepath.Join(n.dir, "pods/p1")); err != nil {
		t.Fatal(err)
	}
	n.age()
	n.reconcile()
	n.expect("the pod is gone", "NodeUnpublish NodeUnstage ControllerUnpublish")
	n.empty()
}

// TestRemovedDriverUnknown: where the record does not say where the driver was, or may
// not say all that was done, it has to be put back.
func TestRemovedDriverUnknown(t *testing.T) {
	for _, recovered := range []bool{false, true} {
		n := withEndpoints(t)
		if !recovered {
			n.bridge.Drivers.All[0].Endpoints = nil
		}
		n.succeed("mount", n.podDir("p1"), options)
		if recovered {
			files, _ := filepath.Glob(filepath.Join(n.dir, "state/*.json"))
			if err := errors.Join(os.Remove(files[0]), os.WriteFile(files[0], nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			n.mayBeBroken = true
		}
		n.remove()
		if s := n.call("unmount", n.podDir("p1")); s.Status != flex.StatusFailure || !strings.Contains(s.Message, "put it back") {
			t.Errorf("%+v", s)
		}
		n.expect("it is not known", "")
	}
}

// TestRemovedDriverReplaced: the configuration has another CSI driver for the
// FlexVolume driver, which does not know the volume.
func TestRemovedDriverReplaced(t *testing.T) {
	n := withEndpoints(t)
	n.succeed("mount", n.podDir("p1"), options)
	n.remove()
	other := newFakeDriver(n.mounts)
	n.bridge.Drivers.All = []*bridge.FlexDriver{{Name: flexDriver, CSIDriver: "other.example.com", Service: other, Map: mapOptions}}
	n.succeed("unmount", n.podDir("p1"))
	if got := other.called(); got != "" {
		t.Errorf("the other driver was called: %s", got)
	}
	n.empty()
}

// TestEndpointsOfOldRecords: a record gets them from the configuration with its next
// write, and follows it.
func TestEndpointsOfOldRecords(t *testing.T) {
	n := newNode(t)
	n.succeed("mount", n.podDir("p1"), options)
	if at := n.record().Endpoints; at != nil {
		t.Fatalf("%+v", at)
	}
	records, _, err := n.store.Load()
	if err != nil {
		t.Fatal(err)
	}
	n.bridge.Drivers.All[0].Endpoints = where()
	n.bridge.Restore(records)
	n.succeed("mount", n.podDir("p2"), options)
	if records, _, err = n.store.Load(); err != nil || len(records) != 1 || *records[0].Endpoints != *where() {
		t.Errorf("%+v, %v", records, err)
	}
	n.remove()
	n.succeed("unmount", n.podDir("p1"))
	n.succeed("unmount", n.podDir("p2"))
	n.empty()
}
