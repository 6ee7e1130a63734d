package migrate_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/report"
)

// TestStatusTable: what is urgent comes first, and each volume that wants
// something says what.
func TestStatusTable(t *testing.T) {
	now := time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
	s := &migrate.Situation{
		Made: now, Server: "api.example.com:6443", Remaining: map[string]int{"example.com/disk": 97, "example.com/share": 1},
		Problems: []string{"ConfigMap flex2csi-nodes/node-3 is of before node node-3 was started the last time"},
		Volumes: []migrate.VolumeStatus{
			{
				Name: "gone", Claim: "shop/gone", FlexDriver: "example.com/disk", CSIDriver: "disk.csi.example.com", Handle: "vol-1", State: migrate.WithoutVolume,
				Direction: journal.ToCSI, Mode: journal.Live, Stage: journal.Deleted, Since: now.Add(-12 * time.Minute), Now: "none",
				Trouble: "there is no PersistentVolume now", Next: "at once: flex2csi migrate resume gone goes on", By: "eve@ws1", Requests: 17,
			},
			{
				Name: "live", Claim: "shop/live", FlexDriver: "example.com/disk", CSIDriver: "disk.csi.example.com", Handle: "vol-2", State: migrate.Migrated,
				Direction: journal.ToCSI, Mode: journal.Live, Stage: journal.Finished, Since: now.Add(-3 * 24 * time.Hour), Now: "CSI", By: "eve@ws1", Requests: 41,
				Next: "1 of its pods keeps the mount of the bridge until it is restarted",
				OldMounts: []migrate.OldMount{
					{Node: "node-1", Pod: "shop/live-0", UID: "u1", TakenOver: true},
					{Node: "node-2", UID: "u2"},
				},
			},
			{Name: "nojournal", State: migrate.Migrated, Direction: journal.ToCSI, Now: "CSI"},
			{
				Name: "stopped", Claim: "shop/stopped", State: migrate.Halted, Direction: journal.ToFlexVolume, Mode: journal.Offline, Stage: journal.Retained,
				Since: now.Add(-30 * time.Second), Now: "CSI", Trouble: "create persistentvolumes: refused", Next: "flex2csi migrate resume stopped",
			},
			{Name: "back", Claim: "shop/back", State: migrate.TakenBack, Direction: journal.ToFlexVolume, Stage: journal.Finished, Since: now.Add(-5 * time.Hour), Now: "FlexVolume"},
		},
	}
	for file, view := range map[string]report.View{"testdata/status.txt": report.Table, "testdata/status-wide.txt": report.Wide} {
		var b bytes.Buffer
		if err := s.Show(view).Write(&b, view); err != nil {
			t.Fatal(err)
		}
		golden(t, file, b.String())
	}
	var b bytes.Buffer
	if err := (&migrate.Situation{Made: now, Holder: "eve@ws1"}).Show(report.Table).Write(&b, report.Table); err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/status-none.txt", b.String())

	shown, missing := s.Filter([]string{"live", "shop/stopped", "missing"})
	if len(shown.Volumes) != 2 || len(missing) != 1 || missing[0] != "missing" || len(s.Volumes) != 5 {
		t.Errorf("%d shown, missing %q", len(shown.Volumes), missing)
	}
}
