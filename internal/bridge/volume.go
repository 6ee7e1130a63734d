package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/lifecycle"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/internal/volumelog"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// A volume is a record and the one operation that may work on it.
type volume struct {
	key    csivol.Key
	record *volstate.Record // owned by who has the turn
	// saved is a copy of the record as it was last saved, for everybody; nil
	// if there is none.
	saved atomic.Pointer[volstate.Record]
	stats atomic.Pointer[csivol.Stats] // nil: not asked
	// inherited: an earlier process has begun something that may still be under way at
	// the driver. Owned by who has the turn.
	inherited bool
	// stagedWith is what stands for the secrets of the last NodeStageVolume. Like
	// the record it is owned by who has the turn; zero: not known.
	stagedWith digest

	// ctx and log are those of the operation that has the turn, and name the subject of
	// its step. The context ends with the process: an RPC is not cancelled because a
	// caller left.
	ctx     context.Context //nolint:containedctx // belongs to the turn, as the record does
	log     *slog.Logger
	current *inProgress
	// step is the one that the operation takes; nil: none. Any goroutine may read it.
	step atomic.Pointer[currentStep]

	// Guarded by registry.mu.
	ops            []*inProgress        // in the order of their turns
	lastTurn       <-chan struct{}      // closed when the turn given last is over
	last           map[string]time.Time // when what is done at intervals was done
	uncertainSince time.Time            // that of VolumeState
}

// A currentStep is a step that has begun, and when.
type currentStep struct {
	kind  lifecycle.StepKind
	since time.Time
}

// An operation is what a callout asks of a volume. Two that are equal are one.
type operation struct {
	command flex.Command
	dir     string
	size    int64 // of an expansion
}

// inProgress is an operation that runs or waits for its turn.
type inProgress struct {
	operation
	before <-chan struct{} // closed when its turn has come; nil: it has
	over   chan struct{}   // closed when its turn is over
	// subject is what it was known to be about when it was asked for; without a Request:
	// the bridge's own doing.
	subject volumelog.Subject
	since   time.Time    // when it was asked for
	begun   atomic.Int64 // when its turn came, in Unix nanoseconds; 0: it waits
	callers atomic.Int32 // who wait for what comes of it
	until   atomic.Int64 // when the last of them leaves, in Unix nanoseconds; 0: never
	done    chan struct{}
	err     error // valid once done is closed
}

// inTurn runs f on the volume when its turn comes (run), and waits for it no longer than ctx
// allows. f continues when the caller has left. A caller that asks for the same
// meanwhile waits for the same f.
func (b *Bridge) inTurn(ctx context.Context, key csivol.Key, op operation, f func(*volume) error) error {
	v, running, joined := b.start(ctx, key, op, f)
	if joined {
		volumelog.Logger(ctx, b.log()).Info("joining the same operation, which is under way", "command", string(op.command), "startedBy", running.subject.Request, "since", running.since)
	}
	select {
	case <-running.done:
		return coded(running.err)
	case <-ctx.Done():
	}
	select {
	case <-running.done: // both at once: what was mounted is not called a failure
		return coded(running.err)
	default:
		running.callers.Add(-1)
		return v.late(context.Cause(ctx))
	}
}

// doLater has f done and waits for nothing; an error goes to the log.
func (b *Bridge) doLater(r *volstate.Record, op operation, what string, f func(*volume) error) {
	_, running, _ := b.start(volumelog.With(context.Background(), subject(r, op.dir)), r.Key(), op, f)
	go func() {
		<-running.done
		if running.err != nil {
			running.subject.Logger(b.log()).Warn("a volume could not be reconciled; it will be tried again", "what", what, "error", running.err)
		}
	}()
}

// start starts an operation for a caller, or joins the one that is under way.
func (b *Bridge) start(ctx context.Context, key csivol.Key, op operation, f func(*volume) error) (v *volume, p *inProgress, joined bool) {
	v, p, joined = b.registry.enqueue(ctx, key, op)
	if !joined {
		go b.run(v, p, f)
	}
	return v, p, joined
}

