package migrate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/internal/clusterview"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
)

// Reversible are the records of volumes that can be taken back, finished or not:
// of these volumes, or, without names, of all. Where the journal is lost a
// record is made of what the PersistentVolume itself says.
func (r *Runner) Reversible(ctx context.Context, names []string) ([]*journal.Record, error) {
	known := map[string]*journal.Record{}
	all, err := r.Journal.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, rec := range all {
		known[rec.Volume] = rec
	}
	migrated, err := newWorld(r.Cluster).list(ctx, persistentVolumes(), clusterview.Selector{Labels: MigratedLabel + "=true"})
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, pv := range migrated {
		there[pv.name()] = true
		if rec := known[pv.name()]; rec != nil && !rec.TakenBack() {
			continue
		}
		rec, err := recordOf(pv)
		switch {
		case err == nil:
			known[pv.name()] = rec
		case slices.Contains(names, pv.name()):
			return nil, err
		}
	}
	for name, rec := range known { // whose volume is gone with its claim
		if len(names) == 0 && !rec.Unfinished() && !there[name] {
			delete(known, name)
		}
	}
	return choose(known, names)
}

// choose takes those that can be taken back.
func choose(known map[string]*journal.Record, names []string) (all []*journal.Record, err error) {
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
		return all, nil
	}
	for _, name := range names {
		switch rec := known[name]; {
		case rec == nil:
			return nil, fmt.Errorf("PersistentVolume %s was not migrated: the journal has nothing of it, and it has no annotation %s", name, OriginalAnnotation)
		case !reversible(rec):
			return nil, fmt.Errorf("PersistentVolume %s has been taken back already", name)
		default:
			all = append(all, rec)
		}
	}
	return all, nil
}

// recordOf makes a record of a volume that was migrated, of which nothing else is
// left.
func recordOf(pv *Object) (*journal.Record, error) {
	original := pv.pairs("metadata", "annotations")[OriginalAnnotation]
	old, err := ParseObject([]byte(original))
	if err != nil || old.sub("spec", "flexVolume") == nil || old.name() != pv.name() {
		return nil, fmt.Errorf("PersistentVolume %s has no FlexVolume in its annotation %s, and the journal has nothing of it", pv.name(), OriginalAnnotation)
	}
	csi, err := asItIs(pv)
	if err != nil {
		return nil, err
	}
	rec := &journal.Record{
		Volume: pv.name(), ClaimUID: pv.text("spec", "claimRef", "uid"),
		FlexDriver: old.text("spec", "flexVolume", "driver"), CSIDriver: pv.text("spec", "csi", "driver"), VolumeHandle: pv.text("spec", "csi", "volumeHandle"),
		Attaches: true, Mode: journal.Live, Direction: journal.ToCSI, Stage: journal.Finished,
		Flex: json.RawMessage(original), CSI: csi, To: csi, CreatedUID: pv.uid(),
	}
	if ref := pv.sub("spec", "claimRef"); ref != nil {
		rec.Claim = ref.text("namespace") + "/" + ref.text("name")
	}
	return rec, nil
}
