package daemon

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// ControllerOptions say what flex2csi serve --controller does where. It has no
// volumes, no state and no CSI drivers; the rest is as with [Options].
type ControllerOptions struct {
	// Driver returns the callouts of a Flex driver.
	Driver func(name string) (*flex.Driver, error)
	// Socket is where flexdriver calls; empty: nobody does.
	Socket string
	// Background is done all the while.
	Background []func(ctx context.Context)
	// Collector has more metrics.
	Collector                 prometheus.Collector
	Metrics                   *Metrics
	HTTPEndpoint, MetricsPath string
	Drain                     time.Duration
	Log                       *slog.Logger
}

// RunController serves until ctx ends, then drains.
func RunController(ctx context.Context, o ControllerOptions) error {
	d := &Daemon{driver: o.Driver, started: time.Now(), Options: Options{
		Socket: o.Socket, Metrics: o.Metrics, HTTPEndpoint: o.HTTPEndpoint, MetricsPath: o.MetricsPath,
		Drain: cmp.Or(o.Drain, 20*time.Second), Log: o.Log,
	}}
	if err := d.Metrics.registry.Register(o.Collector); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	var listener net.Listener
	if o.Socket != "" {
		var err error
		if listener, err = d.listen(); err != nil {
			return err
		}
		defer listener.Close()
	}
	stopHTTP, err := d.serveHTTP()
	if err != nil {
		return err
	}
	defer stopHTTP()
	if listener == nil {
		d.work(ctx, o.Background)
		return nil
	}
	d.Log.Info("serving kube-controller-manager", "socket", d.Socket)
	return d.serve(ctx, listener, nil, o.Background...)
}

// work is for one whom nobody calls.
func (d *Daemon) work(ctx context.Context, others []func(context.Context)) {
	d.phase.Store(serving)
	d.Log.Info("sweeping; nobody is served, as there is no --socket")
	var all sync.WaitGroup
	for _, do := range others {
		all.Go(func() { do(ctx) })
	}
	all.Wait()
}
