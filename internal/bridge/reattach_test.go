package bridge_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// TestLostAttachment: pods have the volume, and an operator deletes the VolumeAttachment.
func TestLostAttachment(t *testing.T) {
	for _, changed := range []bool{false, true} {
		n := newClusterNode(t)
		dir := n.podDir("p1")
		n.succeed("mount", dir, options)
		n.cluster.called()
		n.settle()
		if got := n.cluster.called(); got != "" {
			t.Errorf("nothing is lost, and %s was called", got)
		}
		n.cluster.lose()
		if s := n.bridge.Status(); !s[0].AttachmentLost {
			t.Errorf("the status does not tell: %+v", s[0])
		}
		if changed {
			n.cluster.context = map[string]string{"device": "other"}
		}
		n.settle()
		if got, want := n.cluster.called(), "Attach"; got != want {
			t.Errorf("the reconciler called %s, want %s", got, want)
		}
		if r := n.record(); r.Attach != volstate.Done || !maps.Equal(r.PublishContext, n.cluster.context) {
			t.Errorf("%+v", r)
		}
		var reasons []string
		for _, notice := range n.notices {
			reasons = append(reasons, notice.Reason+" "+notice.PersistentVolume)
		}
		want := "VolumeAttachmentLost pv1"
		if changed {
			want += ", VolumeAttachmentChanged pv1"
		}
		if got := strings.Join(reasons, ", "); got != want {
			t.Errorf("notices %s, want %s", got, want)
		}
		n.succeed("unmount", dir)
		n.empty()
	}
}

// TestLostAttachmentOfAnotherPod: the next mount does not trust the record.
func TestLostAttachmentOfAnotherPod(t *testing.T) {
	n := newClusterNode(t)
	n.succeed("mount", n.podDir("p1"), options)
	n.cluster.lose()
	n.cluster.called()
	n.succeed("mount", n.podDir("p2"), options)
	if got, want := n.cluster.called(), "Attach"; got != want {
		t.Errorf("mount called %s, want %s", got, want)
	}
	n.succeed("unmount", n.podDir("p1"))
	n.succeed("unmount", n.podDir("p2"))
	n.empty()
}

// TestReattachmentUncertain: the process was killed while it asked again.
func TestReattachmentUncertain(t *testing.T) {
	n := newClusterNode(t)
	n.succeed("mount", n.podDir("p1"), options)
	n.cluster.lose()
	n.cluster.set(func() {
		n.cluster.fail["Attach"] = []error{flex.Errorf(flex.CodeUnavailable, "no API server")}
	})
	n.bridge.Reconcile(t.Context())
	n.wait()
	if r := n.record(); r.Attach != volstate.Doing {
		t.Fatalf("%+v", r)
	}
	n.start("boot-1")
	n.settle()
	if r := n.record(); r.Attach != volstate.Done {
		t.Errorf("%+v", r)
	}
	n.succeed("unmount", n.podDir("p1"))
	n.empty()
}

// TestReattachmentWithSecrets: what the record does not hold is asked for with
// nothing in its place.
func TestReattachmentWithSecrets(t *testing.T) {
	n := newClusterNode(t)
	listen(n.node)
	n.succeed("mount", n.podDir("p1"), secretOptions("canary", "//a/b"))
	n.start("boot-1")
	n.driver.inCluster = true
	listen(n.node)
	n.cluster.lose()
	n.cluster.called()
	n.settle()
	if got := n.cluster.called(); got != "" {
		t.Errorf("called %s with what a file holds", got)
	}
	n.succeed("mount", n.podDir("p2"), secretOptions("canary", "//a/b"))
	if got := n.cluster.asked[len(n.cluster.asked)-1].Context["accountKey"]; got != "canary" {
		t.Errorf("asked with the key %q", got)
	}
	n.succeed("unmount", n.podDir("p1"))
	n.succeed("unmount", n.podDir("p2"))
	n.empty()
}

