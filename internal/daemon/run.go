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
	"github.com/flex2csi/flex2csi/internal/wire/wireserver"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// A role is what the daemon of a node and that of a controller do differently.
type role struct {
	// takeOver is done when this process has the socket, and before the first
	// callout is answered; nil: nothing.
	takeOver func(ctx context.Context) error
	// locked reports whether another process acts on what this one will take over,
	// and why it could not; nil: there is nothing.
	locked func() (bool, error)
	// documents answer questions, from the first moment on.
	documents map[string]wireserver.Document
	// background is done while it serves.
	background []func(ctx context.Context)
}

// run is a life from stand-by to draining (docs/adr/0014-hand-over.md).
func (d *Daemon) run(ctx context.Context, r role) error {
	defer d.answerForItself()()
	if err := d.serveHTTP(); err != nil && !errors.Is(err, errPortTaken) {
		return err
	} // one that another process has may be that of the one before: see prepare
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

// serve answers callouts while ctx lasts, and does the other things as well.
func (d *Daemon) serve(ctx context.Context, l net.Listener, r role) error {
	server := &wireserver.Server{Handler: d.handle, Documents: r.documents, Log: d.Log}
	// Calls under way have their own time to end; they are not cut off.
	callCtx, endCalls := context.WithCancel(context.WithoutCancel(ctx))
	defer endCalls()
	served := make(chan error, 1)
	go func() { served <- server.Serve(callCtx, l) }()
	if err := d.prepare(ctx, r); err != nil || ctx.Err() != nil {
		// Callouts that have waited are left to the next flex2csi.
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
	if err := l.Close(); err != nil {
		d.Log.Warn("close the socket", "error", err)
	}
	return d.drain(served, endCalls, &background)
}

// drain waits for calls under way; those that take too long are parked: their
// records say how far they are, and the kubelet calls again.
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

// prepare is all that has to be done before callouts are answered.
func (d *Daemon) prepare(ctx context.Context, r role) error {
	if r.takeOver != nil {
		if err := r.takeOver(ctx); err != nil {
			return err
		}
	}
	return d.serveHTTP()
}

// ownRetry is the pause between two tries to get the own socket, which another
// process has that is not in a pod.
const ownRetry = time.Second

// answerForItself answers whether this process is ready, until stop is called.
// Nothing else is answered there: the address is open to each process of the
// network namespace with user ID 0, also to one that may touch no file of the node.
func (d *Daemon) answerForItself() (stop func()) {
	server := &wireserver.Server{Documents: map[string]wireserver.Document{wire.KindReady: d.readiness}, Log: d.Log, AllowUID: os.Geteuid()}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if l, err := wireserver.ListenOwn(d.Socket); err == nil {
				closed := context.AfterFunc(ctx, func() { _ = l.Close() })
				_ = server.Serve(ctx, l) // nil, since it is we who close it
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

// awaitSocket makes the socket, when no other process has it any more.
func (d *Daemon) awaitSocket(ctx context.Context, r role) (net.Listener, error) {
	listener, err := wireserver.Listen(d.Socket)
	if errors.Is(err, wireserver.ErrTaken) {
		// One that stands by is Ready, upon which the other one is ended.
		if err := d.checkHeir(ctx, r); err != nil {
			return nil, err
		}
		d.phase.Store(standingBy)
		d.Log.Info("standing by: another flex2csi has the socket", "socket", d.Socket)
		watching, stop := context.WithCancel(ctx)
		go d.watchServing(watching)
		listener, err = wireserver.Await(ctx, d.Socket)
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

// checkHeir returns why this process must not follow the one that serves: it cannot use
// the records, or its records are not those of the other one.
func (d *Daemon) checkHeir(ctx context.Context, r role) error {
	if r.locked == nil {
		return nil
	}
	for range heirLooks { // the other one may have just begun, or be about to end
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

// watchInterval is the pause between two looks at the one that serves.
const watchInterval = 10 * time.Second

// watchServing keeps up to date for whom this process stands by.
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

// awaitTurn lets a callout wait until this process may act. It is not begun if its
// caller has left meanwhile: the kubelet calls again.
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
