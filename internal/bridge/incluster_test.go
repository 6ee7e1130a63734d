package bridge_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// clusterNode is a node that attaches volumes through the cluster: the driver's
// controller cannot be reached.
type clusterNode struct {
	*node
	cluster *fakeCluster
	notices []csivol.Event
}

func newClusterNode(t *testing.T) *clusterNode {
	n := &clusterNode{node: newNode(t)}
	n.driver.features.Attach, n.driver.inCluster = false, true
	n.cluster = newFakeCluster(n.driver)
	n.configure()
	return n
}

// configure gives the bridge of the node access to the cluster.
func (n *clusterNode) configure() {
	d := n.bridge.Drivers.All[0]
	d.Attacher, d.Attach = n.cluster, bridgeconfig.AttachVA
	n.bridge.Attachments = n.cluster.list
	n.bridge.DetachWait = 20 * time.Millisecond
	n.bridge.Notify = func(notice csivol.Event) { n.notices = append(n.notices, notice) }
}

func (n *clusterNode) start(boot string) {
	n.t.Helper()
	n.node.start(boot)
	n.configure()
}

func (n *clusterNode) settle() {
	n.t.Helper()
	n.reconcile()
}

func (n *clusterNode) empty() {
	n.t.Helper()
	n.wait()
	if left := n.cluster.left(); left != "[] []" {
		n.t.Errorf("attachments are left, or something went wrong: %s", left)
	}
	n.node.empty()
}

// wait waits for operations that have no caller any more.
func (n *clusterNode) wait() {
	n.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); n.bridge.Busy(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			n.t.Fatalf("operations do not end: %v", n.bridge.Operations())
		}
	}
}

func (n *clusterNode) fail(want string, args ...string) flex.DriverStatus {
	n.t.Helper()
	s := n.call(args...)
	if s.Status != flex.StatusFailure || !strings.Contains(s.Message, want) {
		n.t.Errorf("%s: %+v, want a Failure with %q", args[0], s, want)
	}
	return s
}

// hurried makes attach and detach wait no longer than a test can.
func (n *clusterNode) hurried() {
	n.bridge.Drivers.All[0].Timeout = 20 * time.Millisecond
}

var objectName = objects.AttachmentName("h1", "csi.example.com", "node-1")

func TestAttachInCluster(t *testing.T) {
	n := newClusterNode(t)
	p1, p2 := n.podDir("p1"), n.podDir("p2")
	n.cluster.notes = func(call string) {
		if call != "Attach" {
			return
		}
		// The name is on the disk before the request is made.
		records, _, err := n.store.Load()
		if err != nil || len(records) != 1 || records[0].Attach != volstate.Doing || records[0].Object != objectName {
			t.Errorf("the record at the time of the request: %+v, %v", records, err)
		}
	}
	n.succeed("mount", p1, options)
	n.succeed("mount", p2, options)
	if got, want := n.cluster.called(), "Attach"; got != want {
		t.Errorf("two mounts called %s, want %s", got, want)
	}
	if r := n.record(); r.Attach != volstate.Done || r.PublishContext["device"] != "d" || r.Unmanaged {
		t.Errorf("%+v", r)
	}
	n.succeed("unmount", p1)
	if got := n.cluster.called(); got != "" {
		t.Errorf("the first unmount called %s", got)
	}
	n.succeed("unmount", p2)
	if got, want := n.cluster.called(), "Detach"; got != want {
		t.Errorf("the last unmount called %s, want %s", got, want)
	}
	if got, want := n.driver.called(), "NodeStage NodePublish NodePublish NodeUnpublish NodeUnpublish NodeUnstage"; got != want {
		t.Errorf("the driver was called %s, want %s", got, want)
	}
	n.empty()
}

// TestAttachmentSaysAll: what the external-attacher wants to know.
func TestAttachmentSaysAll(t *testing.T) {
	n := newClusterNode(t)
	d := n.bridge.Drivers.All[0]
	d.AttachSecret = &csivol.SecretRef{Namespace: "ns", Name: "attach"}
	d.Map = withModes(csivol.ReadOnlyMany, csivol.ReadWriteMany)
	n.succeed("mount", n.podDir("p1"), options)
	a := n.cluster.asked[0]
	if a.Node != "node-1" || a.FlexDriver != flexDriver || a.Name != "pv1" || a.FSType != "ext4" || a.Secret != d.AttachSecret || len(a.AccessModes) != 2 {
		t.Errorf("%+v", a)
	}
	n.succeed("unmount", n.podDir("p1"))
	n.empty()
}

