package kube_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/kube"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/test/controlplane"
)

const (
	driver     = "disk.csi.example.com"
	flexDriver = "example.com/disk"
	finalizer  = "external-attacher/disk-csi-example-com"
)

// daemon is one that attaches, with a way of its own to the API server.
type daemon struct {
	*kube.Attachments
	cluster *kube.Cluster
	proxy   *controlplane.Proxy
	plane   *controlplane.Plane
	t       *testing.T
}

// start starts a daemon for a node.
func start(t *testing.T, p *controlplane.Plane, node string) *daemon {
	return startAs(t, p, node, objects.AttachedByNode)
}

func startAs(t *testing.T, p *controlplane.Plane, node, owner string) *daemon {
	t.Helper()
	d := &daemon{proxy: p.Proxy(), plane: p, t: t}
	d.connect(node, owner)
	if _, err := d.List(t.Context()); err != nil { // it is synced
		t.Fatal(err)
	}
	return d
}

func (d *daemon) connect(node, owner string) {
	d.t.Helper()
	var err error
	d.cluster, err = kube.Connect(kube.Options{
		Kubeconfig: d.proxy.Kubeconfig(controlplane.Admin),
		UserAgent:  "flex2csi-test",
		Node:       node,
		StateFile:  filepath.Join(d.t.TempDir(), "cluster.json"),
		Log:        slog.New(slog.NewTextHandler(d.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		d.t.Fatal(err)
	}
	d.Attachments = d.cluster.Attachments(node, owner)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.cluster.Run(ctx)
	}()
	d.t.Cleanup(func() {
		stop()
		<-done
	})
}

// volume is one that may be on one node.
func volume(handle, node string) *csivol.Attachment {
	return &csivol.Attachment{
		Driver: driver, Handle: handle, Node: node, FlexDriver: flexDriver, Name: "pv-" + handle,
		Context: map[string]string{"share": "/a"}, FSType: "ext4", AccessModes: []csivol.AccessMode{csivol.ReadWriteOnce},
	}
}

func name(a *csivol.Attachment) string { return objects.AttachmentName(a.Handle, a.Driver, a.Node) }

// within is a context for a call that should be over by then.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// attacher does by hand what the external-attacher does.
type attacher struct {
	p *controlplane.Plane
	t *testing.T
}

func (x attacher) get(name string) *storagev1.VolumeAttachment {
	o, err := x.p.Admin().StorageV1().VolumeAttachments().Get(x.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		x.t.Error(err)
	}
	return o
}

// wait waits until an attachment is as it should be; nil: it is not there.
func (x attacher) wait(name string, is func(*storagev1.VolumeAttachment) bool) *storagev1.VolumeAttachment {
	x.t.Helper()
	for deadline := time.Now().Add(15 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if o := x.get(name); is(o) {
			return o
		}
	}
	x.t.Errorf("VolumeAttachment %s did not become what it should: %v", name, x.get(name))
	return nil
}

func there(o *storagev1.VolumeAttachment) bool { return o != nil && o.DeletionTimestamp == nil }
func leaving(o *storagev1.VolumeAttachment) bool {
	return o != nil && o.DeletionTimestamp != nil
}

// change writes an attachment until it is not in conflict with others.
func (x attacher) change(name string, how func(*storagev1.VolumeAttachment), status bool) {
	x.t.Helper()
	client := x.p.Admin().StorageV1().VolumeAttachments()
	for {
		o := x.get(name)
		if o == nil {
			x.t.Errorf("there is no VolumeAttachment %s", name)
			return
		}
		how(o)
		var err error
		if status {
			_, err = client.UpdateStatus(x.t.Context(), o, metav1.UpdateOptions{})
		} else {
			_, err = client.Update(x.t.Context(), o, metav1.UpdateOptions{})
		}
		if apierrors.IsConflict(err) {
			continue
		}
		if err != nil {
			x.t.Error(err)
		}
		return
	}
}

// begin takes an attachment up.
func (x attacher) begin(name string) {
	x.t.Helper()
	x.change(name, func(o *storagev1.VolumeAttachment) { o.Finalizers = append(o.Finalizers, finalizer) }, false)
}

// attach says that it is attached.
func (x attacher) attach(name string) {
	x.t.Helper()
	x.wait(name, there)
	x.begin(name)
	x.change(name, func(o *storagev1.VolumeAttachment) {
		o.Status = storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{"device": "/dev/" + o.Spec.NodeName}}
	}, true)
}

// fail says what the driver said to an attach.
func (x attacher) fail(name, message string, code int32) {
	x.t.Helper()
	x.change(name, func(o *storagev1.VolumeAttachment) {
		o.Status.AttachError = &storagev1.VolumeError{Message: message, ErrorCode: &code, Time: metav1.Now()}
	}, true)
}

// detach says that it is detached.
func (x attacher) detach(name string) {
	x.t.Helper()
	x.wait(name, leaving)
	x.change(name, func(o *storagev1.VolumeAttachment) {
		o.Finalizers = slices.DeleteFunc(o.Finalizers, func(f string) bool { return f == finalizer })
	}, false)
}