// late returns the error of a caller that waits no longer. It names the step that
// the volume waits for: with a silent server that is all that a pod's events say.
func (v *volume) late(cause error) error {
	s := v.step.Load()
	if s == nil || flex.CodeOf(cause) != flex.CodeDeadlineExceeded {
		return cause
	}
	return flex.Errorf(flex.CodeDeadlineExceeded, "%s of volume %s has not ended for %v; check that its storage answers, and the log of CSI driver %s",
		s.kind, v.key.Handle, time.Since(s.since).Round(time.Second), v.key.Driver)
}

// run is one operation from its turn to its end.
func (b *Bridge) run(v *volume, p *inProgress, f func(*volume) error) {
	ctx := volumelog.With(b.Context, p.subject)
	log := volumelog.Logger(ctx, b.log())
	p.err = fmt.Errorf("%s of %s did not finish: this is a bug", p.command, v.key)
	defer func() {
		if r := recover(); r != nil {
			// What was panicked with may hold a secret; where, does not.
			p.err = flex.Errorf(flex.CodeInternal, "%s of %s panicked: this is a bug; the log of flex2csi says where", p.command, v.key)
			log.Error("an operation panicked", "command", string(p.command), "stack", string(debug.Stack()))
		}
		b.registry.finish(v, p)
		close(p.done)
	}()
	if p.before != nil {
		select {
		case <-p.before:
		case <-b.Context.Done(): // what runs may not end before the process does
			p.err = flex.Errorf(flex.CodeUnavailable, "flex2csi is shutting down; the kubelet will call again")
			return
		}
	}
	defer func() {
		v.ctx, v.log = nil, nil // thousands of idle volumes need neither
		close(p.over)
	}()
	v.ctx, v.log, v.current = ctx, log, p
	p.begun.Store(time.Now().UnixNano())
	p.err = f(v)
	if p.err == nil && p.command != statsCommand && !v.record.Uncertain() {
		v.record.LastError = "" // whatever was wrong is over
	}
	v.inherited = v.inherited && p.err != nil
	if t := v.record.Targets[p.dir]; p.err == nil && p.command == flex.CommandMount && t != nil && t.TargetPath != "" {
		// A write after the bind may fail, or take longer than the caller waits: then the
		// kubelet forgets what it can see mounted. The intent to publish is on the disk,
		// and the mount table says the rest (lifecycle.Recognize).
		b.registry.show(v)
		return
	}
	p.err = errors.Join(p.err, b.saveOutcome(v))
}

// awaited reports whether a caller still waits for the result of the operation that
// has the turn.
func (v *volume) awaited() bool { return v.current.callers.Load() > 0 }

// saveOutcome writes down what an operation has come to, if that is not on the
// disk yet. Intents are, since before their RPCs; outcomes wait for the next
// intent, or for this: what is written later is only believed later.
func (b *Bridge) saveOutcome(v *volume) error {
	saved := v.saved.Load()
	if saved == nil && v.record.Idle() {
		v.record = &volstate.Record{Driver: v.key.Driver, Handle: v.key.Handle}
		return nil
	}
	if saved != nil && v.record.Same(saved) {
		return nil
	}
	err := b.save(v)
	if err != nil {
		v.record = lifecycle.TakeBack(v.record, saved)
		lifecycle.Recognize(v.record, b.node().mounted)
	}
	return err
}

// save writes a record down, or removes it when nothing is left, and lets
// everybody see it.
func (b *Bridge) save(v *volume) error {
	v.record.BootID = b.BootID
	var err error
	if v.record.Idle() {
		err = b.State.Delete(v.key)
	} else {
		err = b.State.Put(v.record)
	}
	if err != nil {
		// Without a record nothing may be called: it could not be undone.
		return &flex.Error{Code: flex.CodeInternal, Err: fmt.Errorf("%w; nothing is done without a record", err)}
	}
	b.registry.show(v)
	return nil
}

// settlePause is that between two looks at what is under way.
const settlePause = 10 * time.Millisecond

// Settle waits until no operation is under way. None begins any more when there are no
// callers and Context has ended. Then no record is written any more.
func (b *Bridge) Settle(ctx context.Context) error {
	ticker := time.NewTicker(settlePause)
	defer ticker.Stop()
	for {
		n := b.registry.underWay()
		if n == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d operations are still under way: %w", n, context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

// Records returns all records as they were last saved. They must not be
// changed.
func (b *Bridge) Records() []*volstate.Record { return b.registry.records() }
