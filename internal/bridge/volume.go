package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/requestid"
	"github.com/flex2csi/flex2csi/internal/volstate"
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

	// ctx and log are those of the operation that has the turn. They know the
	// request that it was started for. The context ends with the process: an
	// RPC is not cancelled because a caller left.
	ctx     context.Context //nolint:containedctx // belongs to the turn, as the record does
	log     *slog.Logger
	current *inProgress

	// Guarded by Bridge.mu.
	ops            []*inProgress        // in the order of their turns
	lastTurn       <-chan struct{}      // closed when the turn given last is over
	last           map[string]time.Time // when what is done at intervals was done
	uncertainSince time.Time            // that of VolumeStatus
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
	before  <-chan struct{} // closed when its turn has come; nil: it has
	over    chan struct{}   // closed when its turn is over
	request string          // that it was started for; empty: the bridge's own doing
	since   time.Time       // when it was asked for
	begun   atomic.Int64    // when its turn came, in Unix nanoseconds; 0: it waits
	callers atomic.Int32    // who wait for what comes of it
	until   atomic.Int64    // when the last of them leaves, in Unix nanoseconds; 0: never
	done    chan struct{}
	err     error // valid once done is closed
}

// volume returns the volume with a key, which may be new and without a record.
func (b *Bridge) volume(key csivol.Key) *volume {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.volumeLocked(key)
}

func (b *Bridge) volumeLocked(key csivol.Key) *volume {
	if b.volumes == nil {
		b.volumes = map[csivol.Key]*volume{}
	}
	v, ok := b.volumes[key]
	if !ok {
		v = &volume{
			key:    key,
			record: &volstate.Record{Driver: key.Driver, Handle: key.Handle},
		}
		b.volumes[key] = v
	}
	return v
}

// inTurn runs f on the volume when its turn comes, and waits for it no longer than ctx
// allows. f continues when the caller has left. A caller that asks for the same
// meanwhile waits for the same f.
func (b *Bridge) inTurn(ctx context.Context, key csivol.Key, op operation, f func(*volume) error) error {
	running, joined := b.start(ctx, key, op, f)
	if joined {
		requestid.Logger(ctx, b.log()).Info("joining the same operation, which is under way", "command", string(op.command), "volumeHandle", key.Handle, "startedBy", running.request, "since", running.since)
	}
	select {
	case <-running.done:
		return coded(running.err)
	case <-ctx.Done():
		running.callers.Add(-1)
		return context.Cause(ctx)
	}
}

// doLater has f done and waits for nothing; an error goes to the log.
func (b *Bridge) doLater(r *volstate.Record, op operation, what string, f func(*volume) error) {
	running, _ := b.start(context.Background(), r.Key(), op, f)
	go func() {
		<-running.done
		if running.err != nil {
			b.log().Warn("a volume could not be reconciled; it will be tried again", "what", what, "volumeHandle", r.Handle, "csiDriver", r.Driver, "dir", op.dir, "error", running.err)
		}
	}()
}

// start starts an operation for a caller, or joins the one that is under way.
func (b *Bridge) start(ctx context.Context, key csivol.Key, op operation, f func(*volume) error) (p *inProgress, joined bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.volumeLocked(key)
	if latest := v.latest(op.dir); latest != nil && latest.operation == op {
		latest.callers.Add(1)
		latest.waitUntil(ctx)
		return latest, true
	}
	p = &inProgress{operation: op, before: v.lastTurn, over: make(chan struct{}), request: requestid.From(ctx), since: time.Now(), done: make(chan struct{})}
	p.callers.Store(1)
	p.waitUntil(ctx)
	v.ops, v.lastTurn = append(v.ops, p), p.over
	go b.run(v, p, f)
	return p, false
}

// latest returns what was last asked for a directory. Only that may be joined:
// a mount that comes after an unmount is not the mount before it.
func (v *volume) latest(dir string) *inProgress {
	for _, p := range slices.Backward(v.ops) {
		if p.dir == dir {
			return p
		}
	}
	return nil
}

