package migrate_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// TestStatusStates: what the journal has of a volume, and what the cluster has, which may
// be nothing.
func TestStatusStates(t *testing.T) {
	flex := corev1.PersistentVolumeSource{FlexVolume: &corev1.FlexPersistentVolumeSource{Driver: "example.com/disk"}}
	csi := corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.csi.example.com", VolumeHandle: "h"}}
	for name, tt := range map[string]struct {
		direction journal.Direction
		stage     journal.Stage
		volume    *corev1.PersistentVolumeSource // nil: none
		want      migrate.State
	}{
		"begun":                       {journal.ToCSI, journal.Retained, &flex, migrate.Halted},
		"begun, and deleted":          {journal.ToCSI, journal.Deleted, nil, migrate.WithoutVolume},
		"migrated":                    {journal.ToCSI, journal.Finished, &csi, migrate.Migrated},
		"migrated, then removed":      {journal.ToCSI, journal.Finished, nil, migrate.Removed},
		"migrated, and a FlexVolume":  {journal.ToCSI, journal.Finished, &flex, migrate.Contradictory},
		"going back":                  {journal.ToFlexVolume, journal.Retained, &csi, migrate.Halted},
		"going back, and deleted":     {journal.ToFlexVolume, journal.Deleted, nil, migrate.WithoutVolume},
		"taken back":                  {journal.ToFlexVolume, journal.Finished, &flex, migrate.TakenBack},
		"taken back, then removed":    {journal.ToFlexVolume, journal.Finished, nil, migrate.Removed},
		"migrated by another journal": {journal.ToFlexVolume, journal.Finished, &csi, migrate.Migrated},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t)
			if tt.volume != nil {
				a = newAPI(t, &corev1.PersistentVolume{
					ObjectMeta: metav1.ObjectMeta{Name: "data", Labels: map[string]string{migrate.MigratedLabel: "true"}},
					Spec:       corev1.PersistentVolumeSpec{PersistentVolumeSource: *tt.volume},
				})
			}
			written := journal.New(a.client(), migrate.Namespace, "")
			record := &journal.Record{Volume: "data", Mode: journal.Live, Direction: tt.direction, Stage: tt.stage, Times: map[journal.Stage]time.Time{tt.stage: time.Now()}}
			if err := written.Save(t.Context(), record); err != nil {
				t.Fatal(err)
			}
			s, err := (&migrate.Observer{Client: a.client(), Journal: written, Now: time.Now}).Status(t.Context())
			if err != nil || len(s.Volumes) != 1 || s.Volumes[0].State != tt.want {
				t.Errorf("%+v, %v; want %s", s, err, tt.want)
			}
			if urgent := s.Urgent(); (urgent != nil) != (tt.want == migrate.WithoutVolume) { // status ended with 0
				t.Errorf("urgent: %v", urgent)
			}
		})
	}
}

// TestNoRecord: an unfinished migration of which the ConfigMap was deleted is told by itself, and
// nothing takes that for an all-clear. The copy, created, has all go on.
func TestNoRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJourney(t, true, journal.Live)
		j.stopBefore("create persistentvolumes")
		path := filepath.Join(j.dir, "pv1.json")
		if err := j.api.object.Delete(objects.ConfigMaps().Resource, migrate.Namespace, journal.ConfigMapName("pv1")); err != nil {
			t.Fatal(err)
		}
		r := j.runner()
		o := &migrate.Observer{Client: r.Client, Journal: r.Journal, Now: time.Now}
		s, err := o.Status(t.Context())
		if err != nil || len(s.Volumes) != 1 || s.Urgent() == nil || len(s.Problems) > 0 {
			t.Fatalf("%+v, %v", s, err)
		}
		v := s.Volumes[0]
		if next := "at once: kubectl create -f " + path + " puts it back, then flex2csi migrate resume pv1 goes on, flex2csi migrate rollback pv1 goes back"; v.State != migrate.NoRecord || v.Now != "none" || v.Next != next {
			t.Errorf("%+v, want %s", v, next)
		}
		report, err := o.Finish(t.Context(), nil)
		if err != nil || report.Free(false) || !strings.Contains(strings.Join(report.Problems, " "), "find the record of PersistentVolume pv1") {
			t.Errorf("finish says %q, %v", report.Problems, err)
		}
		for _, command := range []string{"resume", "rollback"} {
			if came, err := j.do(t.Context(), command); err == nil || came.Volume != "" || !strings.Contains(err.Error(), "kubectl create -f "+path+", then flex2csi migrate resume or rollback") {
				t.Errorf("%s: %+v, %v", command, came, err)
			}
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var u unstructured.Unstructured
		if err := u.UnmarshalJSON(text); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Client.Create(t.Context(), objects.ConfigMaps().Resource, &u); err != nil {
			t.Fatal(err)
		}
		j.wants(t.Context(), "resume")
		j.isCSI()
	})
}
