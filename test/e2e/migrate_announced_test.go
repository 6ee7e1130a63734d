package e2e

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/internal/distribution"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/test/node"
)

// announcements are what a release does not allow, said before anything is changed.
func announcements() []scenario {
	return []scenario{{
		"migrate-announced",
		"plan says what the release of the node allows under a pod, and apply without a decision or --offline changes nothing where it is not everything",
		migrateAnnounced,
	}}
}

// tested: plan does not ask for a decision on account of the release.
func tested() bool { return slices.Contains(distribution.TestedMinors(), minor()) }

func migrateAnnounced(t *T) {
	v := t.volume(disk(), "data")
	w := t.writer("pod", v)
	t.waitTold()
	switch rebuilds := distribution.Reconstruction(); {
	case !minor().Has(rebuilds):
		t.wantPlanned(v, migrate.Offline, migrate.NotLive, rebuilds.Without)
		t.wantLeft(v, rebuilds.Without, "--offline")
	case !tested():
		evidence := "flex2csi is tested with " + distribution.TestedText()
		t.wantPlanned(v, migrate.Live, migrate.Decide, evidence)
		t.wantLeft(v, evidence, "--accept")
	default:
		t.wantPlanned(v, migrate.Live, migrate.OK, "")
	}
	w.writes()
	t.delete(w.pod)
}

// wantPlanned plans a migration. The check node is to have a result with the evidence; it
// is OK where it has nothing to say.
func (t *T) wantPlanned(v *volume, method migrate.Method, status migrate.CheckStatus, evidence string) {
	t.Helper()
	plan := t.plan(v)
	if plan.Method != method {
		t.Errorf("the plan is %s, want %s: %q", plan.Method, method, plan.Why)
	}
	got, text := migrate.OK, ""
	for _, c := range plan.Checks {
		if c.Name == "node" && c.Status != migrate.OK {
			got, text = c.Status, c.Evidence
		}
	}
	if got != status || !strings.Contains(text, evidence) {
		t.Errorf("the check node is %s with %q, want %s with %q", got, text, status, evidence)
	}
}

// wantLeft tries to migrate without an option, and wants the volume as it was.
func (t *T) wantLeft(v *volume, evidence, option string) {
	t.Helper()
	was := t.persistentVolume(v)
	results, err := t.migrateAsIs(nil, "apply", "--yes", v.name)
	if err == nil || !strings.Contains(err.Error(), evidence) || !strings.Contains(err.Error(), option) {
		t.Errorf("apply without %s: %+v, %v", option, results, err)
	}
	if is := t.persistentVolume(v); is.UID != was.UID || is.DeletionTimestamp != nil {
		t.Errorf("the PersistentVolume was %s, and is %s, deleted %v", was.UID, is.UID, is.DeletionTimestamp)
	}
}

// plan is what flex2csi migrate plan says of a volume.
func (t *T) plan(v *volume) migrate.PlannedVolume {
	t.Helper()
	out, err := t.flex2csi("migrate", "plan", "--kubeconfig", node.Kubeconfig, "--output", "json", v.name)
	t.must(withText(err, out))
	var plan struct {
		Volumes []migrate.PlannedVolume `json:"volumes"`
	}
	t.must(json.Unmarshal([]byte(out), &plan))
	if len(plan.Volumes) != 1 {
		t.Fatalf("the plan has %d volumes: %s", len(plan.Volumes), out)
	}
	return plan.Volumes[0]
}