// run is one operation from its turn to its end.
func (b *Bridge) run(v *volume, p *inProgress, f func(*volume) error) {
	ctx := requestid.With(b.Context, p.request)
	log := requestid.Logger(ctx, b.log()).With("csiDriver", v.key.Driver, "volumeHandle", v.key.Handle)
	p.err = fmt.Errorf("%s of %s did not finish: this is a bug", p.command, v.key)
	defer func() {
		if r := recover(); r != nil {
			// What was panicked with may hold a secret; where, does not.
			p.err = flex.Errorf(flex.CodeInternal, "%s of %s panicked: this is a bug; the log of flex2csi says where", p.command, v.key)
			log.Error("an operation panicked", "command", string(p.command), "stack", string(debug.Stack()))
		}
		b.finish(v, p)
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
	if p.err == nil && p.command != statsCommand {
		v.record.LastError = "" // whatever was wrong is over
	}
	v.inherited = v.inherited && p.err != nil
	p.err = errors.Join(p.err, b.saveOutcome(v))
}

// awaited reports whether a caller still waits for the result of the operation that
// has the turn.
func (v *volume) awaited() bool { return v.current.callers.Load() > 0 }

// finish removes an operation from its volume, and the volume from the list if nothing
// is left of it. Then no caller waits for its turn: such a caller would be among the
// operations.
func (b *Bridge) finish(v *volume, p *inProgress) {
	b.mu.Lock()
	defer b.mu.Unlock()
	v.ops = slices.DeleteFunc(v.ops, func(other *inProgress) bool { return other == p })
	if len(v.ops) == 0 && v.saved.Load() == nil {
		delete(b.volumes, v.key)
	}
}

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
	return b.save(v)
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
	b.show(v)
	return nil
}

// show shows the record as it is now to those who only look, and makes it
// possible to find it by its directories.
func (b *Bridge) show(v *volume) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if old := v.saved.Load(); old != nil {
		for _, dir := range old.Dirs() {
			if b.byDir[dir] == v.key { // or the next volume of this name has it by now
				delete(b.byDir, dir)
			}
		}
	}
	if v.record.Idle() {
		v.noteDoubtLocked(nil)
		v.saved.Store(nil)
		v.record = &volstate.Record{Driver: v.key.Driver, Handle: v.key.Handle}
		return
	}
	saved := v.record.Clone()
	v.noteDoubtLocked(saved)
	v.saved.Store(saved)
	if b.byDir == nil {
		b.byDir = map[string]csivol.Key{}
	}
	for _, dir := range saved.Dirs() {
		b.byDir[dir] = v.key
	}
}

// byDirectory returns the volume with a record that names a directory of the kubelet.
func (b *Bridge) byDirectory(dir string) (csivol.Key, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key, ok := b.byDir[dir]
	return key, ok
}

// find returns the volume that a directory of the kubelet belongs to, or will
// belong to when an operation has come so far.
func (b *Bridge) find(dir string) (csivol.Key, bool) {
	b.mu.Lock() // throughout: an operation may be recorded, and end, between two looks
	defer b.mu.Unlock()
	if key, ok := b.byDir[dir]; ok {
		return key, true
	}
	for key, v := range b.volumes {
		for _, p := range v.ops {
			if p.dir == dir {
				return key, true
			}
		}
	}
	return csivol.Key{}, false
}

// settlePause is that between two looks at what is under way.
const settlePause = 10 * time.Millisecond

// Settle waits until no operation is under way. None begins any more when there are no
// callers and Context has ended. Then no record is written any more.
func (b *Bridge) Settle(ctx context.Context) error {
	ticker := time.NewTicker(settlePause)
	defer ticker.Stop()
	for {
		n := b.underWay()
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

func (b *Bridge) underWay() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, v := range b.volumes {
		n += len(v.ops)
	}
	return n
}

// Records returns all records as they were last saved. They must not be
// changed.
func (b *Bridge) Records() []*volstate.Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	var records []*volstate.Record
	for _, v := range b.volumes {
		if r := v.saved.Load(); r != nil {
			records = append(records, r)
		}
	}
	return records
}
