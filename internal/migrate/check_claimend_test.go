package migrate_test

import (
	"strings"
	"testing"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// setOf is a StatefulSet with a template for claims.
func setOf(name, template string, scaled appsv1.PersistentVolumeClaimRetentionPolicyType) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "set"},
		Spec: appsv1.StatefulSetSpec{
			Replicas:                             new(int32(1)),
			PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenScaled: scaled},
			VolumeClaimTemplates:                 []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: template}}},
		},
	}
}

// TestClaimEnd: apply said to scale a StatefulSet to 0 that deletes its claims then
// (openshift/openshift-docs PR 66118), and --rolling stopped pods that their claims go with.
func TestClaimEnd(t *testing.T) {
	named := func(s *stock) { // as a StatefulSet names its claims
		s.claim.Name, s.pv.Spec.ClaimRef.Name, s.pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "data-orders-0", "data-orders-0", "data-orders-0"
	}
	stopped := func(s *stock) {
		s.node.Annotations["volumes.kubernetes.io/controller-managed-attach-detach"], s.pod.DeletionTimestamp = "true", new(metav1.Now())
	}
	owned := func(s *stock, version, kind string) {
		s.claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: "orders-0"}}
	}
	finds(t, map[string]finding{
		"scaled, and it has to stop": {func(s *stock) {
			named(s)
			stopped(s)
			s.more = append(s.more, setOf("orders", "data", "Delete"))
		}, "claim-owner", migrate.Decide, "StatefulSet/orders deletes claim shop/data-orders-0 when it is scaled down"},
		"scaled, and live": {func(s *stock) {
			named(s)
			s.more = append(s.more, setOf("orders", "data", "Delete"))
		}, "claim-owner", migrate.Note, "StatefulSet/orders deletes claim"},
		"ephemeral, and it has to stop": {func(s *stock) { stopped(s); owned(s, "v1", "Pod") }, "claim-owner", migrate.Fails, "belongs to Pod orders-0 and is deleted with it"},
		"ephemeral, and live":           {func(s *stock) { owned(s, "v1", "Pod") }, "claim-owner", migrate.Note, "belongs to Pod orders-0"},
		"deleted with its StatefulSet":  {func(s *stock) { owned(s, "apps/v1", "StatefulSet") }, "claim-owner", migrate.Note, "is deleted with StatefulSet/orders-0"},
		"deleted with its Database":     {func(s *stock) { owned(s, "db.example.com/v1", "Database") }, "claim-owner", migrate.Note, "is deleted with Database/orders-0"},
	})
	for name, change := range map[string]func(*stock){
		"retained": func(s *stock) {
			named(s)
			stopped(s)
			s.more = append(s.more, setOf("orders", "data", "Retain"))
		},
		"another template's claim": func(s *stock) { stopped(s); s.more = append(s.more, setOf("orders", "data", "Delete")) },
	} {
		for _, c := range planned(t, change).Checks {
			if c.Name == "claim-owner" {
				t.Errorf("%s: %+v", name, c)
			}
		}
	}
}

// TestScaledAway: apply --offline does not go on when the claim is to go with its pod.
func TestScaledAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJourney(t, true, journal.Offline)
		r := j.runner()
		plan, err := r.Planner.Plan(t.Context(), &migrate.Selection{Names: []string{"pv1"}})
		if err != nil {
			t.Fatal(err)
		}
		tasks, _ := migrate.Choose(plan, r.Options)
		var said []string
		r.Progress = func(e migrate.Event) {
			if e.What != migrate.Waiting {
				return
			}
			said = append(said, e.Text)
			modify(j.api, objects.Claims(), "shop", "orders", func(c *corev1.PersistentVolumeClaim) {
				c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "orders-0", UID: "pod"}}
			})
		}
		results, err := r.Apply(t.Context(), tasks)
		if err != nil || len(results) != 1 || results[0].Outcome != migrate.Unfinished || !strings.Contains(results[0].Why, "belongs to Pod orders-0") {
			t.Errorf("%+v, %v, %q", results, err, said)
		}
		if pv := j.volume(); pv == nil || pv.Spec.FlexVolume == nil || pv.Spec.PersistentVolumeReclaimPolicy != "Retain" {
			t.Errorf("%+v", pv)
		}
	})
}
