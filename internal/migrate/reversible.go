package migrate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/internal/migrate/journal"
)

// Reversible are the records of volumes that can be taken back, finished or not:
// of these volumes, or, without names, of all. Where the journal is lost a
// record is made of what the PersistentVolume itself says. A [journal.UnreadError] is about
// single records; those are left out.
func (r *Runner) Reversible(ctx context.Context, names []string) ([]*journal.Record, error) {
	known := map[string]*journal.Record{}
	all, err := r.loadRecords(ctx, names)
	unread, err := journal.Unread(err)
	if err != nil {
		return nil, err
	}
	for _, rec := range all {
		known[rec.Volume] = rec
	}
	migrated, err := newWorld(r.Client, nil).volumes(ctx, MigratedLabel+"=true")
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, pv := range migrated {
		there[pv.Name] = true
		if rec := known[pv.Name]; rec != nil && !rec.TakenBack() {
			continue
		}
		rec, err := recordOf(pv)
		switch {
		case err == nil:
			known[pv.Name] = rec
		case slices.Contains(names, pv.Name) && unread == nil:
			return nil, err
		}
	}
	for name, rec := range known { // of a volume that is gone with its claim
		if len(names) == 0 && !rec.Unfinished() && !there[name] {
			delete(known, name)
		}
	}
	return choose(known, names, unread)
}

// choose takes those that can be taken back.
func choose(known map[string]*journal.Record, names []string, unread error) (all []*journal.Record, err error) {
	reversible := func(rec *journal.Record) bool {
		return rec != nil && (rec.Unfinished() || rec.Direction == journal.ToCSI)
	}
	if len(names) == 0 {
		for _, rec := range known {
			if reversible(rec) {
				all = append(all, rec)
			}
		}
		slices.SortFunc(all, func(a, b *journal.Record) int { return strings.Compare(a.Volume, b.Volume) })
		return all, unread
	}
	for _, name := range names {
		switch rec := known[name]; {
		case rec == nil && unread != nil: // it may be that one
		case rec == nil:
			return nil, fmt.Errorf("PersistentVolume %s was not migrated: the journal has nothing of it, and it has no annotation %s; flex2csi migrate status lists those that were. If a directory of a journal has a copy of its record, kubectl create -f that, then roll back", name, OriginalAnnotation)
		case !reversible(rec):
			return nil, fmt.Errorf("PersistentVolume %s has been taken back already", name)
		default:
			all = append(all, rec)
		}
	}
	return all, unread
}

// recordOf makes a record of a volume that was migrated, of which nothing else is
// left.
func recordOf(pv *volume) (*journal.Record, error) {
	original := pv.Annotations[OriginalAnnotation]
	old, err := parseVolume([]byte(original))
	if err != nil || old.flexDriver() == "" || old.Name != pv.Name {
		return nil, fmt.Errorf("PersistentVolume %s has no FlexVolume in its annotation %s, and the journal has nothing of it; if a directory of a journal has a copy of its record, kubectl create -f that, then roll back", pv.Name, OriginalAnnotation)
	}
	csi, err := asItIs(pv)
	if err != nil {
		return nil, err
	}
	driver, handle := pv.csi()
	return &journal.Record{
		Volume: pv.Name, Claim: pv.claim(), ClaimUID: pv.claimUID(),
		FlexDriver: old.flexDriver(), CSIDriver: driver, VolumeHandle: handle,
		Attaches: true, Mode: journal.Live, Direction: journal.ToCSI, Stage: journal.Finished,
		Flex: json.RawMessage(original), CSI: csi, To: csi, CreatedUID: string(pv.UID),
	}, nil
}
