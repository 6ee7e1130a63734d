// Package daemon runs the flex2csi process: it loads the records of the run before,
// listens, reconciles, serves status and metrics, and drains at the end. internal/bridge
// sets up and tears down volumes.
package daemon

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/statedir"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/internal/volumelog"
	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// Options of a daemon. All paths are absolute.
type Options struct {
	Bridge *bridge.Bridge
	Store  *volstate.Store
	// PendingUnmounts are the unmounts that flexdriver made while no daemon listened.
	PendingUnmounts statedir.PendingUnmounts
	// StateDir has the records and the pending unmounts.
	StateDir string
	Socket   string
	// Drivers are those of the configuration, for status and metrics.
	Drivers []ConfiguredDriver
	// Cluster returns the state of the connection to the API server; nil, or a nil
	// result: there is no access to one.
	Cluster func() *bridgestatus.ClusterStatus
	// Metrics are those of the CSI clients; nil: none.
	Metrics *Metrics
	// HTTPEndpoint is a loopback address for health and metrics; empty: none.
	HTTPEndpoint, MetricsPath string
	// Interval is the period of the reconciler; zero: 30 s.
	Interval time.Duration
	// SweepInterval is the period of the search for attachments without a record;
	// zero: 10 min.
	SweepInterval time.Duration
	// Drain bounds the wait for calls at the end; zero: 20 s, less than the 30 s that
	// Kubernetes gives a pod.
	Drain time.Duration
	// Background runs while this daemon serves.
	Background []func(context.Context)
	Log        *slog.Logger
}

// A ConfiguredDriver is a driver of the configuration.
type ConfiguredDriver struct {
	FlexDriver, CSIDriver string
	// Connections returns the state of the connections to the CSI driver.
	Connections func() []csivol.Connection
	// Reach checks whether it is available; nil: not checked.
	Reach func(ctx context.Context) error
}

// A backend does the callouts of the kubelet or of kube-controller-manager.
type backend interface {
	// Callouts returns those of a Flex driver: [bridge.Bridge.Callouts], or
	// Controller.Callouts of internal/controller.
	Callouts(flexDriver string) (*flex.Driver, error)
}

// A Daemon is a running Options.
type Daemon struct {
	Options
	started time.Time
	backend backend
	// socketInfo is the socket that this process made; valid while it serves.
	socketInfo os.FileInfo
	http       *http.Server // nil: not yet
	failures   failures
	reaches    reaches
	phase      atomic.Int32 // starting, …
	// standsBy describes the process that this one stands by for; nil: none.
	standsBy atomic.Pointer[string]
	// tookSocket is when it got the socket, in Unix nanoseconds.
	tookSocket atomic.Int64
	// turn is closed when callouts may be answered.
	turn      chan struct{}
	settingUp atomic.Int32 // calls
}

// The phases of a daemon.
const (
	starting int32 = iota
	standingBy
	takingOver
	serving
	draining
)

// Run serves until ctx ends, then drains. It returns nil after an orderly end. While
// another process serves the socket, or still uses the records, it waits. The records
// stay locked: the caller unlocks them when the operations of the bridge have ended.
func Run(ctx context.Context, o Options) error {
	d := newDaemon(o)
	d.backend = o.Bridge
	if d.Metrics == nil {
		d.Metrics = NewMetrics()
	}
	if err := d.Metrics.registry.Register(newCollector(d.look)); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	d.Interval = cmp.Or(max(d.Interval, 0), 30*time.Second)
	d.SweepInterval = cmp.Or(max(d.SweepInterval, 0), 10*time.Minute)
	return d.run(ctx, role{
		takeOver:   d.takeOver,
		locked:     d.Store.Locked,
		background: append([]func(context.Context){d.reconcileLoop, d.sweepLoop}, o.Background...),
		documents:  d.documents(),
	})
}

func (d *Daemon) documents() map[string]StatusDocument {
	return map[string]StatusDocument{
		wire.KindStatus:   func() (any, error) { return d.status(), nil },
		wire.KindReady:    d.readiness,
		wire.KindCordon:   d.cordon,
		wire.KindUncordon: d.uncordon,
	}
}

