package migrate_test

import (
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/internal/migrate"
)

// TestPlanTable: the table has the flag that accepts a decision, and the manifest for an inline
// volume, which the guides send people to the plan for. That was in other formats only.
func TestPlanTable(t *testing.T) {
	plan := &migrate.Plan{Checks: []migrate.Check{
		{Name: "rights", Status: migrate.Decide, Evidence: "not known"}, {Name: "owners", Status: migrate.Decide, Evidence: "Argo CD", Do: "pause it"},
	}, Related: []migrate.Related{
		{
			Kind: "inline volume", Name: "shop/web, volume media", What: "no PersistentVolume", Steps: []string{"make one"},
			Replacement: map[string]any{"kind": "PersistentVolume", "spec": map[string]any{"csi": map[string]any{"volumeHandle": "media@host:share"}}},
		},
		{Kind: "StorageClass", Name: "old", What: "makes FlexVolumes"},
	}}
	var b strings.Builder
	if err := plan.Table(&b, false); err != nil {
		t.Fatal(err)
	}
	const accept = `
decide   rights: not known
           → to accept that: --accept rights

decide   owners: Argo CD
           → pause it; to accept that: --accept owners
`
	const want = `
  - make one
    kind: PersistentVolume
    spec:
      csi:
        volumeHandle: media@host:share

StorageClass old: makes FlexVolumes
`
	if !strings.Contains(b.String(), want) || !strings.Contains(b.String(), accept) {
		t.Errorf("the plan is\n%s", b.String())
	}
}
