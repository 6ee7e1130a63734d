package bridge_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// newDirectNode returns a node with a driver that publishes to the directory of the kubelet.
func newDirectNode(t *testing.T) *node {
	n := newNode(t)
	n.direct = true
	n.start("boot-1")
	return n
}

// giveUp calls mount and leaves before the driver has answered. It returns when the
// driver has.
func (n *node) giveUp(dir string) {
	n.t.Helper()
	n.driver.hold = make(chan struct{})
	d, err := n.bridge.Callouts(flexDriver)
	if err != nil {
		n.t.Fatal(err)
	}
	d.Timeout = func(flex.Command) time.Duration { return 20 * time.Millisecond }
	if s := flex.Run(n.t.Context(), d, []string{"mount", dir, options}); !strings.Contains(s.Message, "still in progress") {
		n.t.Fatalf("a mount that takes longer than its caller waits: %+v", s)
	}
	close(n.driver.hold)
	for deadline := time.Now().Add(30 * time.Second); n.bridge.Busy(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			n.t.Fatal("it does not end")
		}
	}
	n.driver.hold = nil
}

// TestDirectGivenUp: the kubelet was told that mount failed. For a pod that is deleted
// now it calls no unmount, and the pod stayed Terminating because of a mount that
// no record had.
func TestDirectGivenUp(t *testing.T) {
	n := newDirectNode(t)
	dir := n.podDir("p1")
	n.giveUp(dir)
	if n.mounts.mounted[dir] {
		t.Error("it is mounted, and the kubelet has forgotten it")
	}
	n.expect("unpublished at once", "ControllerPublish NodeStage NodePublish NodeUnpublish")
	n.succeed("mount", dir, options) // the pod was not deleted
	n.expect("the next call", "NodePublish")
	n.succeed("unmount", dir)
	n.empty()
}

// TestDirectAppearsLate: a driver that does not answer mounts all the same, at some
// time. Nothing that the kubelet does not know of stays.
func TestDirectAppearsLate(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		n := newDirectNode(t)
		dir := n.podDir("p1")
		n.driver.fail["NodePublish"] = []error{final(flex.CodeDeadlineExceeded, "late")}
		n.driver.after["NodePublish"] = true
		n.succeedNot("mount", dir, options)
		if restarted {
			n.start("boot-1")
		}
		n.age()
		n.reconcile()
		if n.mounts.mounted[dir] {
			t.Error("it is mounted, and the kubelet has forgotten it")
		}
		n.empty()
	}
}

// TestDirectIsThePods: what the kubelet was told is mounted stays.
func TestDirectIsThePods(t *testing.T) {
	for _, lost := range []bool{false, true} {
		n := newDirectNode(t)
		dir := n.podDir("p1")
		n.succeed("mount", dir, options)
		if lost {
			if err := errors.Join(os.MkdirAll(dir, 0o750), os.RemoveAll(n.dir+"/state")); err != nil {
				t.Fatal(err)
			}
			n.start("boot-1")
			n.succeed("mount", n.podDir("p2"), options)
			n.succeed("unmount", n.podDir("p2"))
		}
		n.age()
		n.reconcile()
		if !n.mounts.mounted[dir] {
			t.Error("the pod has lost its volume")
		}
		n.succeed("unmount", dir)
		n.empty()
	}
}

// TestDirectElsewhere: the driver's mounts do not reach the node, and the pod wrote to
// the node's own disk.
func TestDirectElsewhere(t *testing.T) {
	n := newDirectNode(t)
	n.driver.unseen = true
	if s := n.call("mount", n.podDir("p1"), options); s.Status != flex.StatusFailure || !strings.Contains(s.Message, "Bidirectional") {
		t.Errorf("mount: %+v", s)
	}
	n.empty()
}

// TestDirectReadOnly: a driver that makes its mount read-only in a namespace of its own
// left it writable for the pod (csi-driver-smb did).
func TestDirectReadOnly(t *testing.T) {
	readOnly := strings.Replace(options, `"rw"`, `"ro"`, 1)
	n := newDirectNode(t)
	dir := n.podDir("p1")
	n.succeed("mount", dir, readOnly)
	if !n.mounts.locked[dir] {
		t.Error("it is writable")
	}
	n.bridge.Drivers.All[0].RepairInUse = true
	n.die()
	n.reconcile()
	if !n.mounts.mounted[dir] || !n.mounts.locked[dir] {
		t.Error("repaired, it is writable")
	}
	n.succeed("unmount", dir)
	n.empty()

	n.succeed("mount", dir, options)
	if n.mounts.locked[dir] {
		t.Error("it is read-only")
	}
	n.succeed("unmount", dir)
	n.mounts.fail["ReadOnly"] = errors.New("it is writable")
	n.succeedNot("mount", dir, readOnly)
	n.empty()
}