// TestRebootInCluster: while the node was down its volume may have been detached and
// attached again.
func TestRebootInCluster(t *testing.T) {
	n := newClusterNode(t)
	dir := n.podDir("p1")
	n.succeed("mount", dir, options)
	clear(n.mounts.mounted)
	clear(n.driver.staged)
	clear(n.driver.published)
	n.cluster.context = map[string]string{"device": "other"}
	n.start("boot-2")
	n.cluster.called()
	n.succeed("mount", dir, options)
	if got, want := n.cluster.called(), "Attach"; got != want {
		t.Errorf("after a reboot called %s, want %s", got, want)
	}
	if got := n.record().PublishContext["device"]; got != "other" {
		t.Errorf("the device is %s", got)
	}
	n.succeed("unmount", dir)
	n.empty()
}

// TestForeignAttachment: an unmanaged VolumeAttachment is used, and not deleted.
func TestForeignAttachment(t *testing.T) {
	n := newClusterNode(t)
	n.cluster.request(objectName, &csivol.Attachment{Driver: "csi.example.com", Handle: "h1", Node: "node-1"}, false)
	dir := n.podDir("p1")
	n.succeed("mount", dir, options)
	if !n.record().Unmanaged {
		t.Error("the record takes it for ours")
	}
	n.succeed("unmount", dir)
	if got, want := n.cluster.called(), "Attach"; got != want {
		t.Errorf("called %s, want %s", got, want)
	}
	// Deleted meanwhile, and asked for again, it is ours.
	n.succeed("mount", dir, options)
	n.cluster.lose()
	n.settle()
	if n.record().Unmanaged {
		t.Error("the record takes ours for another's")
	}
	n.succeed("unmount", dir)
	n.empty()
}

// TestRenamedNode (finding N11): the name of the VolumeAttachment came from today's name of
// the node, not from the record. So unmount succeeded, the record was removed, and the
// volume stayed attached.
func TestRenamedNode(t *testing.T) {
	n := newClusterNode(t)
	n.succeed("mount", n.podDir("p1"), options)
	n.start("boot-1")
	n.bridge.NodeName = "node-new"
	n.cluster.called()
	n.fail("earlier name", "mount", n.podDir("p2"), options) // or the volume is detached under it, with the Node of that name
	n.succeed("unmount", n.podDir("p2"))
	n.settle()
	if got := n.cluster.called(); got != "" {
		t.Errorf("while a pod has the volume: called %s", got)
	}
	n.cluster.set(func() {
		n.cluster.fail["Detach"] = []error{flex.Errorf(flex.CodePermissionDenied, "the policy denies it")}
	})
	n.succeed("unmount", n.podDir("p1"))
	n.wait()
	n.cluster.called()
	n.settle()
	if left := n.cluster.left(); left != "[] []" {
		t.Errorf("left: %s", left)
	}
	n.succeed("mount", n.podDir("p2"), options)
	if r := n.record(); r.Object == objectName || r.Attach != volstate.Done {
		t.Errorf("%+v", r)
	}
	n.succeed("unmount", n.podDir("p2"))
	n.empty()
}

// TestRenamedNodeRefuses: what was to be detached under an earlier name, and may not be,
// is not attached a second time.
func TestRenamedNodeRefuses(t *testing.T) {
	n := newClusterNode(t)
	n.succeed("mount", n.podDir("p1"), options)
	n.start("boot-1")
	n.bridge.NodeName = "node-new"
	n.hurried()
	denied := flex.Errorf(flex.CodePermissionDenied, "the policy denies it")
	n.cluster.set(func() {
		n.cluster.fail["Detach"] = []error{denied, denied, denied, denied, denied, denied, denied, denied}
	})
	n.succeed("unmount", n.podDir("p1"))
	n.wait()
	n.cluster.called()
	n.fail("earlier name", "mount", n.podDir("p2"), options)
	if got := n.cluster.called(); got != "Detach" {
		t.Errorf("called %s", got)
	}
	n.succeed("unmount", n.podDir("p2"))
	n.wait()
	n.cluster.set(func() { clear(n.cluster.fail) })
	n.settle()
	n.empty()
}