func newDaemon(o Options) *Daemon {
	o.Drain = cmp.Or(max(o.Drain, 0), 20*time.Second)
	return &Daemon{Options: o, started: time.Now(), turn: make(chan struct{})}
}

// takeOver loads the records into this process. When it returns, the process before has
// completed its calls, and callouts may be answered.
func (d *Daemon) takeOver(ctx context.Context) error {
	if err := d.Store.Lock(ctx); err != nil {
		return err
	}
	if err := d.restore(); err != nil {
		return err
	}
	// Pending unmounts come first: their volumes are in use until then, and calls for
	// these wait until the operation on the volume ends.
	d.completeUnmounts(ctx)
	d.Bridge.FinishDetaches()
	return nil
}

// restore loads the records, and reports those that cannot be read.
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
	d.Log.Info("loaded the records of the run before", "count", len(records))
	return nil
}

// handle answers a callout. daemon.Server calls it.
func (d *Daemon) handle(ctx context.Context, r *wire.Request) flex.DriverStatus {
	start := time.Now()
	if err := d.awaitTurn(ctx); err != nil {
		return flex.Failure(err)
	}
	ctx = d.begin(ctx, r)
	command := flex.Command(r.Argv[0])
	done := d.Metrics.begin(command)
	status := d.runCallout(ctx, r)
	took := time.Since(start)
	done(status.Code, took)
	logAnswer(ctx, d.callLogger(ctx, r), status, command, took)
	d.failures.note(r, status, time.Now())
	return status
}

func (d *Daemon) runCallout(ctx context.Context, r *wire.Request) flex.DriverStatus {
	driver, err := d.backend.Callouts(r.Driver)
	if err != nil {
		return flex.Failure(err)
	}
	if d.Bridge != nil && flex.Command(r.Argv[0]) == flex.CommandInit { // of handoff.Probe
		if err := d.Bridge.Configured(r.Driver); err != nil {
			return flex.Failure(err)
		}
	}
	// The server's own deadline comes first: this keeps flex.DefaultTimeout away.
	driver.Timeout = func(flex.Command) time.Duration { return r.Timeout() }
	if setsUp(flex.Command(r.Argv[0])) {
		d.settingUp.Add(1) // before the check, so that cordon counts this call or the check refuses it
		defer d.settingUp.Add(-1)
		if err := d.checkCordon(); err != nil {
			return flex.Failure(err)
		}
	}
	return flex.Run(ctx, driver, r.Argv) // which calls driver.Handle: that of Callouts
}

// unmountsWait bounds the completion of all pending unmounts when the daemon starts:
// calls wait for it. After that a mount waits only for the pending unmount of its own
// directory.
const unmountsWait = 10 * time.Second

// completeUnmounts completes the pending unmounts in parallel: a CSI driver that does
// not answer must not delay the others, and with them all calls. The reconciler repeats
// those that fail.
func (d *Daemon) completeUnmounts(ctx context.Context) {
	found, broken := statedir.ListPendingUnmounts(string(d.PendingUnmounts))
	for _, err := range broken {
		d.Log.Error("a pending unmount cannot be read", "error", err)
	}
	ctx, cancel := context.WithTimeout(ctx, unmountsWait)
	defer cancel()
	var all sync.WaitGroup
	for _, t := range found {
		all.Go(func() {
			ctx := volumelog.With(ctx, volumelog.OfDir(t.Dir))
			if err := d.Bridge.CompleteUnmount(ctx, t.Dir); err != nil {
				volumelog.Logger(ctx, d.Log).Warn("a pending unmount could not be completed; it will be retried", "since", t.Time, "error", err)
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
		d.completeUnmounts(ctx)
		d.Bridge.Reconcile(ctx)
	}
}

// sweepLoop begins after the first answer of the API server, which may be late.
func (d *Daemon) sweepLoop(ctx context.Context) {
	ticker := time.NewTicker(d.SweepInterval)
	defer ticker.Stop()
	for {
		if err := d.Bridge.Sweep(ctx); err != nil && ctx.Err() == nil {
			d.Log.Warn("could not search for attachments without a record", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
