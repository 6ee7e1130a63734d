package daemon

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// metrics are in a registry of their own; docs/metrics.md lists them.
type metrics struct {
	registry      *prometheus.Registry
	callouts      *prometheus.HistogramVec
	inFlight      *prometheus.GaugeVec
	volumes       *prometheus.GaugeVec
	stuck         prometheus.Gauge
	tombstones    prometheus.Gauge
	brokenRecords prometheus.Counter
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		callouts: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "flex2csi_callout_duration_seconds", Help: "FlexVolume callouts by command and code (OK for Success).",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120},
		}, []string{"command", "code"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "flex2csi_callouts_in_flight", Help: "FlexVolume callouts being answered.",
		}, []string{"command"}),
		volumes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "flex2csi_volumes", Help: "Volumes on this node by CSI driver and phase of staging.",
		}, []string{"driver_name", "phase"}),
		stuck: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "flex2csi_oldest_unfinished_seconds", Help: "Age of the oldest attach, stage or publish that is neither done nor undone.",
		}),
		tombstones: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "flex2csi_tombstones", Help: "Unmounts made while the daemon was down that are not worked off yet.",
		}),
		brokenRecords: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "flex2csi_broken_records_total", Help: "State files that could not be read and were put aside.",
		}),
	}
	m.registry.MustRegister(m.callouts, m.inFlight, m.volumes, m.stuck, m.tombstones, m.brokenRecords)
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// begin counts a callout in and returns what counts it out.
func (m *metrics) begin(command flex.Command) func(flex.Code, time.Duration) {
	label := string(command)
	if !command.Known() {
		label = "unknown" // labels are not for callers to choose
	}
	m.inFlight.WithLabelValues(label).Inc()
	return func(code flex.Code, took time.Duration) {
		m.inFlight.WithLabelValues(label).Dec()
		if code == "" {
			code = "OK"
		}
		m.callouts.WithLabelValues(label, string(code)).Observe(took.Seconds())
	}
}

// observe counts what the records say.
func (m *metrics) observe(records []*volstate.Record) {
	m.volumes.Reset()
	var oldest time.Time
	for _, r := range records {
		phase := string(r.Stage)
		if r.Stage == volstate.None {
			phase = "none"
		}
		m.volumes.WithLabelValues(r.Driver, phase).Inc()
		for _, since := range unfinished(r) {
			if oldest.IsZero() || since.Before(oldest) {
				oldest = since
			}
		}
	}
	m.stuck.Set(0)
	if !oldest.IsZero() {
		m.stuck.Set(time.Since(oldest).Seconds())
	}
}

// unfinished returns since when what of a record is in doubt.
func unfinished(r *volstate.Record) (since []time.Time) {
	doubt := func(p volstate.Phase) bool { return p == volstate.Doing || p == volstate.Undoing }
	if doubt(r.Attach) || doubt(r.Stage) || r.Expand == volstate.Doing {
		since = append(since, r.Changed)
	}
	for _, t := range r.Targets {
		if doubt(t.Publish) {
			since = append(since, t.Since)
		}
	}
	return since
}
