package cluster

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/objects"
)

// testLife: one attachment for two pods, of the control plane's name, and
// nothing left in the end.
func testLife(t *testing.T, c *cluster) {
	w := newWorld(t, c, options{disks: true})
	n, v := w.nodes[0], w.volume("disk", corev1.ReadWriteOnce)
	n.mount(v, "pod-a")
	o := n.attachment(v)
	if o == nil {
		t.Fatalf("no VolumeAttachment %s, but %v", n.attachmentName(v), w.attachments())
	}
	checkAttachment(t, n, v, o)
	n.api.Requests()
	n.mount(v, "pod-a")
	n.mount(v, "pod-b")
	if got := n.api.Requests(); len(got) > 0 {
		t.Errorf("requests for what is attached: %v, want none", got)
	}
	n.unmount(v, "pod-a")
	if o := n.attachment(v); o == nil || !o.Status.Attached {
		t.Errorf("with a pod left: %v", o)
	}
	n.unmount(v, "pod-b")
	n.wantNothing()
	w.wantAttached(v.handle, 1)
}

func checkAttachment(t *testing.T, n *node, v *volume, o *storagev1.VolumeAttachment) {
	t.Helper()
	if !o.Status.Attached || len(o.Status.AttachmentMetadata) == 0 {
		t.Errorf("status %+v, want attached, with a publish context", o.Status)
	}
	if o.Spec.NodeName != n.name || o.Spec.Attacher != n.w.driver || o.Spec.Source.PersistentVolumeName != nil {
		t.Errorf("spec %+v", o.Spec)
	}
	spec := o.Spec.Source.InlineVolumeSpec
	if spec == nil || spec.CSI == nil || spec.CSI.VolumeHandle != v.handle || spec.CSI.Driver != n.w.driver ||
		!cmp.Equal(spec.AccessModes, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}) {
		t.Errorf("inline spec %+v", spec)
	}
	want := map[string]string{
		objects.ManagedByLabel: objects.ManagedBy, objects.AttachedByLabel: objects.AttachedByNode,
		objects.NodeLabel: n.name, objects.VolumeLabel: objects.VolumeID(n.w.driver, v.handle),
		objects.PersistentVolumeLabel: v.name,
	}
	if !maps.Equal(o.Labels, want) {
		t.Errorf("labels %v, want %v", o.Labels, want)
	}
	if got := o.Annotations[objects.FlexDriverAnnotation]; got != n.w.flexDriver {
		t.Errorf("annotation of the driver: %q", got)
	}
}
