package bridge_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// A fullDisk fails some of its writes. Nothing of a write that fails is on the disk.
type fullDisk struct {
	bridge.RecordStore
	// failing are how many writes succeed before the first one that fails, and how many
	// fail then; negative: all.
	after, failing int
	writes         int
}

var errFull = errors.New("no space left on device")

func (d *fullDisk) write() error {
	d.writes++
	if n := d.writes - d.after; n > 0 && (d.failing < 0 || n <= d.failing) {
		return errFull
	}
	return nil
}

func (d *fullDisk) Put(r *volstate.Record) error {
	if err := d.write(); err != nil {
		return err
	}
	return d.RecordStore.Put(r)
}

func (d *fullDisk) Delete(k csivol.Key) error {
	if err := d.write(); err != nil {
		return err
	}
	return d.RecordStore.Delete(k)
}

// fills lets the disk be full for some writes, after the next n.
func (n *node) fills(after, failing int) *fullDisk {
	d := &fullDisk{RecordStore: n.store, after: after, failing: failing}
	n.bridge.State = d
	return d
}

// loseRecords restarts the daemon with an empty state directory.
func (n *node) loseRecords() {
	n.t.Helper()
	if err := os.RemoveAll(filepath.Join(n.dir, "state")); err != nil {
		n.t.Fatal(err)
	}
	n.start("boot-1")
}

// TestLostRecordsOnAFullDisk (N3): the records were lost, and the first write after that
// failed. The directories of the other pods were forgotten with it: the last unmount
// that the daemon knew of unstaged the volume under a running pod.
func TestLostRecordsOnAFullDisk(t *testing.T) {
	for _, writes := range []int{0, 1, 2} { // that succeed before
		n := newNode(t)
		first, second := n.podDir("p1"), n.podDir("p2")
		n.succeed("mount", first, options)
		if err := os.MkdirAll(first, 0o750); err != nil {
			t.Fatal(err)
		}
		n.loseRecords()
		n.fills(writes, 2) // an intent, and the outcome of the call
		n.call("mount", second, options)
		n.bridge.State = n.store
		n.succeed("mount", second, options)
		n.driver.called()
		n.succeed("unmount", second)
		if got := n.driver.called(); strings.Contains(got, "NodeUnstage") {
			t.Errorf("after %d writes: unstaged under a pod: %s", writes, got)
		}
		if !n.mounts.mounted[first] {
			t.Errorf("after %d writes: the pod has lost its volume", writes)
		}
		n.succeed("unmount", first)
		n.empty()
	}
}

// TestLostUntilSaved: flex2csi status shows a lost directory until a record has it.
func TestLostUntilSaved(t *testing.T) {
	n := newNode(t)
	first, second := n.podDir("p1"), n.podDir("p2")
	n.succeed("mount", first, options)
	if err := os.MkdirAll(first, 0o750); err != nil {
		t.Fatal(err)
	}
	n.loseRecords()
	n.fills(0, 2)
	if s := n.call("mount", second, options); s.Status != flex.StatusFailure {
		t.Fatalf("mount: %+v", s)
	}
	if lost := n.bridge.Lost(); len(lost) != 1 {
		t.Errorf("lost are %v, and nothing was saved", lost)
	}
	n.succeed("mount", second, options)
	if lost := n.bridge.Lost(); len(lost) != 0 {
		t.Errorf("still lost: %v", lost)
	}
}
