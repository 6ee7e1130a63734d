package cluster

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/csidriver/fault"
)

// short is a deadline of flexdriver's that lets a callout wait three seconds.
const short = 6 * time.Second

// testAttacherAway: a mount says what it waits for, and what it has asked for
// goes on; an unmount does not wait for an attacher.
func testAttacherAway(t *testing.T, c *cluster) {
	w := newWorld(t, c, options{})
	n, v := w.nodes[0], w.volume("disk")
	w.attacher.Kill()
	n.timeout = short
	n.mustFail(n.tryMount(v, "pod-a"), n.attachmentName(v))
	w.must(w.attacher.Start())
	n.timeout = patience
	n.mount(v, "pod-a")
	w.attacher.Kill()
	n.unmount(v, "pod-a") // without its end
	if o := n.attachment(v); o == nil || o.DeletionTimestamp == nil {
		t.Errorf("without an attacher the VolumeAttachment is %+v, want one that is to be deleted", o)
	}
	w.must(w.attacher.Start())
	n.wantNothing()
	w.wantAttached(v.handle, 1)
}

// testAttacherGivenUp: a pod that is deleted before its volume is attached.
func testAttacherGivenUp(t *testing.T, c *cluster) {
	w := newWorld(t, c, options{})
	n, v := w.nodes[0], w.volume("disk")
	n.timeout = short
	for name, rule := range map[string]fault.Rule{
		"final":     {Method: "ControllerPublishVolume", Code: codes.InvalidArgument, Message: "no disk of this kind"},
		"uncertain": {Method: "ControllerPublishVolume", Code: codes.Internal, Message: "the storage hiccups", After: true},
		"slow":      {Method: "ControllerPublishVolume", Hang: true},
	} {
		w.fail(rule)
		n.mustFail(n.tryMount(v, "pod-"+name), n.attachmentName(v), rule.Message)
		w.fail()
		n.unmount(v, "pod-"+name)
		n.wantNothing()
		w.wantBalance()
	}
}

// testAttacherErrors: the driver's own words reach the pod's events, and the
// mount succeeds once the attacher does.
func testAttacherErrors(t *testing.T, c *cluster) {
	w := newWorld(t, c, options{})
	n := w.nodes[0]
	for name, rule := range map[string]fault.Rule{
		"final":     {Method: "ControllerPublishVolume", Code: codes.NotFound, Message: "no such disk", Times: 2},
		"uncertain": {Method: "ControllerPublishVolume", Code: codes.DeadlineExceeded, After: true, Times: 2},
		"slow":      {Method: "ControllerPublishVolume", Delay: fault.Duration(2 * time.Second)},
		"unpublish": {Method: "ControllerUnpublishVolume", Code: codes.Internal, Message: "busy", Times: 2},
		"undone":    {Method: "ControllerUnpublishVolume", Code: codes.Internal, After: true, Times: 2},
	} {
		v := w.volume(name)
		w.fail(rule)
		n.retryMount(v, "pod-"+name)
		n.unmount(v, "pod-"+name)
		n.wantNothing()
		w.wantBalance()
	}
}

// testAttacherModes: a PersistentVolume may have ReadWriteOnce and ReadOnlyMany, of
// which the external-attacher refuses to make one mode of CSI.
func testAttacherModes(t *testing.T, c *cluster) {
	w := newWorld(t, c, options{nodes: 2})
	v := w.volume("disk", corev1.ReadWriteOnce, corev1.ReadOnlyMany)
	w.nodes[0].mount(v, "pod-a")
	w.nodes[1].timeout = short
	w.nodes[1].mustFail(w.nodes[1].tryMount(v, "pod-b"), "multi-attach")
	w.nodes[0].unmount(v, "pod-a")
	w.nodes[0].wantNothing()
	w.wantBalance()
}

// testAttachLimit: a node that is full says so, with numbers.
func testAttachLimit(t *testing.T, c *cluster) {
	w := newWorld(t, c, options{count: 1, maxVolumes: 1})
	n, first, second := w.nodes[0], w.volume("first"), w.volume("second")
	n.mount(first, "pod-a")
	n.timeout = short
	n.refused(second, "pod-b", "1 of at most 1")
	n.timeout = patience
	n.unmount(first, "pod-a")
	n.mount(second, "pod-b")
	n.unmount(second, "pod-b")
	n.wantNothing()
	w.wantBalance()
}

// testNotRegistered: a CSI driver that the kubelet does not know cannot be
// attached to its node, which the message has to say.
func testNotRegistered(t *testing.T, c *cluster) {
	w := newWorld(t, c, options{})
	n, v := w.nodes[0], w.volume("disk")
	w.forgetDriver(n)
	n.timeout = short
	n.refused(v, "pod-a", "not registered", n.name)
	n.unmount(v, "pod-a")
	n.wantNothing()
}

// success is what a callout has to answer in a goroutine.
func success(s flex.DriverStatus) bool { return s.Status == flex.StatusSuccess }
