package migrate

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/migrate/journal"
)

// Rollback takes volumes back.
func (r *Runner) Rollback(ctx context.Context, records []*journal.Record) ([]Result, error) {
	jobs := make([]job, 0, len(records))
	for _, rec := range records {
		j := newJob(rec, r.beginRollback)
		j.busy = "" // no pod is restarted
		jobs = append(jobs, j)
	}
	return r.runJobs(ctx, jobs)
}

// beginRollback turns a record round, from wherever the volume really is.
func (r *Runner) beginRollback(ctx context.Context, rec *journal.Record) (*migration, error) {
	if rec.Direction == journal.ToFlexVolume {
		if slices.Contains([]journal.Stage{journal.BackedUp, journal.Retained, journal.Accepted}, rec.Stage) { // it may have been begun otherwise
			rec.Mode = r.backMode()
		}
		return r.resume(ctx, rec)
	}
	if err := r.checkCurrent(ctx, rec); err != nil {
		return nil, err
	}
	r.decide(rec)
	m := newMigration(r, rec)
	return m, m.insist(ctx, m.turnRound)
}

// backMode is how volumes are taken back: no pod is restarted for that.
func (r *Runner) backMode() journal.Mode {
	if r.Options.Mode == journal.Offline {
		return journal.Offline
	}
	return journal.Live
}

// turnRound looks how far the volume has come, and makes of that the beginning
// of the way back. It may be made again: as long as that is not written down the record is as
// it was.
func (m *migration) turnRound(ctx context.Context) error {
	was := *m.rec
	err := m.beginBack(ctx)
	if err != nil {
		*m.rec = was
	}
	return err
}

func (m *migration) beginBack(ctx context.Context) error {
	state, pv, err := m.observe(ctx)
	if err != nil {
		return err
	}
	rec := m.rec
	if state == unmanaged && string(pv.UID) == rec.CreatedUID && !pv.deleting() { // a webhook has made something else of it
		state = newPresent
	}
	switch state {
	case oldPresent: // nothing but Retain was done
		if err := m.touch(ctx); err != nil {
			return err
		}
		m.reverseFor(rolledBack)
		rec.CreatedUID = string(pv.UID)
		return m.writeStage(ctx, journal.TakenOver)
	case oldDeleting, absent: // it is created again
		if state == absent {
			if err := m.checkCluster(ctx); err != nil {
				return err
			}
		}
		m.reverseFor(rolledBack)
		return m.writeStage(ctx, journal.Deleting)
	case reverted: // another client has created it again
		m.reverseFor(rolledBack)
		rec.CreatedUID = string(pv.UID)
		return m.writeStage(ctx, journal.Created)
	case newPresent: // the same once more, with the two exchanged
		if rec.CSI, err = asItIs(pv); err != nil {
			return err
		}
		m.reverseFor("") // with what the CSI volume has got since
		if rec.Before = ""; rec.Stage != journal.Finished {
			rec.Before = rec.Stage
		}
		rec.Times, rec.FromUID, rec.Mode = nil, string(pv.UID), m.r.backMode()
		if rec.To, err = withCapacity(rec.To, pv); err != nil {
			return err
		}
		return m.writeStage(ctx, journal.BackedUp)
	}
	return m.notOurs(state, pv)
}

// touch changes the resourceVersion of the volume, if it was about to be deleted:
// a DELETE that was not answered may still come, and must not fit.
func (m *migration) touch(ctx context.Context) error {
	if m.rec.FromResourceVersion == "" {
		return nil
	}
	for _, value := range []any{m.r.Now().UTC().Format(time.RFC3339Nano), nil} {
		err := m.patchVolume(ctx, m.c, types.MergePatchType, map[string]any{"metadata": map[string]any{
			"uid": m.rec.FromUID, "annotations": map[string]any{MigratedLabel: value},
		}})
		if err != nil {
			return err
		}
	}
	return nil
}

// rolledBack is in Record.PutBack when a person has asked for it half-way: all
// have the old volume still, and nothing is left to wait for.
const rolledBack = "a rollback was asked for"

// reverseFor has the record go in the other direction, for a reason.
func (m *migration) reverseFor(why string) {
	m.reverse()
	m.rec.PutBack = why
}

// restored is the FlexVolume as it is put back: what it was, with the labels, annotations and
// class that the CSI volume has got since; and it keeps what is stored until the claim is bound
// to it (finalPolicy).
func restored(rec *journal.Record) json.RawMessage {
	old, err := parse(rec.Flex)
	if err != nil {
		return nil
	}
	object := stripped(old.Object)
	if csi, err := parse(rec.CSI); err == nil {
		carryOver(object, csi.Object)
	}
	for _, own := range []string{lastApplied, provisionedBy} { // of the FlexVolume alone
		if value, ok := old.GetAnnotations()[own]; ok {
			putAnnotation(object, own, value)
		}
	}
	setRetain(object)
	text, err := encode(object)
	if err != nil {
		return nil
	}
	return text
}

// carryOver gives a FlexVolume the labels, annotations and class of the CSI volume that it was.
func carryOver(flex, csi map[string]any) {
	metadata := sub(flex, "metadata")
	for field, ours := range map[string][]string{
		"labels":      {MigratedLabel},
		"annotations": {FlexDriverAnnotation, OriginalAnnotation, lastApplied, provisionedBy},
	} {
		values := runtime.DeepCopyJSON(sub(csi, "metadata", field))
		for _, name := range ours {
			delete(values, name)
		}
		if delete(metadata, field); len(values) > 0 {
			metadata[field] = values
		}
	}
	if class := text(csi, "spec", "storageClassName"); class != "" && sub(flex, "spec") != nil {
		sub(flex, "spec")["storageClassName"] = class
	}
}

func putAnnotation(object map[string]any, name, value string) {
	metadata := sub(object, "metadata")
	annotations := sub(metadata, "annotations")
	if annotations == nil && metadata != nil {
		annotations = map[string]any{}
		metadata["annotations"] = annotations
	}
	if annotations != nil {
		annotations[name] = value
	}
}

// asItIs is a volume as it would be created again.
func asItIs(pv *volume) (json.RawMessage, error) {
	object := stripped(pv.object)
	setRetain(object)
	return encode(object)
}

// withCapacity carries an expansion back.
func withCapacity(to json.RawMessage, pv *volume) (json.RawMessage, error) {
	m, err := parse(to)
	if err != nil {
		return nil, err
	}
	if capacity := sub(pv.object, "spec", "capacity"); capacity != nil {
		sub(m.Object, "spec")["capacity"] = capacity
	}
	return encode(m.Object)
}

// checkCluster is an error in another cluster: a record of another cluster would create its volume in this one.
func (m *migration) checkCluster(ctx context.Context) error {
	claim, err := m.getClaim(ctx)
	if err != nil {
		return err
	}
	if len(m.rec.ClaimObject) == 0 {
		if m.inWindow() {
			return nil
		}
		return terminal("PersistentVolume %s is gone, and had no claim: it is not created again; if it is needed, create it from backup/ in the directory of the journal", m.rec.Volume)
	}
	if claim == nil || string(claim.UID) != m.rec.ClaimUID {
		return terminal("neither PersistentVolume %s nor its claim %s (uid %s) is in this cluster: is it the right one? The journal has both; check --context", m.rec.Volume, m.rec.Claim, m.rec.ClaimUID)
	}
	return nil
}
