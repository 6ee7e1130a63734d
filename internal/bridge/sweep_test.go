package bridge_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

func (n *clusterNode) sweep() {
	n.t.Helper()
	if err := n.bridge.Sweep(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
	n.wait()
}

// forget loses all records.
func (n *clusterNode) forget() {
	n.t.Helper()
	if err := os.RemoveAll(filepath.Join(n.dir, "state")); err != nil {
		n.t.Fatal(err)
	}
	n.start("boot-1")
}

// orphan is an attachment of which no record knows.
func (n *clusterNode) orphan(node, driver string) {
	n.cluster.request(objectName+node+driver, &csivol.Attachment{Driver: "csi.example.com", Handle: "h1", Node: node, FlexDriver: driver, Name: "pv1"}, true)
}

// TestSweep: an attachment without a record is detached, unless the node still has the volume.
func TestSweep(t *testing.T) {
	n := newClusterNode(t)
	n.succeed("mount", n.podDir("p1"), options)
	n.sweep()
	if got, want := n.cluster.called(), "Attach"; got != want {
		t.Errorf("what a record knows of: called %s, want %s", got, want)
	}
	n.forget()
	n.sweep()
	if got := n.cluster.called(); got != "" {
		t.Errorf("what a pod has, and no record: called %s", got)
	}
	n.succeed("unmount", n.podDir("p1"))
	n.driver.staged = map[string]string{} // an operator has cleaned up
	clear(n.mounts.mounted)
	if err := os.RemoveAll(filepath.Join(n.dir, "pods")); err != nil {
		t.Fatal(err)
	}
	n.sweep()
	if got, want := n.cluster.called(), "Detach"; got != want {
		t.Errorf("an attachment without a record: called %s, want %s", got, want)
	}
	delete(n.driver.published, n.dir)
	clear(n.driver.published)
	n.empty()
}

// TestSweepSpares: what is not this node's, or of a driver that is not served.
func TestSweepSpares(t *testing.T) {
	n := newClusterNode(t)
	n.orphan("node-2", flexDriver)
	n.orphan("node-1", "example.com/other")
	n.sweep()
	if got := n.cluster.called(); got != "" {
		t.Errorf("called %s", got)
	}
}

// TestSweepMigrated: when the last FlexVolume of a migrated volume is gone its
// attachment still has our labels, and is the control plane's. For as long as a CSI
// pod had it there was a warning with each sweep, also when the configuration did
// not have the driver any more.
func TestSweepMigrated(t *testing.T) {
	for _, stages := range []bool{false, true} {
		n := newClusterNode(t)
		var log bytes.Buffer
		n.bridge.Log = slog.New(slog.NewTextHandler(&log, nil))
		n.orphan("node-1", flexDriver)
		n.orphan("node-1", "example.com/other")
		n.kubeletMounts("p1", "pv1")
		if stages {
			n.mounts.set(filepath.Join(filepath.Dir(n.takeOver()), "globalmount"), true)
		}
		n.sweep()
		if got := n.cluster.called(); got != "" || log.Len() > 0 {
			t.Errorf("stages %t: called %q, and logged %s", stages, got, &log)
		}
	}
}

// TestSweepAdopts: a record of a volume in use that does not know of its
// attachment, since it is not the last one that was written.
func TestSweepAdopts(t *testing.T) {
	n := newClusterNode(t)
	n.succeed("mount", n.podDir("p1"), options)
	n.cluster.called()
	n.node.rewrite(func(r *volstate.Record) { r.Attach, r.Attachment, r.Object = volstate.None, "", "" })
	n.configure()
	n.sweep()
	n.settle()
	if r := n.record(); r.Attach != volstate.Done || r.Object != objectName {
		t.Errorf("%+v", r)
	}
	n.succeed("unmount", n.podDir("p1"))
	n.empty()
}

// TestRecreatedNode (finding N12): a node that is re-created under its name finds the
// VolumeAttachment of the machine before it. The first mount used that one if it came
// before the sweep: nothing is attached to this machine.
func TestRecreatedNode(t *testing.T) {
	for _, crash := range []bool{false, true} {
		n := newClusterNode(t)
		n.succeed("mount", n.podDir("p1"), options)
		n.driver.staged, n.driver.published = map[string]string{}, map[string]string{}
		clear(n.mounts.mounted)
		for _, dir := range []string{"pods", "state", "plugins"} {
			if err := os.RemoveAll(filepath.Join(n.dir, dir)); err != nil {
				t.Fatal(err)
			}
		}
		n.start("boot-2")
		if crash { // after the record, before the request: the next process knows as much
			n.cluster.set(func() { n.cluster.fail["Attach"] = []error{flex.Errorf(flex.CodeUnavailable, "no answer")} })
			n.fail("no answer", "mount", n.podDir("p1"), options)
			n.start("boot-2")
		}
		n.succeed("mount", n.podDir("p1"), options)
		if n.cluster.replaced != 1 {
			t.Errorf("after a crash: %t; the old attachment was replaced %d times", crash, n.cluster.replaced)
		}
		n.start("boot-3") // it is ours now
		clear(n.mounts.mounted)
		n.succeed("mount", n.podDir("p1"), options)
		if n.cluster.replaced != 1 {
			t.Errorf("after a reboot: replaced %d times", n.cluster.replaced)
		}
		n.succeed("unmount", n.podDir("p1"))
		n.empty()
	}
}

// TestLostRecordKeepsAttachment: what is staged here was attached here, and must not be
// detached under the pods that have it.
func TestLostRecordKeepsAttachment(t *testing.T) {
	n := newClusterNode(t)
	n.succeed("mount", n.podDir("p1"), options)
	n.forget()
	n.succeed("mount", n.podDir("p2"), options)
	if n.cluster.replaced != 0 {
		t.Error("detached under a stage")
	}
}
