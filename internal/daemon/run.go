package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// A role has the differences between the daemon of a node and the controller.
type role struct {
	// takeOver is called when this process has the socket, before the first callout is
	// answered; nil: nothing.
	takeOver func(ctx context.Context) error
	// locked reports whether another process uses what this one will take over, or why
	// that is not known; nil: nothing to take over.
	locked func() (bool, error)
	// documents answer status requests, from the start.
	documents map[string]StatusDocument
	// background runs while it serves.
	background []func(ctx context.Context)
}

// run runs the process from stand-by to draining (docs/adr/0014-hand-over.md).
func (d *Daemon) run(ctx context.Context, r role) error {
	defer d.answerForItself()()
	if err := d.serveHTTP(); err != nil && !errors.Is(err, errPortTaken) {
		return err
	}
	defer d.stopHTTP()
	listener, err := d.awaitSocket(ctx, r)
	if ctx.Err() != nil {
		if err == nil {
			return listener.Close()
		}
		return nil
	}
	if err != nil {
		return err
	}
	defer listener.Close()
	return d.serve(ctx, listener, r)
}

// serve answers callouts and runs the background work until ctx ends.
func (d *Daemon) serve(ctx context.Context, l net.Listener, r role) error {
	server := &Server{Handler: d.handle, Documents: r.documents, Log: d.Log}
	// Calls under way are drained, not canceled.
	callCtx, endCalls := context.WithCancel(context.WithoutCancel(ctx))
	defer endCalls()
	served := make(chan error, 1)
	go func() { served <- server.Serve(callCtx, l) }()
	if err := d.prepare(ctx, r); err != nil || ctx.Err() != nil {
		// Callouts that have waited are left to the next process.
		endCalls()
		_ = l.Close()
		ended := <-served
		if ctx.Err() != nil {
			return nil
		}
		return errors.Join(err, ended)
	}
	var background sync.WaitGroup
	for _, do := range r.background {
		background.Go(func() { do(ctx) })
	}
	d.phase.Store(serving)
	close(d.turn)
	d.Log.Info("serving", "socket", d.Socket, "afterStart", time.Since(d.started))
	select {
	case err := <-served:
		return fmt.Errorf("the socket was closed: %w", err)
	case <-ctx.Done():
	}
	d.phase.Store(draining)
	d.Log.Info("draining", "limit", d.Drain)
	d.stopHTTP() // who gets the socket wants the address as well, and ends without it
	if err := l.Close(); err != nil {
		d.Log.Warn("close the socket", "error", err)
	}
	return d.drain(served, endCalls, &background)
}

// drain waits for calls under way. Those that take too long are abandoned: their records
// have the state, and the kubelet calls again.
func (d *Daemon) drain(served <-chan error, endCalls context.CancelFunc, background *sync.WaitGroup) error {
	var err error
	select {
	case err = <-served:
	case <-time.After(d.Drain):
		d.Log.Warn("parking calls that take too long")
		endCalls()
		err = <-served
	}
	background.Wait()
	return err
}

// prepare does all that is required before callouts are answered. The port for HTTP is
// tried again: perhaps the process before had it.
func (d *Daemon) prepare(ctx context.Context, r role) error {
	if r.takeOver != nil {
		if err := r.takeOver(ctx); err != nil {
			return err
		}
	}
	return d.serveHTTP()
}

// ownRetry is the pause between two tries to get the socket for itself, which another
// process outside of a pod has.
const ownRetry = time.Second

// answerForItself answers only whether this process is ready, until stop is called. The
// address is open to each process of the network namespace with user ID 0, also to one
// that has no access to the node's files.
func (d *Daemon) answerForItself() (stop func()) {
	server := &Server{Documents: map[string]StatusDocument{wire.KindReady: d.readiness}, Log: d.Log, AllowUID: os.Geteuid()}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if l, err := ListenOwn(d.Socket); err == nil {
				closed := context.AfterFunc(ctx, func() { _ = l.Close() })
				_ = server.Serve(ctx, l) // nil, since we close it
				closed()
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(ownRetry):
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// awaitSocket makes the socket when no other process has it.
func (d *Daemon) awaitSocket(ctx context.Context, r role) (net.Listener, error) {
	listener, err := Listen(d.Socket)
	if errors.Is(err, ErrTaken) {
		// A process that stands by is Ready, and then the other one is stopped.
		if err := d.checkHeir(ctx, r); err != nil {
			return nil, err
		}
		d.phase.Store(standingBy)
		d.Log.Info("standing by: another flex2csi has the socket", "socket", d.Socket)
		watching, stop := context.WithCancel(ctx)
		go d.watchServing(watching)
		listener, err = Await(ctx, d.Socket)
		stop()
	}
	if err != nil {
		return nil, err
	}
	if d.socketInfo, err = os.Lstat(d.Socket); err != nil {
		listener.Close()
		return nil, fmt.Errorf("look at the socket: %w", err)
	}
	d.tookSocket.Store(time.Now().UnixNano())
	d.phase.Store(takingOver)
	return listener, nil
}

const (
	heirLooks = 5
	heirPause = 100 * time.Millisecond
)

// checkHeir returns why this process must not take over from the one that serves: it
// cannot use the records, or has other ones.
func (d *Daemon) checkHeir(ctx context.Context, r role) error {
	if r.locked == nil {
		return nil
	}
	for range heirLooks { // the other one may be starting or ending
		locked, err := r.locked()
		if locked || err != nil {
			return err
		}
		if other, err := d.askServing(ctx); err != nil || other.State != bridgestatus.Serving {
			return nil //nolint:nilerr // a stale socket is replaced
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(heirPause):
		}
	}
	return fmt.Errorf("the flex2csi that serves %s has its records elsewhere than in %s, so that its volumes would be lost: give the same --state-dir, or another --socket", d.Socket, d.StateDir)
}

// watchInterval is the pause between two checks of the process that serves.
const watchInterval = 10 * time.Second

// watchServing updates standsBy.
func (d *Daemon) watchServing(ctx context.Context) {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for {
		who := d.whoServes(ctx)
		if before := d.standsBy.Swap(&who); (before == nil || *before != who) && ctx.Err() == nil {
			d.Log.Info("standing by", "for", who)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (d *Daemon) whoServes(ctx context.Context) string {
	r, err := d.askServing(ctx)
	if err != nil {
		return "another flex2csi"
	}
	return fmt.Sprintf("flex2csi %s, which runs since %s", r.Version, r.Started.Format(time.RFC3339))
}

// askServing asks the process that has the socket.
func (d *Daemon) askServing(ctx context.Context) (*bridgestatus.Readiness, error) {
	document, err := wire.Ask(ctx, d.Socket, wire.KindReady, time.Second)
	if err != nil {
		return nil, err
	}
	var r bridgestatus.Readiness
	if err := json.Unmarshal(document, &r); err != nil {
		return nil, err
	}
	if r.Kind != bridgestatus.ReadinessKind {
		return nil, fmt.Errorf("it answers with %s", r.Kind)
	}
	return &r, nil
}

// awaitTurn delays a callout until this process may act. It fails if the caller has left
// meanwhile: the kubelet calls again.
func (d *Daemon) awaitTurn(ctx context.Context) error {
	select {
	case <-d.turn:
		return context.Cause(ctx)
	default:
	}
	select {
	case <-d.turn:
		return context.Cause(ctx)
	case <-ctx.Done():
		return flex.Errorf(flex.CodeOf(context.Cause(ctx)), "flex2csi was replaced, and the one before still has calls under way: %w", context.Cause(ctx))
	}
}