// TestAttachableModes: ReadWriteOnce and ReadOnlyMany are no one mode of CSI, so the
// external-attacher refused the PersistentVolume for ever.
func TestAttachableModes(t *testing.T) {
	for _, test := range []struct {
		first csivol.AccessMode // which is what the node service is told
		more  []csivol.AccessMode
		want  []csivol.AccessMode
	}{
		{csivol.ReadWriteOnce, []csivol.AccessMode{csivol.ReadOnlyMany}, []csivol.AccessMode{csivol.ReadWriteOnce}},
		{csivol.ReadOnlyMany, []csivol.AccessMode{csivol.ReadWriteOnce}, []csivol.AccessMode{csivol.ReadOnlyMany}},
		{csivol.ReadWriteOnce, []csivol.AccessMode{csivol.ReadOnlyMany, csivol.ReadWriteMany}, []csivol.AccessMode{csivol.ReadWriteOnce, csivol.ReadOnlyMany, csivol.ReadWriteMany}},
	} {
		n := newClusterNode(t)
		n.bridge.Drivers.All[0].Map = withModes(append([]csivol.AccessMode{test.first}, test.more...)...)
		n.succeed("mount", n.podDir("p1"), options)
		if got := n.cluster.asked[0].AccessModes; !slices.Equal(got, test.want) {
			t.Errorf("%s, %v: attached as %v, want %v", test.first, test.more, got, test.want)
		}
		n.succeed("unmount", n.podDir("p1"))
		n.empty()
	}
}

// TestAttacherReadsSecretsItself: what it cannot read it is not asked to do
// without.
func TestAttacherReadsSecretsItself(t *testing.T) {
	n := newClusterNode(t)
	n.bridge.Drivers.All[0].AttachSecretsHere = true
	n.fail("secrets.controllerPublish.secretRef", "mount", n.podDir("p1"), options)
	if got := n.cluster.called(); got != "" {
		t.Errorf("the cluster was asked: %s", got)
	}
	n.empty()
}

// TestUncertainAttachGoesOn: who gives up waiting undoes nothing; the next mount
// waits for the same, unmount takes it back, and if neither comes Reconcile does.
func TestUncertainAttachGoesOn(t *testing.T) {
	for _, arrives := range []bool{false, true} {
		for _, then := range []string{"mount", "unmount", "reconcile", "restart and reconcile"} {
			n := newClusterNode(t)
			dir := n.podDir("p1")
			n.cluster.fail["Attach"] = []error{flex.Errorf(flex.CodeUnavailable, "no API server")}
			n.cluster.after["Attach"] = arrives
			n.fail("no API server", "mount", dir, options)
			if got := n.cluster.called(); got != "Attach" {
				t.Errorf("a mount that is given up called %s, want Attach: it is not undone", got)
			}
			switch then {
			case "mount":
				n.succeed("mount", dir, options)
				n.succeed("unmount", dir)
			case "unmount":
				n.succeed("unmount", dir)
			case "restart and reconcile":
				n.start("boot-1")
				fallthrough
			default:
				n.bridge.Grace = 1
				n.settle()
			}
			n.empty()
			if t.Failed() {
				t.Fatalf("arrives %t, then %s", arrives, then)
			}
		}
	}
}

// TestSlowAttachTellsWhy: what the driver said gets into the answer, before the
// caller leaves.
func TestSlowAttachTellsWhy(t *testing.T) {
	n := newClusterNode(t)
	n.cluster.slow["Attach"] = true
	d, err := n.bridge.Callouts(flexDriver)
	if err != nil {
		t.Fatal(err)
	}
	d.Timeout = func(flex.Command) time.Duration { return 4 * time.Second }
	dir := n.podDir("p1")
	s := flex.Run(t.Context(), d, []string{"mount", dir, options})
	if s.Code != flex.CodeDeadlineExceeded || !strings.Contains(s.Message, "no disk like that") {
		t.Errorf("%+v", s)
	}
	n.cluster.hurry()
	n.succeed("mount", dir, options)
	n.succeed("unmount", dir)
	n.empty()
}

// TestPutRight: what was asked for could not be attached, and the configuration
// was changed. Another PersistentVolume of the same handle has no say in that.
func TestPutRight(t *testing.T) {
	n := newClusterNode(t)
	n.hurried()
	dir := n.podDir("p1")
	n.cluster.slow["Attach"] = true
	n.fail("still attaching", "mount", dir, options)
	n.start("boot-1")
	right := strings.Replace(options, "ext4", "xfs", 1)
	n.fail("must agree", "mount", strings.Replace(n.podDir("p2"), "pv1", "pv2", 1), strings.Replace(right, `"pv1"`, `"pv2"`, 1))
	n.cluster.hurry()
	n.cluster.called()
	n.succeed("mount", dir, right)
	if got, want := n.cluster.called(), "Detach Attach"; got != want {
		t.Errorf("called %s, want %s", got, want)
	}
	if got := n.cluster.asked[len(n.cluster.asked)-1].FSType; got != "xfs" {
		t.Errorf("asked for %s", got)
	}
	n.succeed("unmount", dir)
	n.empty()
}

