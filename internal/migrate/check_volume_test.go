package migrate_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/migrate"
)

func TestVolumeChecks(t *testing.T) {
	finds(t, map[string]finding{
		"migrated": {func(s *stock) {
			s.pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.csi.example.com", VolumeHandle: "vol-1"}}
			s.pv.Annotations[migrate.FlexDriverAnnotation] = "example.com/disk"
		}, "flex-volume", migrate.Fails, "a FlexVolume of example.com/disk"},
		"CSI": {func(s *stock) {
			s.pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.csi.example.com", VolumeHandle: "vol-1"}}
		}, "flex-volume", migrate.Fails, "a CSI volume of disk.csi.example.com"},
		"another source": {func(s *stock) {
			s.pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "a", Path: "/b"}}
		}, "flex-volume", migrate.Fails, "no FlexVolume"},
		"deleted": {func(s *stock) {
			s.pv.DeletionTimestamp = new(metav1.NewTime(time.Unix(0, 0)))
		}, "state", migrate.Fails, "1970-01-01T00:00:00Z"},
		"no claim": {func(s *stock) {
			s.pv.Spec.ClaimRef, s.pv.Status.Phase = nil, corev1.VolumeAvailable
		}, "state", migrate.Note, "Available"},
		"a block device": {func(s *stock) { s.pv.Spec.VolumeMode = new(corev1.PersistentVolumeBlock) }, "state", migrate.Fails, "Block"},

		"the control plane's finalizers": {func(s *stock) {
			s.pv.Finalizers = []string{"kubernetes.io/pv-protection", "external-attacher/old-example-com"}
		}, "finalizers", migrate.OK, "kubernetes.io/pv-protection, external-attacher/old-example-com"},
		"a finalizer that only its owner removes": {func(s *stock) {
			s.pv.Finalizers = []string{"kubernetes.io/pv-protection", "example.com/keep"}
		}, "finalizers", migrate.Fails, "example.com/keep, which is none"},
		"a provisioner's finalizer": {func(s *stock) {
			s.pv.Finalizers = []string{"external-provisioner.volume.kubernetes.io/finalizer"}
		}, "finalizers", migrate.Fails, "external-provisioner.volume.kubernetes.io/finalizer"},

		"read-only":     {func(s *stock) { s.pv.Spec.FlexVolume.ReadOnly = true }, "read-only", migrate.Note, "had no effect"},
		"mount options": {func(s *stock) { s.pv.Spec.MountOptions = []string{"noatime"} }, "mount-options", migrate.Note, "(noatime)"},
	})
}
