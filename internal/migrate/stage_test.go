package migrate

import (
	"slices"
	"testing"

	"github.com/flex2csi/flex2csi/internal/migrate/journal"
)

// TestStages: a volume goes through the stages of its mode, from each to the next, and plan
// tells the same ones.
func TestStages(t *testing.T) {
	begin := []journal.Stage{journal.BackedUp, journal.Retained}
	swap := []journal.Stage{journal.Accepted, journal.Deleting, journal.Deleted}
	running := []journal.Pod{{Name: "shop/orders-0", UID: "u", Node: "node-1"}}
	for name, test := range map[string]struct {
		rec  journal.Record
		want []journal.Stage
	}{
		"idle": {
			journal.Record{Mode: journal.Live, Direction: journal.ToCSI, Attaches: true},
			slices.Concat(begin, swap, []journal.Stage{journal.Created, journal.Bound, journal.Finished}),
		},
		"live": {
			journal.Record{Mode: journal.Live, Direction: journal.ToCSI, Attaches: true, Pods: running},
			slices.Concat(begin, swap, []journal.Stage{journal.Created, journal.Bound, journal.Attached, journal.TakenOver, journal.Finished}),
		},
		"live, nothing is attached": {
			journal.Record{Mode: journal.Live, Direction: journal.ToCSI, Pods: running},
			slices.Concat(begin, swap, []journal.Stage{journal.Created, journal.Bound, journal.TakenOver, journal.Finished}),
		},
		"back": {
			journal.Record{Mode: journal.Live, Direction: journal.ToFlexVolume, Attaches: true, Pods: running},
			slices.Concat(begin, swap, []journal.Stage{journal.Created, journal.Bound, journal.TakenOver, journal.Finished}),
		},
		"put back": {
			journal.Record{Mode: journal.Live, Direction: journal.ToFlexVolume, Attaches: true, Pods: running, PutBack: "refused"},
			slices.Concat(begin, swap, []journal.Stage{journal.Created, journal.Bound, journal.Finished}),
		},
		"offline": {
			journal.Record{Mode: journal.Offline, Direction: journal.ToCSI, Attaches: true},
			slices.Concat(begin, []journal.Stage{journal.Stopped}, swap, []journal.Stage{journal.Created, journal.Bound, journal.Finished}),
		},
		"rolling": {
			journal.Record{Mode: journal.Rolling, Direction: journal.ToCSI, Attaches: true, Pods: running},
			slices.Concat(begin, swap, []journal.Stage{journal.Stopped, journal.Created, journal.Bound, journal.TakenOver, journal.Finished}),
		},
	} {
		rec, got, window := test.rec, []journal.Stage(nil), []journal.Stage(nil)
		for rec.Stage = journal.Planned; rec.Stage != journal.Finished && len(got) < len(stages()); got = append(got, rec.Stage) {
			if rec.Stage = next(&rec).name; presenceAt(&rec) == noVolume {
				window = append(window, rec.Stage)
			}
		}
		wantWindow := []journal.Stage{journal.Deleting, journal.Deleted}
		if rec.Mode == journal.Rolling {
			wantWindow = append(wantWindow, journal.Stopped)
		}
		if !slices.Equal(got, test.want) || !slices.Equal(window, wantWindow) {
			t.Errorf("%s: it goes through %v, want %v; without a volume at %v, want %v", name, got, test.want, window, wantWindow)
		}
	}
	before := oldVolume
	for _, s := range stages() {
		if s.do == nil || s.plan == nil || s.pv < before {
			t.Errorf("%s: it has no way there, or says nothing, or the old volume is there again", s.name)
		}
		before = s.pv
	}
}
