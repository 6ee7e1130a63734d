package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// reconcile looks twice, as it takes to repair, and waits for what it starts.
func (n *node) reconcile() {
	n.t.Helper()
	for range 2 {
		n.bridge.Reconcile(n.t.Context())
		for deadline := time.Now().Add(30 * time.Second); n.bridge.Busy(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				n.t.Fatal("the reconciler does not end")
			}
		}
	}
}

// die kills the process that serves the driver's mounts.
func (n *node) die() {
	n.mounts.mu.Lock()
	defer n.mounts.mu.Unlock()
	for path := range n.mounts.mounted {
		n.mounts.dead[path] = unix.ENOTCONN
	}
}

func (n *node) record() *volstate.Record {
	n.t.Helper()
	records := n.bridge.Records()
	if len(records) != 1 {
		n.t.Fatalf("%d records, want one", len(records))
	}
	return records[0]
}

// containers is what the kubelet makes before it makes a pod's first container.
func (n *node) containers(pod string) {
	if err := os.MkdirAll(filepath.Join(n.dir, "pods", pod, "containers/main"), 0o750); err != nil {
		n.t.Fatal(err)
	}
}

func TestDeadMountsAreReplaced(t *testing.T) {
	n := newNode(t)
	dir := n.podDir("p1")
	n.succeed("mount", dir, options)
	n.driver.called()
	n.die()
	n.reconcile()
	if got, want := n.driver.called(), "NodeUnpublish NodeUnstage NodeStage NodePublish"; got != want {
		t.Errorf("repair called %s, want %s", got, want)
	}
	if len(n.mounts.dead) > 0 || !n.mounts.mounted[dir] {
		t.Errorf("dead: %v, mounted: %v", n.mounts.dead, n.mounts.mounted)
	}
	if r := n.record(); r.StageDead+r.Targets[dir].Dead != "" {
		t.Errorf("the record still calls it dead: %+v", r)
	}
	n.succeed("unmount", dir)
	n.empty()
}

// TestDeadMountsOfContainersAreReported: replacing them could harm.
func TestDeadMountsOfContainersAreReported(t *testing.T) {
	n := newNode(t)
	dir := n.podDir("p1")
	n.succeed("mount", dir, options)
	n.containers("p1")
	n.driver.called()
	n.die()
	n.reconcile()
	if got := n.driver.called(); got != "" {
		t.Errorf("a container has it, and %s was called", got)
	}
	if got := n.record().Targets[dir].Dead; !strings.Contains(got, "not connected") {
		t.Errorf("the record says %q", got)
	}
	// Another pod is told, and whom to delete; then it can have the volume.
	s := n.call("mount", n.podDir("p2"), options)
	if s.Status != flex.StatusFailure || !strings.Contains(s.Message, "delete these pods") || !strings.Contains(s.Message, "p1") {
		t.Errorf("another pod's mount: %+v", s)
	}
	n.succeed("unmount", dir)
	n.succeed("mount", n.podDir("p2"), options)
	n.succeed("unmount", n.podDir("p2"))
	n.empty()
}

func TestRepairInUse(t *testing.T) {
	n := newNode(t)
	n.bridge.Drivers.All[0].RepairInUse = true
	dir := n.podDir("p1")
	n.succeed("mount", dir, options)
	n.containers("p1")
	n.die()
	n.reconcile()
	if len(n.mounts.dead) > 0 || !n.mounts.mounted[dir] {
		t.Errorf("dead: %v, mounted: %v", n.mounts.dead, n.mounts.mounted)
	}
	n.succeed("unmount", dir)
	n.empty()
}

// fallSilent has the server behind the driver's mounts be away for a while.
func (n *node) fallSilent() {
	n.mounts.mu.Lock()
	defer n.mounts.mu.Unlock()
	for path := range n.mounts.mounted {
		n.mounts.dead[path] = fmt.Errorf("statfs %s: %w", path, os.ErrDeadlineExceeded)
	}
}

// TestSilentMountsAreLeft: during the fail-over of an NFS server two looks found no
// answer, and the mounts were unmounted under their containers; or the kubelet was
// restarted, and its mount did that. Silence ends.
func TestSilentMountsAreLeft(t *testing.T) {
	n := newNode(t)
	n.bridge.Drivers.All[0].RepairInUse = true
	dir, other := n.podDir("p1"), n.podDir("p2")
	n.succeed("mount", dir, options)
	n.driver.called()
	n.fallSilent()
	n.reconcile()
	if got := n.record().Targets[dir].Dead; !strings.Contains(got, "timeout") {
		t.Errorf("the record says %q", got)
	}
	for _, dir := range []string{dir, other} {
		if s := n.call("mount", dir, options); s.Status != flex.StatusFailure || !strings.Contains(s.Message, "does not answer") {
			t.Errorf("mount at %s: %+v", dir, s)
		}
	}
	if got := n.driver.called(); got != "" || !n.mounts.mounted[dir] {
		t.Errorf("called %q; mounted: %v", got, n.mounts.mounted)
	}
	clear(n.mounts.dead)
	n.reconcile()
	if r := n.record(); r.StageDead+r.Targets[dir].Dead != "" {
		t.Errorf("the record still says: %+v", r)
	}
	n.succeed("mount", dir, options)
	n.succeed("mount", other, options)
	n.succeed("unmount", dir)
	n.succeed("unmount", other)
	n.empty()
}

