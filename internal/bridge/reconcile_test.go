package bridge_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// rewrite changes the record on the disk and starts a new process.
func (n *node) rewrite(change func(*volstate.Record)) {
	n.t.Helper()
	records, _, err := n.store.Load()
	if err != nil || len(records) != 1 {
		n.t.Fatal(records, err)
	}
	change(records[0])
	if err := n.store.Put(records[0]); err != nil {
		n.t.Fatal(err)
	}
	n.start("boot-1")
}

// age makes all that is known of the volume older than the grace period.
func (n *node) age() {
	n.rewrite(func(r *volstate.Record) {
		for _, t := range r.Targets {
			t.Since = time.Now().Add(-time.Hour)
		}
	})
	n.bridge.Grace = time.Minute
}

// TestWhatIsAskedForAgainIsWanted: a stage may take longer than the grace
// period. As long as the kubelet comes back for it, it is not undone.
func TestWhatIsAskedForAgainIsWanted(t *testing.T) {
	n := newNode(t)
	dir := n.podDir("p1")
	late := final(flex.CodeDeadlineExceeded, "late")
	n.driver.fail["NodeStage"] = []error{late, late}
	for i := range 2 {
		if i > 0 {
			n.age()
		}
		if s := n.call("mount", dir, options); s.Status != flex.StatusFailure {
			t.Fatalf("mount: %+v", s)
		}
	}
	n.driver.called()
	n.reconcile()
	if got := n.driver.called(); got != "" {
		t.Errorf("%s was called, and the kubelet has just asked for the volume", got)
	}
	n.age()
	n.reconcile()
	n.empty()
}

// TestMountGivenUp: the pod may be gone when a slow mount comes to its end, and
// then the kubelet, for which it failed, would never unmount it.
func TestMountGivenUp(t *testing.T) {
	for _, comesBack := range []bool{false, true} {
		n := newNode(t)
		n.driver.hold = make(chan struct{})
		dir := n.podDir("p1")
		d, err := n.bridge.Callouts(flexDriver)
		if err != nil {
			t.Fatal(err)
		}
		d.Timeout = func(flex.Command) time.Duration { return time.Second }
		if s := flex.Run(t.Context(), d, []string{"mount", dir, options}); !strings.Contains(s.Message, "still in progress") {
			t.Fatalf("mount: %+v", s)
		}
		close(n.driver.hold)
		for n.bridge.Busy() {
			time.Sleep(time.Millisecond)
		}
		if n.mounts.mounted[dir] {
			t.Fatal("what the kubelet does not know of is mounted for the pod")
		}
		if comesBack {
			n.driver.called()
			n.succeed("mount", dir, options)
			if got := n.driver.called(); got != "" || !n.mounts.mounted[dir] {
				t.Errorf("the second mount called %s; mounted: %t", got, n.mounts.mounted[dir])
			}
			n.succeed("unmount", dir)
		} else {
			n.age()
			n.reconcile()
		}
		n.empty()
	}
}

// TestMountGivenUpInTheQueue: nothing is begun for it.
func TestMountGivenUpInTheQueue(t *testing.T) {
	n := newNode(t)
	n.driver.hold = make(chan struct{})
	first, second := n.podDir("p1"), n.podDir("p2")
	d, err := n.bridge.Callouts(flexDriver)
	if err != nil {
		t.Fatal(err)
	}
	d.Timeout = func(flex.Command) time.Duration { return time.Second }
	for _, dir := range []string{first, second} {
		if s := flex.Run(t.Context(), d, []string{"mount", dir, options}); !strings.Contains(s.Message, "still in progress") {
			t.Fatalf("mount: %+v", s)
		}
	}
	close(n.driver.hold)
	for n.bridge.Busy() {
		time.Sleep(time.Millisecond)
	}
	if got, want := n.driver.called(), "ControllerPublish NodeStage NodePublish"; got != want {
		t.Errorf("called %s, want %s", got, want)
	}
	n.succeed("unmount", first)
	n.empty()
}

// TestNoPodsDirectory: where the kubelet's directory is not there, as before it
// is mounted, nothing can be said about pods.
func TestNoPodsDirectory(t *testing.T) {
	n := newNode(t)
	dir := n.podDir("p1")
	n.succeed("mount", dir, options)
	n.age()
	n.driver.called()
	pods, away := filepath.Join(n.dir, "pods"), filepath.Join(n.dir, "away")
	if err := os.Rename(pods, away); err != nil {
		t.Fatal(err)
	}
	n.mounts.set(dir, false)
	n.reconcile()
	if got := n.driver.called(); got != "" {
		t.Errorf("%s was called", got)
	}
	if err := os.Rename(away, pods); err != nil {
		t.Fatal(err)
	}
	n.mounts.set(dir, true)
	n.succeed("unmount", dir)
	n.empty()
}
