package migrate_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
)

// TestPlanForGit: the replacement is written without what the API server alone writes, as it
// may be committed.
func TestPlanForGit(t *testing.T) {
	all := shop(nil)
	pv := all[0].(*corev1.PersistentVolume)
	pv.CreationTimestamp, pv.Generation, pv.Spec.ClaimRef.ResourceVersion = metav1.NewTime(time.Unix(1, 0)), 3, "7"
	pv.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationApply}}
	j := &journey{t: t, api: newAPI(t, all...), mode: journal.Live, config: configuration}
	plan, err := j.runner().Planner.Plan(t.Context(), &migrate.Selection{All: true})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := plan.Write(dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "pv1.csi.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	object := map[string]any{}
	if err := yaml.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	keys := map[string][]string{}
	for name, of := range map[string]any{"": object, "metadata": object["metadata"], "claimRef": object["spec"].(map[string]any)["claimRef"]} {
		keys[name] = slices.Sorted(maps.Keys(of.(map[string]any)))
	}
	if diff := cmp.Diff(map[string][]string{
		"":         {"apiVersion", "kind", "metadata", "spec"},
		"metadata": {"annotations", "labels", "name"},
		"claimRef": {"kind", "name", "namespace", "uid"},
	}, keys); diff != "" {
		t.Errorf("-want +got:\n%s\n%s", diff, text)
	}
}
