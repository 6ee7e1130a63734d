package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// reconciled is a few rounds of kube-controller-manager, which is told to make
// one each second.
const reconciled = 4 * time.Second

// testLeftAlone: kube-controller-manager leaves our attachments alone, also
// when it starts and finds them.
func testLeftAlone(t *testing.T, c *cluster) {
	w := newWorld(t, c, options{object: &storagev1.CSIDriverSpec{}})
	n, v := w.nodes[0], w.volume("disk")
	w.Pod(metav1.NamespaceDefault, v.name, n.name, "", v.name)
	n.mount(v, "pod-a")
	before := n.attachment(v)
	w.must(c.kcm.Restart())
	time.Sleep(reconciled)
	if o := n.attachment(v); o == nil || o.UID != before.UID || o.DeletionTimestamp != nil || !o.Status.Attached {
		t.Errorf("kube-controller-manager made of our attachment: %+v", o)
	}
	n.unmount(v, "pod-a")
	n.wantNothing()
	w.wantAttached(v.handle, 1)
}

// testAdopted: a PersistentVolume that becomes a CSI one under its pod. The
// control plane takes the attachment over, and it is left to it. What is staged is
// not, as no kubelet comes to have it before the daemon's patience (a fifth of its
// grace period) ends.
func testAdopted(t *testing.T, c *cluster) {
	w := newWorld(t, c, options{object: &storagev1.CSIDriverSpec{}, grace: 10 * time.Second})
	n, v := w.nodes[0], w.volume("disk")
	pod := w.Pod(metav1.NamespaceDefault, v.name, n.name, "", v.name)
	n.mount(v, "pod-a")
	before := n.attachment(v)
	w.migrate(v)
	w.wait("adoption", func() bool {
		// The control plane looks at a pod's volumes when the pod changes, and else
		// every three minutes.
		change := fmt.Appendf(nil, `{"metadata":{"annotations":{"looked":%q}}}`, time.Now())
		_, err := w.Admin().CoreV1().Pods(pod.Namespace).Patch(t.Context(), pod.Name, types.MergePatchType, change, metav1.PatchOptions{})
		w.must(err)
		node, err := w.Admin().CoreV1().Nodes().Get(t.Context(), n.name, metav1.GetOptions{})
		return err == nil && hasAttached(node, w.driver, v)
	})
	n.unmount(v, "pod-a")
	time.Sleep(reconciled)
	if o := n.attachment(v); o == nil || o.UID != before.UID || o.DeletionTimestamp != nil {
		t.Errorf("after our last unmount the adopted attachment is %+v", o)
	}
	if calls := w.calls("ControllerUnpublishVolume"); len(calls) > 0 {
		t.Errorf("detached under its pod: %+v", calls)
	}
	w.must(w.Admin().CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
	n.wantNothing()
	w.wantAttached(v.handle, 1)
}

// migrate replaces the PersistentVolume by a CSI one.
func (w *world) migrate(v *volume) {
	w.t.Helper()
	pvs := w.Admin().CoreV1().PersistentVolumes()
	// The controller that removes the protection does not run here.
	_, err := pvs.Patch(w.t.Context(), v.name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	w.must(err)
	w.must(pvs.Delete(w.t.Context(), v.name, metav1.DeleteOptions{}))
	w.PersistentVolume(v.name, w.csiSource(v), corev1.ReadWriteOnce)
}

func (w *world) csiSource(v *volume) corev1.PersistentVolumeSource {
	return corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: w.driver, VolumeHandle: v.handle, FSType: "ext4"}}
}

// hasAttached reports whether kube-controller-manager says that it has attached
// a CSI volume.
func hasAttached(node *corev1.Node, driver string, v *volume) bool {
	unique := corev1.UniqueVolumeName("kubernetes.io/csi/" + driver + "^" + v.handle)
	return slices.ContainsFunc(node.Status.VolumesAttached, func(a corev1.AttachedVolume) bool { return a.Name == unique })
}

// testDeleted: a person deletes an attachment that pods use, finalizer and all.
// The daemon asks for it again.
func testDeleted(t *testing.T, c *cluster) {
	w := newWorld(t, c, options{})
	n, v := w.nodes[0], w.volume("disk")
	n.mount(v, "pod-a")
	before := n.attachment(v)
	w.attacher.Kill()
	all := w.Admin().StorageV1().VolumeAttachments()
	w.must(all.Delete(t.Context(), before.Name, metav1.DeleteOptions{}))
	_, err := all.Patch(t.Context(), before.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	w.must(err)
	w.must(w.attacher.Start())
	w.eventually(func() bool {
		o := n.attachment(v)
		return o != nil && o.UID != before.UID && o.Status.Attached
	}, func() { t.Errorf("a deleted attachment is now %+v", n.attachment(v)) })
	n.mount(v, "pod-b")
	n.unmount(v, "pod-a")
	n.unmount(v, "pod-b")
	n.wantNothing()
	w.wantAttached(v.handle, 1)
}

// testDeleting: a person, or the control plane, deletes an attachment that pods
// use, and the driver refuses to detach what is staged. What is about to go is
// given to no other pod.
func testDeleting(t *testing.T, c *cluster) {
	w := newWorld(t, c, options{})
	n, v := w.nodes[0], w.volume("disk")
	n.mount(v, "pod-a")
	before := n.attachment(v)
	w.must(w.Admin().StorageV1().VolumeAttachments().Delete(t.Context(), before.Name, metav1.DeleteOptions{}))
	w.wait("the driver's refusal", func() bool {
		o := n.attachment(v)
		return o != nil && o.Status.DetachError != nil
	})
	n.timeout = short
	n.mustFail(n.tryMount(v, "pod-b"), "still staged", before.Name)
	n.timeout = patience
	n.unmount(v, "pod-b")
	n.unmount(v, "pod-a")
	n.mount(v, "pod-c")
	n.unmount(v, "pod-c")
	n.wantNothing()
	w.wantBalance()
}
