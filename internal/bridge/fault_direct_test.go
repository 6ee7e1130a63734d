package bridge_test

import (
	"errors"
	"testing"

	"github.com/flex2csi/flex2csi/internal/volstate"
)

// publishedDirectly makes of a mounted volume what an earlier version with directPublish has
// recorded, and starts the daemon: the driver has published into the kubelet's directory.
func (n *node) publishedDirectly(dir string, phase volstate.Phase, bound bool) {
	n.t.Helper()
	n.succeed("mount", dir, options)
	records, _, err := n.store.Load()
	if err != nil || len(records) != 1 || records[0].Targets[dir] == nil {
		n.t.Fatal(records, err)
	}
	t := records[0].Targets[dir]
	if err := n.mounts.RemoveTarget(n.t.Context(), t.TargetPath); err != nil {
		n.t.Fatal(err)
	}
	n.driver.published = map[string]string{dir: "h1"}
	t.TargetPath, t.Publish, t.Bound = "", phase, bound
	if err := errors.Join(n.store.Put(records[0]), n.store.Put(records[0])); err != nil {
		n.t.Fatal(err)
	}
	n.driver.called()
	n.start("boot-1")
}

// TestDirectOfBefore: what was published into the kubelet's directory goes on as it was begun,
// and is unpublished there.
func TestDirectOfBefore(t *testing.T) {
	n := newNode(t)
	dir := n.podDir("p1")
	n.publishedDirectly(dir, volstate.Done, true)
	n.succeed("mount", dir, options) // the kubelet was restarted
	n.expect("mounted already", "")
	n.age()
	n.reconcile()
	if !n.mounts.mounted[dir] {
		t.Error("the pod has lost its volume")
	}
	n.expect("reconciled", "")
	n.succeed("unmount", dir)
	n.expect("the end of the pod", "NodeUnpublish NodeUnstage ControllerUnpublish")
	n.empty()
}

// TestDirectOfBeforeUncertain: the kubelet may have found it mounted, and is about to start the
// containers, which would write to the disk of the node. The reconciler took it away.
func TestDirectOfBeforeUncertain(t *testing.T) {
	for _, phase := range []volstate.Phase{volstate.Doing, volstate.Undoing} {
		n := newNode(t)
		dir := n.podDir("p1")
		n.publishedDirectly(dir, phase, false)
		n.age()
		n.reconcile()
		if !n.mounts.mounted[dir] {
			t.Errorf("%s: the pod has lost its volume", phase)
		}
		n.succeed("unmount", dir)
		n.empty()
	}
}
