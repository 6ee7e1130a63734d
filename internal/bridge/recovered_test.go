package bridge_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// TestRecoveredForsakenTarget: this version of the record does not have a pod. The mount
// for that pod failed, and the kubelet has removed the pod's volume directory.
func TestRecoveredForsakenTarget(t *testing.T) {
	n := newNode(t)
	n.losesForsaken()
	n.bridge.Grace = time.Nanosecond
	n.reconcile()
	n.succeed("unmount", n.podDir("p1"))
	n.empty()
}

// TestRecoveredForsakenTargetComesBack: the kubelet tries the mount again, and makes the
// volume directory, while the daemon looks for targets.
func TestRecoveredForsakenTargetComesBack(t *testing.T) {
	n := newNode(t)
	n.dirs = &tryingAgain{missing: n.podDir("p2")}
	n.losesForsaken()
	if r := n.bridge.Status()[0].Record; r.Targets[n.podDir("p2")] == nil {
		t.Errorf("targets are %v, without that of p2, which is published", slices.Collect(maps.Keys(r.Targets)))
	}
}

// losesForsaken restarts the daemon with a record that does not know of p2: its mount
// failed after it had been published, and the kubelet has removed its directory.
func (n *node) losesForsaken() {
	n.t.Helper()
	second := n.podDir("p2")
	n.succeed("mount", n.podDir("p1"), options)
	n.driver.fail["NodePublish"], n.driver.after["NodePublish"] = []error{final(flex.CodeAborted, "test")}, true
	if s := n.call("mount", second, options); s.Status != flex.StatusFailure {
		n.t.Fatalf("mount: %+v", s)
	}
	if err := os.RemoveAll(filepath.Join(n.dir, "pods/p2/volumes")); err != nil {
		n.t.Fatal(err)
	}
	n.recovers(second)
}

// recovers restarts the daemon with a corrupted record. The version before does not have
// one of the targets.
func (n *node) recovers(unknown string) {
	n.t.Helper()
	records, _, err := n.store.Load()
	if err != nil || len(records) != 1 {
		n.t.Fatal(records, err)
	}
	delete(records[0].Targets, unknown)
	if err := errors.Join(n.store.Put(records[0]), n.store.Put(records[0])); err != nil {
		n.t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(n.dir, "state/*.json"))
	if err := errors.Join(os.Remove(files[0]), os.WriteFile(files[0], nil, 0o600)); err != nil {
		n.t.Fatal(err)
	}
	n.mayBeBroken = true
	n.start("boot-1")
}

// TestRecoveredPendingUnmount: flexdriver has unmounted a target, and left nothing of it
// on the node, before the record of it was spoilt.
func TestRecoveredPendingUnmount(t *testing.T) {
	n := newNode(t)
	first, second := n.podDir("p1"), n.podDir("p2")
	n.succeed("mount", first, options)
	n.succeed("mount", second, options)
	n.mounts.set(second, false)
	if err := os.RemoveAll(filepath.Join(n.dir, "pods/p2")); err != nil {
		t.Fatal(err)
	}
	n.pending = memoryUnmounts{second: true, n.podDir("p1") + "-other": true}
	n.recovers(second)
	n.succeed("unmount", first)
	if strings.Contains(n.driver.called(), "NodeUnstage") {
		t.Error("unstaged before what flexdriver has unmounted was unpublished")
	}
	if err := n.bridge.CompleteUnmount(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	n.empty()
}

// tryingAgain makes a directory that is missing when it is first looked for another one.
type tryingAgain struct{ missing string }

func (d *tryingAgain) Make(path string) error   { return os.MkdirAll(path, 0o750) }
func (d *tryingAgain) Remove(path string) error { return os.Remove(path) }

func (d *tryingAgain) Exists(path string) (bool, error) {
	if strings.Contains(path, "/p2/") && path != d.missing {
		if err := os.MkdirAll(d.missing, 0o750); err != nil {
			return false, err
		}
	}
	_, err := os.Lstat(path)
	return err == nil, nil
}
