package migrate

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// Rollback takes volumes back.
func (r *Runner) Rollback(ctx context.Context, records []*journal.Record) ([]Result, error) {
	jobs := make([]job, 0, len(records))
	for _, rec := range records {
		jobs = append(jobs, job{record: rec, begin: func(ctx context.Context) (*one, error) { return r.back(ctx, rec) }})
	}
	return r.each(ctx, jobs)
}

// back turns a record round, from wherever the volume really is.
func (r *Runner) back(ctx context.Context, rec *journal.Record) (*one, error) {
	if rec.Direction == journal.ToFlexVolume {
		if slices.Contains([]journal.Stage{journal.BackedUp, journal.Retained, journal.Accepted}, rec.Stage) { // it may have been begun otherwise
			rec.Mode = r.backMode()
		}
		return r.resume(ctx, rec)
	}
	if err := r.current(ctx, rec); err != nil {
		return nil, err
	}
	r.decide(rec)
	o := r.one(rec)
	return o, o.insist(ctx, o.turnRound)
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
func (o *one) turnRound(ctx context.Context) error {
	was := *o.rec
	err := o.beginBack(ctx)
	if err != nil {
		*o.rec = was
	}
	return err
}

func (o *one) beginBack(ctx context.Context) error {
	is, pv, err := o.look(ctx)
	if err != nil {
		return err
	}
	rec := o.rec
	if is == foreign && string(pv.UID) == rec.CreatedUID && !pv.deleting() { // a webhook has made something else of it
		is = created
	}
	switch is {
	case before: // nothing but Retain was done
		if err := o.touch(ctx); err != nil {
			return err
		}
		o.turnTo(rolledBack)
		rec.CreatedUID = string(pv.UID)
		return o.reach(ctx, journal.TakenOver)
	case deleting, gone: // it is created again
		if is == gone {
			if err := o.sameCluster(ctx); err != nil {
				return err
			}
		}
		o.turnTo(rolledBack)
		return o.reach(ctx, journal.Deleting)
	case other: // another client has created it again
		o.turnTo(rolledBack)
		rec.CreatedUID = string(pv.UID)
		return o.reach(ctx, journal.Created)
	case created: // the same once more, with the two exchanged
		if rec.CSI, err = asItIs(pv); err != nil {
			return err
		}
		o.turnTo("")
		if rec.Before = ""; rec.Stage != journal.Finished {
			rec.Before = rec.Stage
		}
		rec.Times, rec.FromUID, rec.Mode = nil, string(pv.UID), o.r.backMode()
		if rec.To, err = withCapacity(rec.To, pv); err != nil {
			return err
		}
		return o.reach(ctx, journal.BackedUp)
	}
	return o.notOurs(is, pv)
}

// touch changes the resourceVersion of the volume, if it was about to be deleted:
// a DELETE that was not answered may still come, and must not fit.
func (o *one) touch(ctx context.Context) error {
	if o.rec.FromResourceVersion == "" {
		return nil
	}
	for _, value := range []any{o.r.Now().UTC().Format(time.RFC3339Nano), nil} {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": o.rec.FromUID, "annotations": map[string]any{MigratedLabel: value},
		}})
		if err != nil {
			return err
		}
		if err := o.held(); err != nil {
			return err
		}
		if _, err := o.c.Patch(ctx, objects.PersistentVolumes().Resource, "", o.rec.Volume, types.MergePatchType, patch); err != nil {
			return err
		}
	}
	return nil
}

// rolledBack is in Record.PutBack when a person has asked for it half-way: all
// have the old volume still, and nothing is left to wait for.
const rolledBack = "a rollback was asked for"

// turnTo has the record go in the other direction.
func (o *one) turnTo(why string) {
	o.turn()
	o.rec.PutBack = why
}

// asItIs is a volume as it would be created again.
func asItIs(pv *volume) (json.RawMessage, error) {
	object := stripped(pv.object)
	retained(object)
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

// sameCluster: a record of another cluster would create its volume in this one.
func (o *one) sameCluster(ctx context.Context) error {
	claim, err := o.claim(ctx)
	if err != nil {
		return err
	}
	if len(o.rec.ClaimObject) == 0 {
		if o.inWindow() {
			return nil
		}
		return terminal("PersistentVolume %s is gone, and had no claim: it is not created again; the journal has it", o.rec.Volume)
	}
	if claim == nil || string(claim.UID) != o.rec.ClaimUID {
		return terminal("neither PersistentVolume %s nor its claim %s (uid %s) is in this cluster: is it the right one? The journal has both", o.rec.Volume, o.rec.Claim, o.rec.ClaimUID)
	}
	return nil
}
