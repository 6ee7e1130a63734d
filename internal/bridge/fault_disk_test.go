package bridge_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// TestFullDisk (N4): the last write of mount failed, the kubelet got a Failure, and the
// directory stayed bound: the kubelet forgets a mount that failed, so that its pod stays
// Terminating. Here each write of each callout fails, once or from then on. Then the
// daemon restarts or not, and the call is repeated, or the pod goes. If the outcome of an attach
// could not be written, the volume stayed attached: in memory it was done, and only a callout
// ends that.
func TestFullDisk(t *testing.T) {
	calls := func(n *node) [][]string {
		dir, device := n.podDir("p1"), n.deviceDir()
		return [][]string{
			{"attach", options, "node-1"},
			{"mountdevice", device, "csi:h1", options},
			{"mount", dir, options},
			{"unmount", dir},
			{"unmountdevice", device},
			{"detach", "pv1", "node-1"},
		}
	}
	probe := newNode(t)
	for i, call := range calls(probe) {
		writes := probe.fills(1<<30, 0)
		probe.succeed(call...)
		for write := range writes.writes {
			for _, once := range []bool{true, false} {
				for _, restarts := range []bool{true, false} {
					for _, repeats := range []bool{true, false} {
						checkFullDisk(t, calls, i, write, once, restarts, repeats)
						if t.Failed() {
							t.Fatalf("%s: write %d of %d failed, once: %t; restarts: %t; repeats: %t", call[0], write+1, writes.writes, once, restarts, repeats)
						}
					}
				}
			}
		}
	}
}

func checkFullDisk(t *testing.T, calls func(*node) [][]string, failing, write int, once, restarts, repeats bool) {
	t.Helper()
	n := newNode(t)
	list := calls(n)
	for _, call := range list[:failing] {
		n.succeed(call...)
	}
	disk := n.fills(write, -1)
	if once {
		disk.failing = 1
	}
	s := n.call(list[failing]...)
	ok := s.Status == flex.StatusSuccess
	dir := n.podDir("p1")
	n.answered(list[failing][0], ok)
	n.bridge.State = n.store
	if restarts {
		n.start("boot-1")
	}
	if repeats && !ok {
		n.succeed(list[failing]...)
		n.answered(list[failing][0], true)
	}
	if failing < 3 { // the pod goes
		if n.mounts.mounted[dir] {
			n.succeed("unmount", dir)
		}
		if n.mounts.mounted[n.deviceDir()] {
			n.succeed("unmountdevice", n.deviceDir())
		}
		// The kubelet forgets an attach that failed (pkg/kubelet/volumemanager/cache,
		// MarkVolumeAsUncertain, Kubernetes v1.37.1): it calls detach only for one that succeeded.
		if failing > 0 || ok || repeats {
			n.succeed("detach", "pv1", "node-1")
		}
		n.ends()
		return
	}
	for _, call := range list[failing:] { // tear-down is repeated
		n.succeed(call...)
		n.answered(call[0], true)
	}
	n.ends()
}

// answered checks what an answer promises.
func (n *node) answered(command string, ok bool) {
	n.t.Helper()
	dir := n.podDir("p1")
	switch {
	case command == "mount" && n.mounts.mounted[dir] != ok:
		n.t.Errorf("mount answered ok %t, and the directory is mounted: %t", ok, !ok)
	case command == "unmount" && ok && (n.mounts.mounted[dir] || len(n.driver.published) > 0):
		n.t.Errorf("unmount succeeded, and it is mounted: %v", n.driver.published)
	case command == "unmountdevice" && ok && len(n.driver.staged) > 0:
		n.t.Errorf("unmountdevice succeeded, and it is staged: %v", n.driver.staged)
	case command == "detach" && ok && len(n.driver.attached) > 0:
		n.t.Errorf("detach succeeded, and it is attached: %v", n.driver.attached)
	}
}

// ends lets the reconciler end what no callout does, and checks that nothing is left.
func (n *node) ends() {
	n.t.Helper()
	n.bridge.Grace = 1
	for range 3 {
		n.reconcile()
	}
	n.empty()
}

// TestCallerLeavesDuringTheBind (N4): the caller left between the check that it waits and
// its answer. The kubelet took that for a failure, and the directory stayed bound.
func TestCallerLeavesDuringTheBind(t *testing.T) {
	n := newNode(t)
	dir := n.podDir("p1")
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	n.mounts.binds = func() {
		leave()
		<-left
		time.Sleep(50 * time.Millisecond) // until the operation knows
	}
	d, err := n.bridge.Callouts(flexDriver)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		<-ctx.Done()
		close(left)
	}()
	if s := flex.Run(ctx, d, []string{"mount", dir, options}); s.Status != flex.StatusFailure {
		t.Fatalf("%+v", s)
	}
	if err := n.bridge.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n.mounts.mounted[dir] {
		t.Error("the directory stays bound")
	}
	n.mounts.binds = nil
	n.succeed("mount", dir, options)
	n.succeed("unmount", dir)
	n.empty()
}

// TestFullDiskAfterADeadBind: what was bound was dead, and that it was to be unbound could not be
// written. It stayed, and the kubelet, for which the mount had failed, had forgotten it.
func TestFullDiskAfterADeadBind(t *testing.T) {
	n := newNode(t)
	dir := n.podDir("p1")
	n.mounts.binds = func() {
		n.mounts.dead[dir] = errors.New("transport endpoint is not connected")
		n.fills(0, -1)
	}
	if s := n.call("mount", dir, options); s.Status != flex.StatusFailure {
		t.Fatalf("%+v", s)
	}
	if n.mounts.mounted[dir] {
		t.Error("the directory stays bound")
	}
	n.bridge.State, n.mounts.binds = n.store, nil
	n.succeed("mount", dir, options)
	n.succeed("unmount", dir)
	n.empty()
}

// TestFullDiskAfterADeadBindOfBefore: the record in memory had the bind of an earlier process
// again, and the reconciler repaired a mount that had failed for the kubelet.
func TestFullDiskAfterADeadBindOfBefore(t *testing.T) {
	n := newNode(t)
	dir := n.podDir("p1")
	n.succeed("mount", dir, options)
	n.start("boot-1")
	for path := range n.mounts.mounted {
		n.mounts.dead[path] = errors.New("transport endpoint is not connected")
	}
	n.fills(0, -1)
	if s := n.call("mount", dir, options); s.Status != flex.StatusFailure {
		t.Fatalf("%+v", s)
	}
	n.bridge.State = n.store
	for range 3 {
		n.reconcile()
	}
	if n.mounts.mounted[dir] {
		t.Error("the directory is bound again, and the kubelet does not know")
	}
	n.ends()
}
