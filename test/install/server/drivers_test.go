package server_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"github.com/flex2csi/flex2csi/test/controlplane"
)

// testDrivers: what Helm and kustomize make lets a node attach volumes of the CSI drivers
// in the configuration that each of them writes, and of no others.
func testDrivers(t *testing.T, p *controlplane.Plane) {
	p.Node("node-1")
	helm := map[string]any{
		"drivers": []any{
			map[string]any{"flexDriver": "example.com/disk", "csiDriver": "disk.csi.example.com", "attach": "VolumeAttachment", "volume": map[string]any{"handle": "options.id"}},
			map[string]any{"flexDriver": "example.com/last", "csiDriver": "last.csi.example.com"},
		},
		"policy": map[string]any{"drivers": []any{"more.csi.example.com"}},
	}
	renamed := maps.Clone(helm)
	renamed["fullnameOverride"] = "bridge"
	renamed["node"] = map[string]any{"serviceAccount": map[string]any{"name": "storage-account"}}
	all := []string{"disk.csi.example.com", "last.csi.example.com", "more.csi.example.com", "other.csi.example.com"}
	for i, by := range []struct {
		name, account string
		objects       []*unstructured.Unstructured
		allowed       []string
	}{
		{"kustomize", "flex2csi-node", overlay(t, "kubeadm"), all[:1]},
		{"helm", "flex2csi-node", chart(t, helm), all[:3]},
		{"helm, with other names", "storage-account", chart(t, renamed), all[:3]},
	} {
		for _, o := range by.objects {
			policy := strings.HasPrefix(o.GetKind(), "ValidatingAdmissionPolicy") && o.GetName() == "flex2csi-attachment-drivers"
			right := strings.HasPrefix(o.GetKind(), "ClusterRole") && strings.HasSuffix(o.GetName(), "-node")
			account := o.GetKind() == "ServiceAccount" && o.GetName() == by.account
			if policy || right || account || o.GetKind() == "ConfigMap" && o.GetNamespace() == "flex2csi" {
				if err := p.Replace(o); err != nil {
					t.Fatal(err)
				}
			}
		}
		pod := p.Pod("flex2csi", fmt.Sprintf("drivers-%d", i), "node-1", by.account)
		node := p.Client(p.ServiceAccountToken(pod))
		for _, driver := range all {
			wantAttach(t, node, by.name, driver, slices.Contains(by.allowed, driver))
		}
	}
}

// wantAttach tries until it is as wanted: the API server watches policies.
func wantAttach(t *testing.T, node kubernetes.Interface, name, driver string, allowed bool) {
	t.Helper()
	va := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "drivers-"},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: "node-1", Source: storagev1.VolumeAttachmentSource{InlineVolumeSpec: &corev1.PersistentVolumeSpec{
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "v"}},
		}}},
	}
	var err error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		_, err = node.StorageV1().VolumeAttachments().Create(t.Context(), va, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if allowed == (err == nil) && (allowed || strings.Contains(err.Error(), "the configuration has no CSI driver "+driver)) {
			return
		}
	}
	t.Errorf("%s: a volume of %s: %v, and allowed is %v", name, driver, err, allowed)
}
