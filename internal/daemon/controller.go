package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/flex2csi/flex2csi/internal/wire"
)

// ControllerOptions are the options of flex2csi controller, which has no volumes, no
// state and no CSI drivers; the rest is as in [Options].
type ControllerOptions struct {
	// Controller does the callouts.
	Controller backend
	// Socket is for calls of flexdriver; empty: no calls are served.
	Socket string
	// Background runs meanwhile.
	Background []func(ctx context.Context)
	// Collector has more metrics.
	Collector                 prometheus.Collector
	Metrics                   *Metrics
	HTTPEndpoint, MetricsPath string
	Drain                     time.Duration
	Log                       *slog.Logger
}

// RunController serves until ctx ends, then drains. It waits while another process
// serves the socket.
func RunController(ctx context.Context, o ControllerOptions) error {
	d := newDaemon(Options{
		Socket: o.Socket, Metrics: o.Metrics, HTTPEndpoint: o.HTTPEndpoint, MetricsPath: o.MetricsPath, Drain: o.Drain, Log: o.Log,
	})
	d.backend = o.Controller
	if err := d.Metrics.registry.Register(o.Collector); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	r := role{background: o.Background, documents: map[string]StatusDocument{wire.KindReady: d.readiness}}
	if o.Socket != "" {
		return d.run(ctx, r)
	}
	defer d.answerForItself()()
	if err := d.serveHTTP(); err != nil {
		return err
	}
	defer d.stopHTTP()
	d.work(ctx, o.Background)
	return nil
}

// work runs the background work of a controller without a socket.
func (d *Daemon) work(ctx context.Context, others []func(context.Context)) {
	d.phase.Store(serving)
	d.Log.Info("sweeping; no calls are served, as there is no --socket")
	var all sync.WaitGroup
	for _, do := range others {
		all.Go(func() { do(ctx) })
	}
	all.Wait()
}
