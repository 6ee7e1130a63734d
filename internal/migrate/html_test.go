package migrate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/report"
)

// TestHTML: the pages have what people look for, and no markup of a name.
func TestHTML(t *testing.T) {
	const hostile = "<script>alert(1)</script>"
	plan := &migrate.Plan{
		Server: "api:6443", Made: time.Unix(0, 0),
		Checks: []migrate.Check{{Name: "rights", Status: migrate.Fails, Evidence: "may not list pods"}, {Name: "fine", Status: migrate.OK, Evidence: "not shown"}},
		Volumes: []*migrate.PlannedVolume{
			{Name: "orders", Claim: "shop/orders", FlexDriver: hostile, Method: migrate.PodRestart, Pods: []migrate.Pod{{Node: "node-7"}}, Checks: []migrate.Check{{Name: "bridge", Status: migrate.NotLive, Evidence: "an old mount"}}},
		},
		Related: []migrate.Related{{Kind: "StorageClass", Name: "old", What: "makes FlexVolumes"}},
	}
	situation := &migrate.Situation{
		Server: "api:6443", Remaining: map[string]int{hostile: 3, "b/b": 4}, Problems: []string{"nodes were not read"},
		Volumes: []migrate.VolumeStatus{{Name: "orders", Claim: "shop/orders", FlexDriver: hostile, State: migrate.Halted, Since: time.Unix(0, 0), Next: "resume it"}, {Name: "done", State: migrate.Migrated, LostSeconds: 0.734}},
	}
	var a, b strings.Builder
	if err := plan.Show(report.Page).Write(&a, report.Page); err != nil {
		t.Fatal(err)
	}
	if err := situation.Show(report.Page).Write(&b, report.Page); err != nil {
		t.Fatal(err)
	}
	for page, wants := range map[string][]string{
		a.String(): {"api:6443, 1970-01-01 00:00 UTC", "after a pod restart", "bridge: an old mount", "fails, rights: may not list pods", "StorageClass old: makes FlexVolumes", "node-7", ">shop<"},
		b.String(): {"HALTED", "resume it", "nodes were not read", "<dd>7</dd>", "<dd>1</dd>", ">0.73<", ">0.5 to 1 s<", ">2 to 15 s<", ">shop<", "1970-01-01 00:00 UTC"},
	} {
		for _, want := range wants {
			if !strings.Contains(page, want) {
				t.Errorf("%q is not in\n%s", want, page)
			}
		}
		if strings.Contains(page, hostile) || strings.Contains(page, "not shown") {
			t.Errorf("it has what it should not:\n%s", page)
		}
	}
}
