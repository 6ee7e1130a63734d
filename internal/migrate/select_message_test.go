package migrate_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
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

// TestNextSteps: of a volume that is no FlexVolume, and of one that the journal does not have, no
// message said what to do.
func TestNextSteps(t *testing.T) {
	j := newJourney(t, true, journal.Live)
	modify(j.api, objects.PersistentVolumes(), "", "pv1", func(pv *corev1.PersistentVolume) {
		pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "s", Path: "/"}}
	})
	r := j.runner()
	plan, err := r.Planner.Plan(t.Context(), &migrate.Selection{Names: []string{"pv1"}})
	if err != nil {
		t.Fatal(err)
	}
	const want = "it is no FlexVolume; leave it out: flex2csi migrate plan --all shows the FlexVolumes"
	if lines := strings.Join(planLines(plan), "\n"); !strings.Contains(lines, want) {
		t.Errorf("no %q in\n%s", want, lines)
	}
	_, resume := r.Resumable(t.Context(), []string{"pv9"})
	_, back := r.Reversible(t.Context(), []string{"pv9"})
	for command, err := range map[string]error{"resume": resume, "rollback": back} {
		if err == nil || !strings.Contains(err.Error(), "; flex2csi migrate status ") {
			t.Errorf("%s: %v", command, err)
		}
	}
}