// TestPodGoneBeforeItsVolumeCame: another node must not wait for the grace
// period.
func TestPodGoneBeforeItsVolumeCame(t *testing.T) {
	n := newClusterNode(t)
	n.hurried()
	n.cluster.slow["Attach"] = true
	n.fail("still attaching", "mount", n.podDir("p1"), options)
	n.settle()
	if got := n.cluster.called(); got != "Attach" {
		t.Errorf("with the pod still there called %s", got)
	}
	if err := os.RemoveAll(filepath.Join(n.dir, "pods/p1")); err != nil {
		t.Fatal(err)
	}
	n.settle()
	n.empty()
}

// TestNotBegun: another node has the volume, and nothing is there to be undone.
func TestNotBegun(t *testing.T) {
	n := newClusterNode(t)
	n.cluster.fail["Attach"] = []error{&flex.Error{Code: flex.CodeFailedPrecondition, Err: errors.Join(errors.New("node-2 has it"), csivol.ErrNotBegun)}}
	s := n.fail("node-2", "mount", n.podDir("p1"), options)
	if got := n.cluster.called(); got != "Attach" || s.Code != flex.CodeFailedPrecondition {
		t.Errorf("called %s, %+v", got, s)
	}
	n.empty()
}

// TestAwaitedAttachment: with attach:true the control plane attaches, and
// mount waits for it.
func TestAwaitedAttachment(t *testing.T) {
	n := newClusterNode(t)
	n.hurried()
	dir, device := n.podDir("p1"), n.deviceDir()
	if err := os.MkdirAll(device, 0o750); err != nil {
		t.Fatal(err)
	}
	n.succeed("mountdevice", device, "csi:h1", options)
	n.fail("no disk like that", "mount", dir, options)
	n.cluster.request(objectName, &csivol.Attachment{Driver: "csi.example.com", Handle: "h1", Node: "node-1"}, true)
	n.succeed("mount", dir, options)
	n.succeed("unmount", dir)
	n.succeed("unmountdevice", device)
	if got, want := n.cluster.called(), "Await Await"; got != want {
		t.Errorf("called %s, want %s", got, want)
	}
	if records, _, _ := n.store.Load(); len(records) > 0 {
		t.Errorf("the record is left: %+v", records[0])
	}
}

// TestNodeAttaches: a kubelet that attaches by itself calls attach and detach.
func TestNodeAttaches(t *testing.T) {
	n := newClusterNode(t)
	n.hurried()
	device := n.deviceDir()
	if err := os.MkdirAll(device, 0o750); err != nil {
		t.Fatal(err)
	}
	n.succeed("attach", options, "node-1")
	n.succeed("isattached", options, "node-1")
	n.succeed("mountdevice", device, "csi:h1", options)
	n.succeed("unmountdevice", device)
	if got, want := n.cluster.called(), "Attach"; got != want {
		t.Errorf("called %s, want %s: detach is a callout of its own", got, want)
	}
	n.cluster.set(func() { n.cluster.slow["Detach"] = true })
	n.fail("still detaching", "detach", "pv1", "node-1")
	n.cluster.hurry()
	n.succeed("detach", "pv1", "node-1")
	n.empty()
}

// TestAttachWantsAPod: without one that may have the volume nothing is attached;
// what is attached already goes on.
func TestAttachWantsAPod(t *testing.T) {
	n := newClusterNode(t)
	n.hurried()
	d := n.bridge.Drivers.All[0]
	asked := 0
	d.MayAttach = func(_ context.Context, v *csivol.Volume, node string) error {
		asked++
		return flex.Errorf(flex.CodeFailedPrecondition, "no pod of %s has %s", node, v.Name)
	}
	n.fail("no pod of node-1 has pv1", "attach", options, "node-1")
	if got := n.cluster.called(); got != "" || asked != 1 {
		t.Errorf("called %q, asked %d times", got, asked)
	}
	n.empty()
	d.MayAttach = nil
	n.succeed("attach", options, "node-1")
	d.MayAttach = func(context.Context, *csivol.Volume, string) error { return errAway }
	n.succeed("attach", options, "node-1")
	n.succeed("detach", "pv1", "node-1")
	n.empty()
}

// TestInlineIsWrittenDown: what the configuration lets in without a PersistentVolume
// can be told from the rest.
func TestInlineIsWrittenDown(t *testing.T) {
	n := newClusterNode(t)
	d := n.bridge.Drivers.All[0]
	n.succeed("mount", n.podDir("p1"), options)
	if n.record().Inline {
		t.Error("a PersistentVolume is an inline volume")
	}
	d.Map = func(ctx context.Context, o flex.Options) (*csivol.Volume, error) {
		v, err := mapOptions(ctx, o)
		v.Inline = true
		return v, err
	}
	n.succeed("mount", n.podDir("p2"), options)
	n.start("boot-1")
	if !n.record().Inline {
		t.Error("that the second pod was let in with an inline volume is not recorded")
	}
	n.succeed("unmount", n.podDir("p1"))
	n.succeed("unmount", n.podDir("p2"))
	n.empty()
}
