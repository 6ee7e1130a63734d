package migrate_test

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/flex2csi/flex2csi/internal/objects"
)

// shop is a cluster with one FlexVolume; a pod may use its claim on a node.
func shop(pod *corev1.Pod) []runtime.Object {
	all := []runtime.Object{
		&corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pv1", UID: "flex", Labels: map[string]string{"tier": "db"}, Annotations: map[string]string{"example.com/note": `<stays> & is "kept"`, "pv.kubernetes.io/provisioned-by": "old.example.com"}},
			Spec: corev1.PersistentVolumeSpec{
				Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
				ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "shop", Name: "orders", UID: "claim"},
				PersistentVolumeSource:        corev1.PersistentVolumeSource{FlexVolume: &corev1.FlexPersistentVolumeSource{Driver: "example.com/disk", FSType: "ext4", Options: map[string]string{"volumeID": "vol-1"}}},
			},
		},
		&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", UID: "claim", Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}},
			Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv1", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}},
		},
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "disk.csi.example.com"}},
		&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "disk.csi.example.com", NodeID: "node-1"}}}},
		&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "node-1", Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}},
			Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: "boot", KubeletVersion: "v1.37.1"}, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		},
	}
	if pod == nil {
		return all
	}
	return append(all, pod, &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: objects.AttachmentName("vol-1", "disk.csi.example.com", "node-1"), Labels: map[string]string{objects.ManagedByLabel: objects.ManagedBy}},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: "disk.csi.example.com", NodeName: "node-1", Source: storagev1.VolumeAttachmentSource{InlineVolumeSpec: &corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.csi.example.com", VolumeHandle: "vol-1"}},
		}}},
		Status: storagev1.VolumeAttachmentStatus{Attached: true},
	})
}

// podOf uses the claim on the node; it is of a StatefulSet.
func podOf() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders-0", UID: "pod", OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "orders", UID: "set", Controller: new(true)}}},
		Spec: corev1.PodSpec{NodeName: "node-1", Volumes: []corev1.Volume{{
			Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "orders"}},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
}
