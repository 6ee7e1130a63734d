package migrate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/migrate"
)

// TestNotThere: a claim that has no volume was called a PersistentVolume, and no message said
// what to do.
func TestNotThere(t *testing.T) {
	a := caseAPI(t, "pvann0")
	p := &migrate.Planner{Client: a.client(), Config: caseConfig(t, "pvann0"), Now: time.Now}
	_, err := p.Plan(t.Context(), &migrate.Selection{Names: []string{"pv1", "pv9"}, Claims: []string{"shop/data", "shop/nope"}})
	const want = "there is no PersistentVolume pv9, and none of claim shop/nope: flex2csi migrate plan --all shows the FlexVolumes"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}
