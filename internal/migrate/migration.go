package migrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// A migration takes one volume to its end, or back. Its steps look at the
// cluster before they change it, so that each can be repeated: after an error,
// and by another process.
type migration struct {
	r   *Runner
	c   *objects.Client // counts the requests
	rec *journal.Record
	// acceptedVersion is the resourceVersion of the volume when this process has accepted
	// the swap; empty: it has not.
	acceptedVersion string
	// released is when a vendor's driver was first seen not to have the volume attached any more.
	released time.Time
	// returns counts how often it was not the same any more, and went back to BackedUp.
	returns int
	// opened: the window was entered, so what was written down before is all that it takes.
	opened bool
	// refused: the way back was, before anything was changed but the policy.
	refused bool
	since   time.Time // of the present step
	// unheard: a wait looks although no feed has heard anything, and whether the pods are there.
	unheard bool
	// retains: the policy was Retain when this process has backed the volume up.
	retains bool
}

func newMigration(r *Runner, rec *journal.Record) *migration {
	return &migration{r: r, c: r.Client.Counting(rec.Requests), rec: rec, since: r.Now()}
}

// world is what is read for one decision about the volume.
func (m *migration) world() *world {
	w := newWorld(m.c, m.r.feeds())
	w.decides, w.inWindow = true, m.inWindow()
	w.decideAbout(csivol.Key{Driver: m.rec.CSIDriver, Handle: m.rec.VolumeHandle}, m.nodesOfPods())
	return w
}

// A terminalError is one that another try does not help against: a person has to look.
type terminalError struct{ error }

func (e terminalError) Unwrap() error { return e.error }

func terminal(format string, args ...any) error { return terminalError{fmt.Errorf(format, args...)} }

// A retryable error is a refusal that is tried again.
type retryable struct{ error }

// errEnough: a person has interrupted.
var errEnough = errors.New("interrupted")

// errMoved: the record goes on from another stage than the one that was to be reached, or in the
// other direction.
var errMoved = errors.New("the migration goes on from another stage")

// run goes from stage to stage.
func (m *migration) run(ctx context.Context) error {
	for m.rec.Stage != journal.Finished {
		if !m.inWindow() && m.r.enough() {
			return errEnough
		}
		s := next(m.rec)
		err := m.insist(ctx, func(ctx context.Context) error { return m.take(ctx, s) })
		if err != nil && !errors.Is(err, errMoved) {
			return err
		}
	}
	return nil
}

// take takes the volume to a stage, and writes that down, unless the stage has done that itself.
func (m *migration) take(ctx context.Context, s stage) error {
	if err := s.do(m, ctx); err != nil || m.rec.Stage == s.name {
		return err
	}
	return m.writeStage(ctx, s.name)
}

// handsOver: the volume has running pods, which go on.
func (m *migration) handsOver() bool { return courseOf(m.rec).handsOver() }

// inWindow: the volume is about to be deleted, or is not there.
func (m *migration) inWindow() bool { return presenceAt(m.rec) == noVolume }

// insistInWindow is how long a claim is not left without a volume for want of
// answers.
const insistInWindow = time.Hour

// insist makes a step, and makes it again as long as the API server is away or
// another client has changed something meanwhile: each step observes first.
func (m *migration) insist(ctx context.Context, step func(context.Context) error) error {
	pause, began := 100*time.Millisecond, m.r.Now()
	for {
		tried := m.r.Now()
		err := step(ctx)
		if err == nil || !worthAnotherTry(err) || ctx.Err() != nil {
			return err
		}
		if m.r.Now().Sub(tried) > 2*lookWatched { // it has got on meanwhile
			pause, began = 100*time.Millisecond, m.r.Now()
		}
		most := m.r.timeout()
		if m.inWindow() { // a person can end it; who gives up leaves a claim without a volume
			most = max(most, insistInWindow)
		}
		if m.r.Now().Sub(began) > most {
			return fmt.Errorf("tried for %s: %w", most, err)
		}
		m.tell(Troubled, m.rec.Stage, fmt.Sprintf("%v; it is tried again", err))
		select {
		case <-ctx.Done():
			return err
		case <-m.r.enoughOutside(m.inWindow()):
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
	if errors.Is(err, journal.ErrStale) {
		return true
	}
	switch objects.OutcomeOf(err) {
	case objects.Unknown, objects.Conflict, objects.Gone:
		return true
	}
	return false
}

// writeStage writes a stage into the journal, with one request. Until that has succeeded the stage
// is not reached. Finished is the last request for the volume; after it only the Lease is
// released (cmd/flex2csi/migrate_run.go).
func (m *migration) writeStage(ctx context.Context, stage journal.Stage) error {
	before, trouble := m.rec.Stage, m.rec.Trouble
	m.setStage(stage)
	m.rec.Trouble = ""
	if err := m.save(ctx); err != nil {
		m.rec.Stage, m.rec.Trouble = before, trouble
		return err
	}
	m.tellReached(stage)
	return nil
}

// setStage notes that a stage is reached, and when.
func (m *migration) setStage(stage journal.Stage) {
	if m.rec.Times == nil {
		m.rec.Times = map[journal.Stage]time.Time{}
	}
	m.rec.Stage, m.rec.Times[stage] = stage, m.r.Now().UTC()
}

func (m *migration) tellReached(stage journal.Stage) {
	m.tell(Reached, stage, "")
	m.since = m.r.Now()
}

func (m *migration) save(ctx context.Context) error {
	m.rec.Requests = int(m.c.Requests.Add(1))
	m.rec.By, m.rec.Version = m.r.Options.By, m.r.Options.Version
	err := m.r.Journal.Save(ctx, m.rec)
	if m.opened && errors.Is(err, journal.ErrCopy) { // a full disk; the copy has both volumes, and the cluster the rest
		m.tell(Troubled, m.rec.Stage, err.Error()+"; the migration goes on with the journal in the cluster")
		return nil
	}
	return err
}

// checkLease comes before each change: only the holder of the Lease makes one.
func (m *migration) checkLease() error { return m.r.Lease.Held() }

func (m *migration) tell(what EventKind, stage journal.Stage, text string) {
	m.r.tell(Event{
		Volume: m.rec.Volume, Claim: m.rec.Claim, Direction: m.rec.Direction, What: what, Stage: stage, Text: text,
		Took: m.r.Now().Sub(m.since),
	})
}

// getVolume asks for the PersistentVolume of the name, whichever it is.
func (m *migration) getVolume(ctx context.Context) (*volume, error) {
	return getVolume(ctx, m.c, m.rec.Volume)
}

// getOld asks for the volume that is to be replaced, and nothing else will do.
func (m *migration) getOld(ctx context.Context) (*volume, error) {
	pv, err := m.getVolume(ctx)
	if err != nil {
		return nil, err
	}
	return pv, m.checkOld(pv)
}

// checkOld is an error for another volume.
func (m *migration) checkOld(pv *volume) error {
	switch {
	case pv == nil:
		return terminal("PersistentVolume %s is gone: another client has deleted it; the journal has it, flex2csi migrate rollback creates it again", m.rec.Volume)
	case string(pv.UID) != m.rec.FromUID:
		return terminal("PersistentVolume %s is another one (uid %s) than it was (%s): another client has replaced it; plan again", m.rec.Volume, pv.UID, m.rec.FromUID)
	case pv.deleting():
		return terminal("PersistentVolume %s is being deleted by another client since %s; find out which one", m.rec.Volume, stamp(pv.DeletionTimestamp))
	}
	return nil
}
