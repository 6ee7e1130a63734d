package migrate_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/report"
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
	if err := plan.Show(report.Table).Write(&b, report.Table); err != nil {
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

// TestInlineSecret: the manifest for an inline volume names its Secret, which is of the pod's
// namespace. Without it the share was not mounted.
func TestInlineSecret(t *testing.T) {
	for key, want := range map[string][]string{ // the old driver's, for the user
		"username": {"nodeStageSecretRef:\n          name: cifs\n          namespace: shop\n"},
		"user":     {"nodeStageSecretRef:\n          name: cifs-csi\n", "make Secret shop/cifs-csi of Secret shop/cifs, with the keys"},
	} {
		config := caseConfig(t, "smb2")
		config.Drivers[0].Secrets.NodeStage.FromFlexSecret["username"] = key
		a := newAPI(t)
		a.quiet = true
		a.add(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "web"},
			Spec: corev1.PodSpec{NodeName: "node-1", Volumes: []corev1.Volume{{Name: "media", VolumeSource: corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{
				Driver: "fstab/cifs", SecretRef: &corev1.LocalObjectReference{Name: "cifs"}, Options: map[string]string{"networkPath": "//host/media"},
			}}}}},
		})
		plan, err := (&migrate.Planner{Client: a.client(), Config: config, Now: time.Now}).Plan(t.Context(), &migrate.Selection{All: true})
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := plan.Show(report.Table).Write(&b, report.Table); err != nil {
			t.Fatal(err)
		}
		for _, text := range want {
			if !strings.Contains(b.String(), text) {
				t.Errorf("%s: no %q in\n%s", key, text, b.String())
			}
		}
	}
}
