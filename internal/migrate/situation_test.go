package migrate_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
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
