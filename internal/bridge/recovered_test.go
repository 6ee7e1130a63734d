package bridge_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// TestRecoveredForsakenTarget: a version of the record that does not know of a
// pod whose mount failed, and whose volume directory the kubelet has removed.
func TestRecoveredForsakenTarget(t *testing.T) {
	n := newNode(t)
	first, second := n.podDir("p1"), n.podDir("p2")
	n.succeed("mount", first, options)
	n.driver.fail["NodePublish"], n.driver.after["NodePublish"] = []error{final(flex.CodeAborted, "test")}, true
	if s := n.call("mount", second, options); s.Status != flex.StatusFailure {
		t.Fatalf("mount: %+v", s)
	}
	records, _, err := n.store.Load()
	if err != nil || len(records) != 1 {
		t.Fatal(records, err)
	}
	delete(records[0].Targets, second)
	if err := errors.Join(n.store.Put(records[0]), n.store.Put(records[0]), os.RemoveAll(filepath.Join(n.dir, "pods/p2/volumes"))); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(n.dir, "state/*.json"))
	if err := errors.Join(os.Remove(files[0]), os.WriteFile(files[0], nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	n.mayBeBroken = true
	n.start("boot-1")
	n.bridge.Grace = time.Nanosecond
	n.reconcile()
	n.succeed("unmount", first)
	n.empty()
}
