package bridge_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// ceph-csi stages at globalmount/<volume id>: at the staging path itself nothing is
// ever mounted, so the bridge, which looked only there, saw neither that a volume was
// unstaged nor that it was not.

func newNodeBelow(t *testing.T) *node {
	n := newNode(t)
	n.driver.below = true
	return n
}

// stagedBelow is where that driver has the volume mounted.
func (n *node) stagedBelow() string { return filepath.Join(n.bridge.KubeletStaging(n.record()), "h1") }

// TestBelowUnstagedByTheKubelet, between NodeStageVolume and NodePublishVolume: a pod
// got a bare directory.
func TestBelowUnstagedByTheKubelet(t *testing.T) {
	n := newNodeBelow(t)
	file := n.takeOver()
	n.driver.between = func() {
		n.driver.between = nil
		delete(n.driver.staged, "h1")
		n.mounts.set(filepath.Join(filepath.Dir(file), "globalmount/h1"), false)
		_ = os.Remove(file)
	}
	dir := n.podDir("p1")
	if s := n.call("mount", dir, options); s.Status != flex.StatusFailure || s.Code != flex.CodeUnavailable {
		t.Errorf("mount of a bare directory: %+v", s)
	}
	if n.mounts.mounted[dir] {
		t.Fatal("a pod has a bare directory")
	}
	n.driver.called()
	n.succeed("mount", dir, options)
	if got := n.driver.called(); !strings.Contains(got, "NodeStage") {
		t.Errorf("called %s, and it is not staged", got)
	}
	n.succeed("unmount", dir)
	n.empty()
}

// TestBelowEndedByTheKubelet: what the kubelet's CSI plugin has unstaged was taken
// for staged until the grace period was over, and unstaged once more.
func TestBelowEndedByTheKubelet(t *testing.T) {
	n := newNodeBelow(t)
	n.succeed("mount", n.podDir("p1"), options)
	file := n.takeOver()
	n.succeed("unmount", n.podDir("p1"))
	n.driver.called()
	n.kubeletUnstages(file)
	n.reconcile()
	n.expect("unstaged by the kubelet", "ControllerUnpublish")
	n.empty()
}

// TestBelowUnseen: what cannot be looked at is not taken for unstaged, and nothing
// is detached under it.
func TestBelowUnseen(t *testing.T) {
	n := newNodeBelow(t)
	n.succeed("mount", n.podDir("p1"), options)
	file := n.takeOver()
	n.succeed("unmount", n.podDir("p1"))
	n.driver.called()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	n.mounts.fail["Below "+filepath.Dir(n.stagedBelow())] = errors.New("no answer")
	n.reconcile()
	n.expect("it may be staged", "")
}

// TestBelowStaysMounted: a driver that says OK to NodeUnstageVolume and leaves the
// mount was believed, and the volume detached under it.
func TestBelowStaysMounted(t *testing.T) {
	n := newNodeBelow(t)
	n.succeed("mount", n.podDir("p1"), options)
	staged := n.stagedBelow()
	n.driver.leaves = true
	n.driver.called()
	n.succeed("unmount", n.podDir("p1"))
	if r := n.record(); !strings.Contains(r.LastError, staged) {
		t.Errorf("the record is %+v", r)
	}
	n.expect("it is mounted", "NodeUnpublish NodeUnstage")
	n.driver.leaves = false
	n.reconcile()
	n.empty()
}

// TestBelowDies: a dead stage was not found, and each next pod got what it is
// published from.
func TestBelowDies(t *testing.T) {
	n := newNodeBelow(t)
	n.succeed("mount", n.podDir("p1"), options)
	n.succeed("mount", n.podDir("p2"), options)
	n.mounts.dead[n.stagedBelow()] = unix.ENOTCONN
	if s := n.call("mount", n.podDir("p3"), options); s.Status != flex.StatusFailure || !strings.Contains(s.Message, "delete these pods") {
		t.Errorf("mount from a dead stage: %+v", s)
	}
	n.driver.called()
	n.reconcile()
	n.expect("repair", "NodeUnpublish NodeUnpublish NodeUnstage NodeStage NodePublish NodePublish")
	// Some drivers cannot unstage what is dead.
	n.die()
	n.succeed("unmount", n.podDir("p1"))
	n.driver.fail["NodeUnstage"] = []error{final(flex.CodeInternal, "transport endpoint is not connected")}
	n.succeed("unmount", n.podDir("p2"))
	n.empty()
}

// TestBelowIsNotSwept: a stage without a record keeps its attachment.
func TestBelowIsNotSwept(t *testing.T) {
	n := newClusterNode(t)
	n.orphan("node-1", flexDriver)
	n.mounts.set(filepath.Join(filepath.Dir(n.takeOver()), "globalmount/h1"), true)
	n.sweep()
	if got := n.cluster.called(); got != "" {
		t.Errorf("called %s", got)
	}
}
