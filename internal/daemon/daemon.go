// Package daemon is the life of the flex2csi process: it takes up the records
// of the run before, listens, reconciles, shows how it is doing, and drains
// when it is told to end. What happens to volumes is in internal/bridge.
package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/requestid"
	"github.com/flex2csi/flex2csi/internal/tombstone"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/internal/wire/wireserver"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// Options say where the daemon works. All paths are absolute.
type Options struct {
	Bridge *bridge.Bridge
	Store  *volstate.Store
	// Tombstones are what flexdriver leaves when nobody listens.
	Tombstones tombstone.Dir
	// StateDir holds the records and the tombstones.
	StateDir string
	Socket   string
	// Drivers are those of the configuration, for those who look.
	Drivers []Driver
	// Cluster says how the API server can be reached; nil, or what it returns: it
	// is not asked.
	Cluster func() *bridgestatus.Cluster
	// Metrics are those that the CSI clients report to; nil: none do.
	Metrics *Metrics
	// HTTPEndpoint is a loopback address for health and metrics; empty: none.
	HTTPEndpoint, MetricsPath string
	// Interval between two looks of the reconciler; zero: 30 s.
	Interval time.Duration
	// SweepInterval is that between two looks for attachments that no record
	// knows of; zero: 10 min.
	SweepInterval time.Duration
	// Drain bounds how long calls under way are waited for at the end; zero:
	// 20 s, less than the 30 that Kubernetes gives a pod.
	Drain time.Duration
	Log   *slog.Logger
}

// A Driver is one of the configuration.
type Driver struct {
	FlexDriver, CSIDriver string
	// Connections says how those to the CSI driver are.
	Connections func() []csivol.Connection
}

// A Daemon is a running Options.
type Daemon struct {
	Options
	started time.Time
	// driver returns the callouts of a Flex driver.
	driver func(name string) (*flex.Driver, error)
	// socketInfo is the socket that this process made.
	socketInfo os.FileInfo
	failures   failures
	phase      atomic.Int32 // one of starting, serving, draining
}

// The phases of a daemon.
const (
	starting int32 = iota
	serving
	draining
)

// Run serves until ctx ends, then drains. It returns nil after an end in good
// order.
func Run(ctx context.Context, o Options) error {
	d := &Daemon{Options: o, started: time.Now(), driver: o.Bridge.Driver}
	if d.Metrics == nil {
		d.Metrics = NewMetrics()
	}
	if err := d.Metrics.registry.Register(newCollector(d.look)); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	if d.Interval <= 0 {
		d.Interval = 30 * time.Second
	}
	if d.SweepInterval <= 0 {
		d.SweepInterval = 10 * time.Minute
	}
	if d.Drain <= 0 {
		d.Drain = 20 * time.Second
	}
	if err := d.restore(); err != nil {
		return err
	}
	listener, err := d.listen()
	if err != nil {
		return err
	}
	defer listener.Close()
	stopHTTP, err := d.serveHTTP()
	if err != nil {
		return err
	}
	defer stopHTTP()
	// Tombstones come first: what they bury is in use until then, and calls for
	// it wait for their turn on the volume.
	d.bury(ctx)
	d.Bridge.FinishDetaches()
	d.Log.Info("serving", "socket", d.Socket, "node", d.Bridge.NodeName)
	documents := map[string]wireserver.Document{wire.KindStatus: func() (any, error) { return d.status(), nil }}
	return d.serve(ctx, listener, documents, d.reconcileLoop, d.sweepLoop)
}

// listen makes the socket.
func (d *Daemon) listen() (net.Listener, error) {
	listener, err := wireserver.Listen(d.Socket)
	if err != nil {
		return nil, err
	}
	if d.socketInfo, err = os.Lstat(d.Socket); err != nil {
		listener.Close()
		return nil, fmt.Errorf("look at the socket: %w", err)
	}
	return listener, nil
}

// restore takes up the records, reporting those that cannot be read.
func (d *Daemon) restore() error {
	records, broken, err := d.Store.Load()
	if err != nil {
		return err
	}
	for _, err := range broken {
		d.Log.Error("a state file is broken", "error", err)
	}
	d.Bridge.Restore(records)
	debug.FreeOSMemory() // thousands of files may have been read
	d.Log.Info("took up the volumes of the run before", "count", len(records))
	return nil
}

// serve answers calls while ctx lasts, and does the other things as well.
func (d *Daemon) serve(ctx context.Context, l net.Listener, documents map[string]wireserver.Document, others ...func(context.Context)) error {
	server := &wireserver.Server{Handler: d.handle, Documents: documents, Log: d.Log}
	// Calls under way have their own time to end; they are not cut off.
	callCtx, endCalls := context.WithCancel(context.WithoutCancel(ctx))
	defer endCalls()
	var background sync.WaitGroup
	for _, do := range others {
		background.Go(func() { do(ctx) })
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(callCtx, l) }()
	d.phase.Store(serving)
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

// handle is one callout.
func (d *Daemon) handle(ctx context.Context, r *wire.Request) flex.DriverStatus {
	start := time.Now()
	ctx = requestid.With(ctx, r.ID)
	log := d.callLogger(ctx, r)
	logCall(ctx, log, r)
	command := flex.Command(r.Argv[0])
	done := d.Metrics.begin(command)
	status := d.answer(ctx, r)
	took := time.Since(start)
	done(status.Code, took)
	logAnswer(ctx, log, status, command, took)
	d.failures.note(r, status, time.Now())
	return status
}

func (d *Daemon) answer(ctx context.Context, r *wire.Request) flex.DriverStatus {
	driver, err := d.driver(r.Driver)
	if err != nil {
		return flex.Failure(err)
	}
	driver.Timeout = func(flex.Command) time.Duration { return r.Timeout() }
	return flex.Run(ctx, driver, r.Argv)
}

// buryWait bounds the working off of all tombstones, for which calls wait when
// the daemon starts. A mount for which one is left waits for that one only.
const buryWait = 10 * time.Second

// bury works off the tombstones, side by side: one CSI driver that does not
// answer must not keep the others, and all calls, waiting. One that cannot be
// worked off now stays for the reconciler.
func (d *Daemon) bury(ctx context.Context) {
	found, broken := tombstone.List(string(d.Tombstones))
	for _, err := range broken {
		d.Log.Error("a tombstone is broken", "error", err)
	}
	ctx, cancel := context.WithTimeout(ctx, buryWait)
	defer cancel()
	var all sync.WaitGroup
	for _, t := range found {
		all.Go(func() {
			if err := d.Bridge.Bury(ctx, t.Dir); err != nil {
				d.Log.Warn("an unmount made without the daemon could not be completed; it will be tried again", "dir", t.Dir, "since", t.Time, "error", err)
			}
		})
	}
	all.Wait()
}

func (d *Daemon) reconcileLoop(ctx context.Context) {
	ticker := time.NewTicker(d.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		d.bury(ctx)
		d.Bridge.Reconcile(ctx)
	}
}

// sweepLoop begins when the API server has said what is there, which may be late.
func (d *Daemon) sweepLoop(ctx context.Context) {
	ticker := time.NewTicker(d.SweepInterval)
	defer ticker.Stop()
	for {
		if err := d.Bridge.Sweep(ctx); err != nil && ctx.Err() == nil {
			d.Log.Warn("attachments that no record knows of could not be looked for", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
