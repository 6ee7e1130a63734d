package migrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/migrate/lock"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// one is the migration of one volume, or its way back. Its steps look at the
// cluster before they change it, so that each can be made again: after an error,
// and by another process.
type one struct {
	r   *Runner
	c   *objects.Client // counts the requests
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
	return &one{r: r, c: r.Client.Counting(rec.Requests), rec: rec, since: r.Now()}
}

// A terminalError is one that another try does not help against: a person has to look.
type terminalError struct{ error }

func (e terminalError) Unwrap() error { return e.error }

func terminal(format string, args ...any) error { return terminalError{fmt.Errorf(format, args...)} }

// A retryable error is a refusal that is tried again.
type retryable struct{ error }

// errEnough: a person has interrupted.
var errEnough = errors.New("interrupted")

// run goes from stage to stage.
func (o *one) run(ctx context.Context) error {
	for o.rec.Stage != journal.Finished {
		if !o.inWindow() && o.r.enough() {
			return errEnough
		}
		s := next(o.rec)
		if err := o.insist(ctx, func(ctx context.Context) error { return o.take(ctx, s) }); err != nil {
			return err
		}
	}
	return nil
}

// take takes the volume to a stage.
func (o *one) take(ctx context.Context, s stage) error {
	do := s.do
	if o.rec.Direction == journal.ToFlexVolume && s.back != nil {
		do = s.back
	}
	if do != nil {
		if err := do(o, ctx); err != nil {
			return err
		}
	}
	if s.holds == nil {
		return nil
	}
	if err := s.holds(o, ctx); err != nil {
		return err
	}
	return o.reach(ctx, s.name)
}

// handsOver: the volume has running pods, which go on.
func (o *one) handsOver() bool { return courseOf(o.rec).handsOver() }

// inWindow: the volume is about to be deleted, or is not there.
func (o *one) inWindow() bool { return reached(o.rec).window }

// insistInWindow is how long a claim is not left without a volume for want of
// answers.
const insistInWindow = time.Hour

// insist makes a step, and makes it again as long as the API server is away or
// another client has changed something meanwhile: each step observes first.
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
	if _, ok := errors.AsType[terminalError](err); ok {
		return false
	}
	if _, ok := errors.AsType[retryable](err); ok {
		return true
	}
	if errors.Is(err, lock.ErrStale) {
		return true
	}
	switch objects.OutcomeOf(err) {
	case objects.Unknown, objects.Conflict, objects.Gone:
		return true
	}
	return false
}

// reach writes down that a stage is reached, in the ConfigMap of the journal: a request, and
// for the last stage the last one of all. Until that is written it is not.
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
	o.rec.Requests = int(o.c.Requests.Add(1))
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

// volume asks for the PersistentVolume of the name, whichever it is.
func (o *one) volume(ctx context.Context) (*volume, error) { return getVolume(ctx, o.c, o.rec.Volume) }

// from asks for the volume that is to be replaced, and nothing else will do.
func (o *one) from(ctx context.Context) (*volume, error) {
	pv, err := o.volume(ctx)
	switch {
	case err != nil:
		return nil, err
	case pv == nil:
		return nil, terminal("PersistentVolume %s is gone: another client has deleted it; the journal has it", o.rec.Volume)
	case string(pv.UID) != o.rec.FromUID:
		return nil, terminal("PersistentVolume %s is another one (uid %s) than it was (%s): another client has replaced it; plan again", o.rec.Volume, pv.UID, o.rec.FromUID)
	case pv.deleting():
		return nil, terminal("PersistentVolume %s is being deleted by another client since %s; find out which one", o.rec.Volume, stamp(pv.DeletionTimestamp))
	}
	return pv, nil
}
