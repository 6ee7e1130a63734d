package bridge_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

func TestRestart(t *testing.T) {
	n := newNode(t)
	dir := n.podDir("p1")
	n.succeed("mount", dir, options)
	n.start("boot-1")
	n.driver.called()
	n.succeed("mount", dir, options)
	if got := n.driver.called(); got != "" {
		t.Errorf("after a restart mount called %s, want nothing", got)
	}
	n.start("boot-1")
	n.succeed("unmount", dir)
	n.empty()
}

// TestReboot: mounts are gone, attachments are not.
func TestReboot(t *testing.T) {
	n := newNode(t)
	dir := n.podDir("p1")
	n.succeed("mount", dir, options)
	n.driver.called()
	clear(n.mounts.mounted)
	clear(n.driver.staged)
	clear(n.driver.published)
	n.start("boot-2")
	n.succeed("mount", dir, options)
	if got, want := n.driver.called(), "NodeStage NodePublish"; got != want {
		t.Errorf("after a reboot mount called %s, want %s", got, want)
	}
	n.succeed("unmount", dir)
	n.empty()
}

// TestRebootOfAnAttachedVolume: of what was at the device mount path nothing is
// left, so that the kubelet does not call unmountdevice, and detach comes.
func TestRebootOfAnAttachedVolume(t *testing.T) {
	n := newNode(t)
	dir, device := n.podDir("p1"), n.deviceDir()
	n.succeed("attach", options, "node-1")
	n.succeed("mountdevice", device, "csi:h1", options)
	n.succeed("mount", dir, options)
	clear(n.mounts.mounted)
	clear(n.driver.staged)
	clear(n.driver.published)
	n.start("boot-2")
	n.succeed("unmount", dir)
	n.succeed("detach", "pv1", "node-1")
	n.empty()
}

// TestRecordsSpeakOfThePast: what a record says was intended is enough to end
// it, wherever the process was killed.
func TestRecordsSpeakOfThePast(t *testing.T) {
	n := newNode(t)
	dir := n.podDir("p1")
	recorder := &recording{RecordStore: n.store}
	n.bridge.State = recorder
	n.succeed("mount", dir, options)
	saved := recorder.records
	n.bridge.State = n.store
	n.succeed("unmount", dir)
	for i, r := range saved {
		n := newNode(t)
		// The RPC that follows the record was made, and its answer lost.
		n.driver.attached["h1"] = "node-id"
		if r.Stage != volstate.None {
			n.driver.staged["h1"] = n.dir + "/staging"
			n.mounts.set(n.dir+"/staging", true)
			r.StagingPath = n.dir + "/staging"
		}
		dir := n.podDir("p1")
		for old, target := range r.Targets {
			delete(r.Targets, old)
			target.TargetPath = filepath.Join(n.dir, "pods/p1/flex2csi/volumes/kubernetes.io~csi/pv1/mount")
			r.Targets[dir] = target
			if target.Publish != volstate.None {
				n.driver.published[target.TargetPath] = "h1"
				n.mounts.set(target.TargetPath, true)
			}
		}
		if err := n.store.Put(r); err != nil {
			t.Fatal(err)
		}
		n.start("boot-1")
		n.succeed("unmount", dir)
		n.empty()
		if t.Failed() {
			t.Fatalf("after record %d of %d", i+1, len(saved))
		}
	}
	// One before each RPC, and none after the bind (N4).
	if want := 3; len(saved) != want {
		t.Errorf("mount wrote %d records, want %d", len(saved), want)
	}
}

// TestKilledAfterTheBind: the kubelet sees the mount, takes it for done, and never calls
// again. The record on the disk is that of before the bind.
func TestKilledAfterTheBind(t *testing.T) {
	n := newNode(t)
	dir := n.podDir("p1")
	n.bridge.State = &recording{RecordStore: n.store, stop: 3}
	n.succeed("mount", dir, options)
	n.start("boot-1")
	n.bridge.Grace = time.Nanosecond
	n.driver.called()
	n.reconcile()
	n.succeed("mount", dir, options)
	if got := n.driver.called(); got != "" || !n.mounts.mounted[dir] {
		t.Errorf("%s was called under a pod; mounted: %v", got, n.mounts.mounted)
	}
	n.succeed("unmount", dir)
	n.empty()
}

// TestRecoveredRecord: the record is broken, and the version before it is
// there: whichever step was taken last, all ends well.
func TestRecoveredRecord(t *testing.T) {
	probe := newNode(t)
	recorder := &recording{RecordStore: probe.store}
	probe.bridge.State = recorder
	probe.succeed("mount", probe.podDir("p1"), options)
	probe.succeed("unmount", probe.podDir("p1"))
	for stop := 2; stop <= len(recorder.records); stop++ {
		for _, again := range []bool{true, false} {
			recovered(t, stop, again)
			if t.Failed() {
				t.Fatalf("after write %d of %d; mount comes again: %t", stop, len(recorder.records), again)
			}
		}
	}
}

