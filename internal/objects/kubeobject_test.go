package objects_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/objects"
)

func TestPod(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", UID: "uid", Annotations: map[string]string{objects.ConfigHash: "static"}},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{
			{Name: "a", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
			{Name: "b", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
			{Name: "c", VolumeSource: corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{Driver: "example.com/disk"}}},
			{Name: "d", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		}},
	}
	for claim, want := range map[string]bool{"data": true, "cart-b": true, "b": false, "cart-c": false, "": false} {
		if got := objects.PodUsesClaim(pod, "shop", claim); got != want {
			t.Errorf("it uses claim %q: %t, want %t", claim, got, want)
		}
		if objects.PodUsesClaim(pod, "other", claim) {
			t.Errorf("it uses claim %q of another namespace", claim)
		}
	}
	if f := objects.InlineFlexVolume(pod, "c"); f == nil || f.Driver != "example.com/disk" || objects.InlineFlexVolume(pod, "d") != nil {
		t.Errorf("inline FlexVolume %v", f)
	}
	if got := objects.PodUIDs(pod); !slices.Equal(got, []string{"uid", "static"}) {
		t.Errorf("UIDs %v", got)
	}
	for phase, want := range map[corev1.PodPhase]bool{corev1.PodPending: false, corev1.PodRunning: false, corev1.PodUnknown: false, corev1.PodSucceeded: true, corev1.PodFailed: true} {
		if pod.Status.Phase = phase; objects.PodFinished(pod) != want {
			t.Errorf("%s is finished: %t", phase, !want)
		}
	}
}

func TestNode(t *testing.T) {
	csi, flexVolume := objects.CSIVolumeName("disk.csi.example.com", "h"), objects.FlexVolumeName("example.com/disk", "pv")
	if csi != "kubernetes.io/csi/disk.csi.example.com^h" || flexVolume != "example.com/disk/pv" {
		t.Errorf("unique names %s, %s", csi, flexVolume)
	}
	n := &corev1.Node{Status: corev1.NodeStatus{
		Conditions:   []corev1.NodeCondition{{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue}, {Type: corev1.NodeReady, Status: corev1.ConditionUnknown}},
		VolumesInUse: []corev1.UniqueVolumeName{flexVolume}, VolumesAttached: []corev1.AttachedVolume{{Name: csi}},
	}}
	if !objects.VolumeInUse(n, flexVolume) || objects.VolumeInUse(n, csi) || !objects.VolumeAttached(n, csi) || objects.VolumeAttached(n, flexVolume) {
		t.Error("volumes of the node")
	}
	if objects.NodeReady(n) || objects.NodeOutOfService(n) {
		t.Error("a node that is not heard of is ready, or out of service")
	}
	n.Status.Conditions[1].Status = corev1.ConditionTrue
	n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService}}
	if !objects.NodeReady(n) || !objects.NodeOutOfService(n) {
		t.Error("a node that is ready and out of service")
	}
}
