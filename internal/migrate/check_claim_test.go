package migrate_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/migrate"
)

func TestClaimChecks(t *testing.T) {
	finds(t, map[string]finding{
		"another claim":    {func(s *stock) { s.claim.UID = "another" }, "claim", migrate.Fails, "another one (uid another)"},
		"no claim":         {func(s *stock) { s.claim.Name = "another" }, "claim", migrate.Fails, "not there"},
		"deleted":          {func(s *stock) { s.claim.DeletionTimestamp = new(metav1.NewTime(time.Unix(0, 0))) }, "claim", migrate.Fails, "being deleted"},
		"bound by hand":    {func(s *stock) { s.claim.Annotations = nil }, "claim", migrate.Fails, "pv.kubernetes.io/bind-completed"},
		"another class":    {func(s *stock) { s.claim.Spec.StorageClassName = new("fast") }, "storage-class", migrate.Note, `"fast"`},
		"nothing is amiss": {func(*stock) {}, "claim", migrate.OK, "stays as it is (uid claim)"},
	})
}