func recovered(t *testing.T, stop int, again bool) {
	t.Helper()
	n := newNode(t)
	dir := n.podDir("p1")
	n.bridge.State = &recording{RecordStore: n.store, stop: stop}
	n.call("mount", dir, options)
	n.call("unmount", dir)
	files, _ := filepath.Glob(filepath.Join(n.dir, "state/*.json"))
	if len(files) != 1 {
		t.Fatalf("stop %d: %v", stop, files)
	}
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(files[0], []byte("\x00garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.mayBeBroken = true
	if !again { // the driver is still at it, and nothing is to be seen yet
		for path := range maps.Clone(n.mounts.mounted) {
			n.mounts.set(path, false)
		}
	}
	n.start("boot-1")
	if again {
		n.succeed("mount", dir, options)
	}
	n.succeed("unmount", dir)
	n.empty()
}

// TestClockSetBack: a record that is ahead of the clock is not kept until the
// clock has caught up.
func TestClockSetBack(t *testing.T) {
	n := newNode(t)
	dir := n.podDir("p1")
	n.driver.fail["NodePublish"] = []error{final(flex.CodeUnavailable, "test")}
	if s := n.call("mount", dir, options); s.Status != flex.StatusFailure {
		t.Fatalf("mount: %+v", s)
	}
	records, _, err := n.store.Load()
	if err != nil || len(records) != 1 {
		t.Fatal(records, err)
	}
	records[0].Targets[dir].Since = records[0].Targets[dir].Since.Add(time.Hour)
	if err := n.store.Put(records[0]); err != nil {
		t.Fatal(err)
	}
	n.start("boot-1")
	n.bridge.Grace = time.Millisecond
	deadline := time.Now().Add(10 * time.Second)
	for len(n.bridge.Records()) > 0 && time.Now().Before(deadline) {
		time.Sleep(2 * time.Millisecond)
		n.bridge.Reconcile(t.Context())
	}
	n.empty()
}

// TestDoubtUnderAPod: an uncertain step that fails is not undone under a pod that has
// the volume.
func TestDoubtUnderAPod(t *testing.T) {
	for _, method := range []string{"ControllerPublish", "NodeStage"} {
		n := newNode(t)
		first, second := n.podDir("p1"), n.podDir("p2")
		n.succeed("mount", first, options)
		records, _, err := n.store.Load()
		if err != nil || len(records) != 1 {
			t.Fatal(records, err)
		}
		records[0].Attach, records[0].Stage = volstate.Doing, volstate.Doing
		if err := n.store.Put(records[0]); err != nil {
			t.Fatal(err)
		}
		n.start("boot-1")
		n.driver.called()
		n.driver.fail[method] = []error{final(flex.CodeInternal, "test")}
		if s := n.call("mount", second, options); s.Status != flex.StatusFailure {
			t.Errorf("mount: %+v", s)
		}
		if got := n.driver.called(); strings.Contains(got, "Unstage") || strings.Contains(got, "Unpublish") {
			t.Errorf("%s failed, and under the pod was called: %s", method, got)
		}
		n.succeed("mount", second, options)
		n.succeed("unmount", first)
		n.succeed("unmount", second)
		n.empty()
	}
}

// TestLostRecords: the state directory was wiped. A pod that still has the volume keeps
// it when another pod with the volume starts and ends.
func TestLostRecords(t *testing.T) {
	n := newNode(t)
	first, second := n.podDir("p1"), n.podDir("p2")
	n.succeed("mount", first, options)
	if err := errors.Join(os.MkdirAll(first, 0o750), os.RemoveAll(filepath.Join(n.dir, "state"))); err != nil {
		t.Fatal(err)
	}
	n.start("boot-1")
	n.succeed("mount", second, options)
	n.driver.called()
	n.succeed("unmount", second)
	if got, want := n.driver.called(), "NodeUnpublish"; got != want {
		t.Errorf("under a pod that has the volume unmount called %s, want %s", got, want)
	}
	n.age()
	n.reconcile()
	if !n.mounts.mounted[first] {
		t.Error("the pod has lost its volume")
	}
	n.succeed("unmount", first)
	n.empty()
}

// TestTearDownNeedsNoController: not even to find out what the driver can do.
func TestTearDownNeedsNoController(t *testing.T) {
	n := newNode(t)
	n.driver.features.Attach = false
	dir := n.podDir("p1")
	n.succeed("mount", dir, options)
	n.driver.away = final(flex.CodeUnavailable, "its controller cannot be reached")
	n.succeed("unmount", dir)
	n.empty()
}

// TestRecoveredWithoutStage: whether the driver stages is not in the record.
func TestRecoveredWithoutStage(t *testing.T) {
	n := newNode(t)
	n.driver.features.Stage = false
	dir := n.podDir("p1")
	n.succeed("mount", dir, options)
	n.rewrite(func(r *volstate.Record) { r.Stage, r.StagingPath = volstate.Doing, filepath.Join(n.dir, "staging") })
	n.succeed("unmount", dir)
	n.empty()
}