// TestTearDownOfSilentMounts: what a driver refuses to unpublish is not taken from
// under it because nothing answers.
func TestTearDownOfSilentMounts(t *testing.T) {
	n := newNode(t)
	dir := n.podDir("p1")
	n.succeed("mount", dir, options)
	private := n.record().Targets[dir].TargetPath
	n.fallSilent()
	n.driver.fail["NodeUnpublish"] = []error{final(flex.CodeInternal, "busy")}
	if s := n.call("unmount", dir); s.Status != flex.StatusFailure || !n.mounts.mounted[private] {
		t.Errorf("%+v; mounted: %v", s, n.mounts.mounted)
	}
	n.succeed("unmount", dir)
	n.empty()
}

// TestRepairThatFails goes on from where it ended, as often as it takes.
func TestRepairThatFails(t *testing.T) {
	for _, method := range []string{"NodeUnpublish", "NodeUnstage", "NodeStage", "NodePublish"} {
		for _, code := range []flex.Code{flex.CodeInternal, flex.CodeUnavailable} {
			n := newNode(t)
			n.bridge.Grace = time.Nanosecond // nothing of this may be taken for given up
			dir := n.podDir("p1")
			n.succeed("mount", dir, options)
			if err := os.MkdirAll(dir, 0o750); err != nil {
				t.Fatal(err)
			}
			n.die()
			n.driver.fail[method] = []error{final(code, "no"), final(code, "no"), final(code, "no")}
			for range 4 {
				n.reconcile()
			}
			if !n.mounts.mounted[dir] || len(n.mounts.dead) > 0 {
				t.Errorf("%s fails with %s, then not: mounted %v, dead %v", method, code, n.mounts.mounted, n.mounts.dead)
			}
			delete(n.driver.fail, method)
			n.succeed("unmount", dir)
			n.empty()
		}
	}
}

// TestRepairOfAForgottenMount: a repair failed, and after it the kubelet's mount. The next
// repair bound the volume again: a kubelet that was restarted since did not know of it, so
// that a deleted pod stayed Terminating.
func TestRepairOfAForgottenMount(t *testing.T) {
	for name, fails := range map[string]func(n *node, dir string){
		"mount failed": func(n *node, dir string) {
			n.driver.fail["NodePublish"] = []error{final(flex.CodeUnavailable, "no")}
			n.succeedNot("mount", dir, options)
		},
		"mount failed without a daemon": func(_ *node, dir string) {
			if err := os.Remove(dir); err != nil { // by the kubelet
				t.Fatal(err)
			}
		},
	} {
		n := newNode(t)
		dir := n.podDir("p1")
		n.succeed("mount", dir, options)
		n.die()
		n.driver.fail["NodePublish"] = []error{final(flex.CodeInternal, "no")}
		n.reconcile()
		fails(n, dir)
		n.die()
		n.reconcile()
		if n.mounts.mounted[dir] {
			t.Errorf("%s: the directory is bound again, and the kubelet does not know", name)
		}
		n.succeed("mount", n.podDir("p1"), options) // it lives
		n.succeed("unmount", dir)
		n.empty()
	}
}

// TestMissingBind: an operator unmounted a directory that the kubelet takes for mounted.
func TestMissingBind(t *testing.T) {
	n := newNode(t)
	dir := n.podDir("p1")
	n.succeed("mount", dir, options)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	n.driver.called()
	n.mounts.set(dir, false)
	n.reconcile()
	if !n.mounts.mounted[dir] {
		t.Error("the bind is not back")
	}
	if got := n.driver.called(); got != "" {
		t.Errorf("%s was called for a bind", got)
	}
	n.succeed("unmount", dir)
	n.empty()
}

// TestTearDownOfDeadMounts: some drivers cannot unpublish what is dead.
func TestTearDownOfDeadMounts(t *testing.T) {
	n := newNode(t)
	dir := n.podDir("p1")
	n.succeed("mount", dir, options)
	n.die()
	n.driver.fail["NodeUnpublish"] = []error{final(flex.CodeInternal, "transport endpoint is not connected")}
	n.driver.fail["NodeUnstage"] = []error{final(flex.CodeInternal, "transport endpoint is not connected")}
	n.succeed("unmount", dir)
	n.empty()
}

// TestFlexSecretStopsRepair: what only the kubelet can give, only mount gets.
func TestFlexSecretStopsRepair(t *testing.T) {
	n := newNode(t)
	n.bridge.Drivers.All[0].StaticSecrets = func(context.Context) (csivol.Secrets, error) {
		return csivol.Secrets{}, errors.New("from the volume's Secret")
	}
	dir := n.podDir("p1")
	n.succeed("mount", dir, options)
	n.driver.called()
	n.die()
	n.reconcile()
	if got := n.driver.called(); got != "" {
		t.Errorf("%s was called without its secrets", got)
	}
	n.succeed("unmount", dir)
	n.empty()
}

