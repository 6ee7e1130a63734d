package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/flex2csi/flex2csi/internal/clusterview"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
)

// one is the migration of one volume, or its way back. Its steps look at the
// cluster before they change it, so that each can be made again: after an error,
// and by another process.
type one struct {
	r   *Runner
	c   *counted
	rec *journal.Record
	// accepted is the resourceVersion of the volume when this process has accepted
	// the swap; empty: it has not.
	accepted string
	// byVendor is when a vendor's driver was last seen to have the volume attached.
	byVendor time.Time
	// again counts how often it was not the same any more.
	again int
	// existed counts how often the API server said that the volume is there.
	existed int
	// refused: the way back was, before anything was changed but the policy.
	refused bool
	since   time.Time // of the present step
}

func (r *Runner) one(rec *journal.Record) *one {
	c := &counted{Cluster: r.Cluster}
	c.requests.Store(int64(rec.Requests))
	return &one{r: r, c: c, rec: rec, since: r.Now()}
}

// A surprise is what nobody has foreseen: a person has to look at it. It is not
// tried again.
type surprise struct{ error }

func (s surprise) Unwrap() error { return s.error }

func surprised(format string, args ...any) error { return surprise{fmt.Errorf(format, args...)} }

// insistent is what was refused, and is tried again.
type insistent struct{ error }

// errEnough: a person has interrupted.
var errEnough = errors.New("interrupted")

// run goes from stage to stage.
func (o *one) run(ctx context.Context) error {
	for o.rec.Stage != journal.Finished {
		if !o.inWindow() && o.r.enough() {
			return errEnough
		}
		if err := o.insist(ctx, o.step()); err != nil {
			return err
		}
	}
	return nil
}

// step is what comes after the stage that was reached.
func (o *one) step() func(context.Context) error {
	switch o.rec.Stage {
	case journal.BackedUp:
		return o.retain
	case journal.Retained:
		return o.accept
	case journal.Accepted, journal.Stopped, journal.Deleting, journal.Deleted:
		return o.replace
	case journal.Created:
		return o.bind
	case journal.Bound:
		if o.rec.Direction == journal.ToCSI && o.rec.Attaches && o.handsOver() {
			return o.attached
		}
		if o.waitsForPods() {
			return o.takenOver
		}
		return o.finish
	case journal.Attached:
		return o.takenOver
	case journal.TakenOver:
		return o.finish
	}
	return o.backUp
}

// handsOver: the volume has running pods, which go on.
func (o *one) handsOver() bool {
	return o.rec.Mode == journal.Live && slices.ContainsFunc(o.rec.Pods, func(p journal.Pod) bool { return p.Node != "" })
}

func (o *one) waitsForPods() bool {
	return o.rec.PutBack == "" && (o.handsOver() || o.rec.Mode == journal.Rolling && len(o.rec.Pods) > 0)
}

// inWindow: the volume is about to be deleted, or is not there.
func (o *one) inWindow() bool {
	switch o.rec.Stage {
	case journal.Deleting, journal.Deleted:
		return true
	case journal.Stopped:
		return o.rec.Mode == journal.Rolling
	}
	return false
}

// insistInWindow is how long a claim is not left without a volume for want of
// answers.
const insistInWindow = time.Hour

// insist makes a step, and makes it again as long as the API server is away or
// somebody else has changed something meanwhile: each step begins with a look.
func (o *one) insist(ctx context.Context, step func(context.Context) error) error {
	pause, began := 100*time.Millisecond, o.r.Now()
	for {
		tried := o.r.Now()
		err := step(ctx)
		if err == nil || !worthAnotherTry(err) || ctx.Err() != nil {
			return err
		}
		if o.r.Now().Sub(tried) > 2*lookWatched { // it has got on meanwhile
			pause, began = 100*time.Millisecond, o.r.Now()
		}
		most := o.r.timeout()
		if o.inWindow() { // a person can end it; who gives up leaves a claim without a volume
			most = max(most, insistInWindow)
		}
		if o.r.Now().Sub(began) > most {
			return fmt.Errorf("tried for %s: %w", most, err)
		}
		o.tell(Troubled, o.rec.Stage, fmt.Sprintf("%v; it is tried again", err))
		select {
		case <-ctx.Done():
			return err
		case <-o.r.enoughOutside(o.inWindow()):
			return errEnough
		case <-time.After(pause):
		}
		pause = min(2*pause, 5*time.Second)
	}
}

// worthAnotherTry: it may be otherwise in a moment.
func worthAnotherTry(err error) bool {
	if _, ok := errors.AsType[surprise](err); ok {
		return false
	}
	if _, ok := errors.AsType[insistent](err); ok {
		return true
	}
	return errors.Is(err, clusterview.ErrAway) || errors.Is(err, clusterview.ErrConflict) || errors.Is(err, clusterview.ErrGone)
}

// reach writes down that a stage is reached. Until that is written it is not.
func (o *one) reach(ctx context.Context, stage journal.Stage) error {
	before, trouble := o.rec.Stage, o.rec.Trouble
	o.rec.Stage, o.rec.Trouble = stage, ""
	o.passed(stage)
	if err := o.save(ctx); err != nil {
		o.rec.Stage, o.rec.Trouble = before, trouble
		return err
	}
	o.tell(Reached, stage, "")
	o.since = o.r.Now()
	return nil
}

// passed notes when a stage was reached.
func (o *one) passed(stage journal.Stage) {
	if o.rec.Times == nil {
		o.rec.Times = map[journal.Stage]time.Time{}
	}
	o.rec.Times[stage] = o.r.Now().UTC()
}

func (o *one) save(ctx context.Context) error {
	o.rec.Requests = int(o.c.requests.Add(1))
	o.rec.By, o.rec.Version = o.r.Options.By, o.r.Options.Version
	if err := o.r.Journal.Save(ctx, o.rec); err != nil {
		return fmt.Errorf("write the journal of PersistentVolume %s: %w", o.rec.Volume, err)
	}
	return nil
}

// held asks for the Lease before each change.
func (o *one) held() error { return o.r.Lease.Held() }

func (o *one) tell(what What, stage journal.Stage, text string) {
	o.r.tell(Event{
		Volume: o.rec.Volume, Claim: o.rec.Claim, Direction: o.rec.Direction, What: what, Stage: stage, Text: text,
		Took: o.r.Now().Sub(o.since),
	})
}

// get asks for an object; nil if there is none.
func (o *one) get(ctx context.Context, r clusterview.Resource, namespace, name string) (*Object, error) {
	return newWorld(o.c).get(ctx, r, namespace, name)
}

// volume asks for the PersistentVolume of the name, whichever it is.
func (o *one) volume(ctx context.Context) (*Object, error) {
	return o.get(ctx, persistentVolumes(), "", o.rec.Volume)
}

// from asks for the volume that is to be replaced, and nothing else will do.
func (o *one) from(ctx context.Context) (*Object, error) {
	pv, err := o.volume(ctx)
	switch {
	case err != nil:
		return nil, err
	case pv == nil:
		return nil, surprised("PersistentVolume %s is gone: somebody else has deleted it; the journal has it", o.rec.Volume)
	case pv.uid() != o.rec.FromUID:
		return nil, surprised("PersistentVolume %s is another one (uid %s) than it was (%s): somebody else has replaced it; plan again", o.rec.Volume, pv.uid(), o.rec.FromUID)
	case pv.deleting():
		return nil, surprised("PersistentVolume %s is being deleted by somebody else since %s; find out by whom", o.rec.Volume, pv.text("metadata", "deletionTimestamp"))
	}
	return pv, nil
}
