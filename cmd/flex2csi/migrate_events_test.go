package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
)

// TestClaimEvents: kubectl describe pvc shows that a migration began, and how it ended.
func TestClaimEvents(t *testing.T) {
	ended := func(outcome migrate.Outcome, why string) migrate.Event {
		return migrate.Event{What: migrate.Over, Direction: journal.ToCSI, Stage: journal.Deleted, Result: &migrate.Result{Outcome: outcome, Why: why}}
	}
	for _, test := range []struct {
		event migrate.Event
		want  string
	}{
		{migrate.Event{What: migrate.Begun, Direction: journal.ToCSI}, "Normal VolumeMigrationStarted PersistentVolume pv1 becomes a CSI volume. The claim is Lost for a moment, and no data is lost"},
		{migrate.Event{What: migrate.Begun, Direction: journal.ToFlexVolume}, "Normal VolumeMigrationStarted PersistentVolume pv1 becomes the FlexVolume that it was. The claim is Lost for a moment, and no data is lost"},
		{ended(migrate.Done, ""), "Normal VolumeMigrated PersistentVolume pv1 is a CSI volume"},
		{ended(migrate.PutBack, "the pod came back"), "Warning VolumeMigrationFailed PersistentVolume pv1 stays what it was: the pod came back"},
		{ended(migrate.Left, "refused"), "Warning VolumeMigrationFailed PersistentVolume pv1 stays what it was: refused"},
		{ended(migrate.Unfinished, "refused"), "Warning VolumeMigrationFailed PersistentVolume pv1 has come to Deleted: refused; flex2csi migrate status says what to do"},
		{ended(migrate.Interrupted, "interrupted after Deleted"), "Warning VolumeMigrationFailed PersistentVolume pv1 has come to Deleted: interrupted after Deleted; flex2csi migrate status says what to do"},
		{migrate.Event{What: migrate.Reached, Stage: journal.Bound}, ""},
		{migrate.Event{What: migrate.Waiting}, ""},
		{migrate.Event{What: migrate.Troubled}, ""},
	} {
		test.event.Volume, test.event.Claim, test.event.ClaimUID, test.event.At = "pv1", "shop/orders", "uid-1", time.Unix(1, 0)
		e, got := eventOf(test.event), ""
		if e != nil {
			got = fmt.Sprint(e.Type, " ", e.Reason, " ", e.Message)
			if o := e.InvolvedObject; o.Namespace != "shop" || o.Name != "orders" || o.UID != "uid-1" || e.Namespace != "shop" || !strings.HasPrefix(e.Name, "orders.") {
				t.Errorf("%+v", e)
			}
		}
		if got != test.want {
			t.Errorf("%s: %s", test.event.What, got)
		}
	}
	for _, none := range []migrate.Event{{What: migrate.Begun, Volume: "pv1"}, {What: migrate.Paused}} {
		if e := eventOf(none); e != nil {
			t.Errorf("without a claim: %+v", e)
		}
	}
}