func TestRepublish(t *testing.T) {
	n := newNode(t)
	n.bridge.Drivers.All[0].Policy = fixed(bridge.Policy{Republish: true})
	dir := n.podDir("p1")
	n.succeed("mount", dir, options)
	n.driver.called()
	n.driver.fail["NodePublish"] = []error{final(flex.CodeInternal, "no")}
	n.reconcile()
	if got, want := n.driver.called(), "NodePublish"; got != want {
		t.Errorf("republishing called %q, want %q", got, want)
	}
	if !n.mounts.mounted[dir] {
		t.Error("a republish that failed took the volume away")
	}
	n.succeed("unmount", dir)
	n.empty()
}

func TestMeasure(t *testing.T) {
	n := newNode(t)
	n.bridge.Measure = true
	n.driver.features.Stats = true
	dir := n.podDir("p1")
	n.succeed("mount", dir, options)
	n.driver.called()
	n.reconcile()
	n.reconcile()
	if got, want := n.driver.called(), "NodeGetVolumeStats"; got != want {
		t.Errorf("within a minute %q was called, want %s once", got, want)
	}
	if s := n.bridge.Status()[0].Stats; s == nil || s.Bytes.Used != 30 {
		t.Errorf("stats: %+v", s)
	}
	n.succeed("unmount", dir)
	n.empty()
}

// TestMountGroup: the kubelet tells the fsGroup in mount only, and the driver
// gets it in both calls.
func TestMountGroup(t *testing.T) {
	n := newNode(t)
	n.driver.features.MountGroup = true
	n.succeed("attach", options, "node-1")
	if err := os.MkdirAll(n.deviceDir(), 0o750); err != nil {
		t.Fatal(err)
	}
	n.succeed("mountdevice", n.deviceDir(), "csi:h1", options)
	dir := n.podDir("p1")
	n.succeed("mount", dir, strings.Replace(options, "{", `{"kubernetes.io/mounterArgs.FsGroup":"1234",`, 1))
	if got, want := strings.Join(n.driver.groups, " "), "stage:1234 publish:1234"; got != want {
		t.Errorf("volume_mount_group: %s, want %s", got, want)
	}
	n.succeed("unmount", dir)
	n.succeed("unmountdevice", n.deviceDir())
	n.succeed("detach", "pv1", "node-1")
	n.empty()
}

// TestForgottenDevice: a kubelet that was restarted between the last unmount
// and unmountdevice calls neither again, and the volume must not stay staged.
func TestForgottenDevice(t *testing.T) {
	for _, comesBack := range []bool{false, true} {
		n := newNode(t)
		dir, device := n.podDir("p1"), n.deviceDir()
		if err := os.MkdirAll(device, 0o750); err != nil {
			t.Fatal(err)
		}
		n.succeed("attach", options, "node-1")
		n.succeed("mountdevice", device, "csi:h1", options)
		n.succeed("mount", dir, options)
		n.succeed("unmount", dir)
		n.driver.called()
		n.bridge.Grace = time.Nanosecond
		n.reconcile()
		if got, want := n.driver.called(), "NodeUnstage"; got != want || n.mounts.mounted[device] {
			t.Errorf("%q was called, want %s; marker: %t", got, want, n.mounts.mounted[device])
		}
		if _, err := os.Stat(device); err != nil { // the marker may have to come back
			t.Errorf("the device mount path is gone: %v", err)
		}
		if comesBack { // it had not forgotten
			n.succeed("mount", dir, options)
			if !n.mounts.mounted[device] {
				t.Error("there is no marker, so the kubelet calls no unmountdevice")
			}
			n.succeed("unmount", dir)
			n.succeed("unmountdevice", device)
		}
		n.succeed("detach", "pv1", "node-1")
		n.empty()
	}
}

// TestNoBareDirectoryIsBound: of a volume that vanished from its target path
// as well there is nothing to bind again.
func TestNoBareDirectoryIsBound(t *testing.T) {
	for _, asked := range []bool{false, true} {
		n := newNode(t)
		dir := n.podDir("p1")
		n.succeed("mount", dir, options)
		if err := os.MkdirAll(dir, 0o750); err != nil {
			t.Fatal(err)
		}
		n.mounts.set(dir, false)
		n.mounts.set(n.record().Targets[dir].TargetPath, false)
		n.driver.called()
		if asked {
			n.succeed("mount", dir, options)
		} else {
			n.reconcile()
		}
		if got, want := n.driver.called(), "NodeUnpublish NodePublish"; got != want || !n.mounts.mounted[dir] {
			t.Errorf("called %s, want %s; mounted: %t", got, want, n.mounts.mounted[dir])
		}
		n.succeed("unmount", dir)
		n.empty()
	}
}
