package migrate_test

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// settle has the controllers of the control plane and the node act on the objects as they are.
func (a *api) settle() {
	if a.quiet {
		return
	}
	list, err := a.object.List(objects.Claims().Resource, corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), "")
	if err != nil {
		a.t.Fatal(err)
	}
	_ = meta.EachListItem(list, func(o runtime.Object) error {
		u := o.(*unstructured.Unstructured)
		a.settleClaim(read(a, objects.Claims(), u.GetNamespace(), u.GetName()))
		return nil
	})
}

// settleClaim is what the volume controller does.
func (a *api) settleClaim(claim *corev1.PersistentVolumeClaim) {
	pv := read(a, objects.PersistentVolumes(), "", claim.Spec.VolumeName)
	phase := corev1.ClaimLost
	if pv != nil && pv.Spec.ClaimRef != nil && pv.Spec.ClaimRef.UID == claim.UID {
		phase = corev1.ClaimBound
		if pv.Status.Phase != corev1.VolumeBound {
			modify(a, objects.PersistentVolumes(), "", pv.Name, func(pv *corev1.PersistentVolume) { pv.Status.Phase = corev1.VolumeBound })
		}
	}
	if claim.Status.Phase != phase {
		modify(a, objects.Claims(), claim.Namespace, claim.Name, func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = phase })
	}
	if claim.Spec.VolumeName == "pv1" && read(a, objects.Nodes(), "", "node-1") != nil {
		a.settlePod(pv, phase == corev1.ClaimBound)
	}
}

// settlePod is what the StatefulSet, the scheduler and the node do.
func (a *api) settlePod(pv *corev1.PersistentVolume, bound bool) {
	pod := read(a, objects.Pods(), "shop", "orders-0")
	if pod == nil && a.replicas > 0 {
		pod = podOf()
		a.uids++
		pod.UID, pod.Spec.NodeName, pod.Status = types.UID(fmt.Sprintf("uid-%d", a.uids)), "", corev1.PodStatus{Phase: corev1.PodPending}
		a.add(pod)
	}
	if pod != nil && pod.Spec.NodeName == "" && bound { // the scheduler waits for the claim
		started := podOf()
		modify(a, objects.Pods(), "shop", "orders-0", func(p *corev1.Pod) { p.Spec.NodeName, p.Status = "node-1", started.Status })
		pod = read(a, objects.Pods(), "shop", "orders-0")
		a.attach(pv)
	}
	if pod != nil && pod.Spec.NodeName == "" {
		pod = nil // not on the node
	}
	if pod != nil && !bound {
		return
	}
	a.settleNode(pv, pod)
}

// attach is what the control plane does for a CSI volume, and the bridge for a FlexVolume.
func (a *api) attach(pv *corev1.PersistentVolume) {
	name := objects.AttachmentName("vol-1", "disk.csi.example.com", "node-1")
	if read(a, objects.VolumeAttachments(), "", name) != nil {
		return
	}
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.VolumeAttachmentSpec{Attacher: "disk.csi.example.com", NodeName: "node-1"}}
	va.Spec.Source.PersistentVolumeName = &pv.Name
	if pv.Spec.CSI == nil {
		va.Labels = map[string]string{objects.ManagedByLabel: objects.ManagedBy}
		va.Spec.Source = storagev1.VolumeAttachmentSource{InlineVolumeSpec: &corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.csi.example.com", VolumeHandle: "vol-1"},
		}}}
	}
	a.add(va)
}

// settleNode has the node of a volume's pods do what a kubelet, a bridge and the control plane
// do when the claim is bound; the pod is nil when it has ended.
func (a *api) settleNode(pv *corev1.PersistentVolume, pod *corev1.Pod) {
	isCSI := pv != nil && pv.Spec.CSI != nil
	d := bridgestatus.NodeVolumesOf("node-1", "boot", "v1", time.Unix(0, 0), nil, nil)
	d.FlexDrivers = []string{"example.com/disk"}
	if pod != nil && (pod.UID == "pod" || !isCSI) { // the bridge has mounted it
		d.Volumes = []bridgestatus.NodeVolume{{
			PersistentVolume: "pv1", FlexDriver: "example.com/disk", CSIDriver: "disk.csi.example.com", VolumeHandle: "vol-1", Staged: cmp.Or(a.staged, bridgestatus.StagedAsByKubelet),
			TakenOver: isCSI, Pods: []bridgestatus.NodePod{{UID: string(pod.UID), TakenOver: isCSI}},
		}}
	}
	text, err := d.Encode()
	if err != nil {
		a.t.Fatal(err)
	}
	document := read(a, objects.ConfigMaps(), bridgestatus.Namespace, "node-1")
	switch {
	case document == nil:
		a.add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: bridgestatus.Namespace, Name: "node-1", Labels: map[string]string{bridgestatus.Label: "true"}}, Data: map[string]string{bridgestatus.Key: text}})
	case document.Data[bridgestatus.Key] != text:
		modify(a, objects.ConfigMaps(), bridgestatus.Namespace, "node-1", func(m *corev1.ConfigMap) { m.Data[bridgestatus.Key] = text })
	}
	name := objects.AttachmentName("vol-1", "disk.csi.example.com", "node-1")
	va := read(a, objects.VolumeAttachments(), "", name)
	if va != nil && !va.Status.Attached { // the external-attacher
		modify(a, objects.VolumeAttachments(), "", name, func(va *storagev1.VolumeAttachment) { va.Status.Attached = true })
	}
	if va != nil && pod == nil {
		if err := a.object.Delete(objects.VolumeAttachments().Resource, "", name); err != nil {
			a.t.Fatal(err)
		}
	}
	var attached []corev1.AttachedVolume
	switch {
	case pod != nil && isCSI:
		attached = []corev1.AttachedVolume{{Name: "kubernetes.io/csi/disk.csi.example.com^vol-1"}}
	case pod != nil && a.vendor:
		attached = []corev1.AttachedVolume{{Name: objects.FlexVolumeName("example.com/disk", "pv1")}}
	}
	if node := read(a, objects.Nodes(), "", "node-1"); !slices.Equal(attached, node.Status.VolumesAttached) {
		modify(a, objects.Nodes(), "", "node-1", func(n *corev1.Node) { n.Status.VolumesAttached = attached })
	}
}

// person stops the pods when apply waits for that, and lets them start when it is done.
func (a *api) person(replicas int) {
	if a.replicas = replicas; replicas == 0 && read(a, objects.Pods(), "shop", "orders-0") != nil {
		_ = a.object.Delete(objects.Pods().Resource, "shop", "orders-0")
	}
	a.settle()
}
