package migrate_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/migrate"
)

func TestClaimChecks(t *testing.T) {
	finds(t, map[string]finding{
		"another claim": {func(s *stock) { s.claim.UID = "another" }, "claim", migrate.Fails, "another one (uid another)"},
		"no claim":      {func(s *stock) { s.claim.Name = "another" }, "claim", migrate.Fails, "not there"},
		"deleted":       {func(s *stock) { s.claim.DeletionTimestamp = new(metav1.NewTime(time.Unix(0, 0))) }, "claim", migrate.Fails, "being deleted"},
		"bound by hand": {func(s *stock) { s.claim.Annotations = nil }, "claim", migrate.Fails, "pv.kubernetes.io/bind-completed"},
		"another class": {func(s *stock) { s.claim.Spec.StorageClassName = new("fast") }, "storage-class", migrate.Note, `"fast"`},
		"expanding": {func(s *stock) {
			s.claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimResizing, Status: corev1.ConditionTrue}}
		}, "expansion", migrate.Fails, "condition Resizing"},
		"the filesystem is to be expanded": {func(s *stock) {
			s.claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue}}
		}, "expansion", migrate.Fails, "condition FileSystemResizePending"},
		"expanded": {func(s *stock) {
			s.claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimResizing, Status: corev1.ConditionFalse}}
		}, "expansion", migrate.OK, "no expansion is pending"},
		"a node is to expand it": {func(s *stock) {
			s.pv.Annotations["volume.alpha.kubernetes.io/pre-resize-capacity"] = "1Gi"
		}, "expansion", migrate.Fails, "pre-resize-capacity: 1Gi"},
		"to be expanded":   {func(s *stock) { s.sizes("2Gi", "1Gi") }, "expansion", migrate.Fails, "has 1Gi, and wants 2Gi"},
		"a bigger volume":  {func(s *stock) { s.sizes("1Gi", "2Gi") }, "expansion", migrate.OK, "no expansion is pending"},
		"nothing is amiss": {func(*stock) {}, "claim", migrate.OK, "stays as it is (uid claim)"},
	})
}

// sizes are what the claim wants and has.
func (s *stock) sizes(wants, has string) {
	s.claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(wants)}
	s.claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(has)}
}
