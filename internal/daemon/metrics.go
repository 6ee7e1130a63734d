package daemon

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/flex2csi/flex2csi/internal/version"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// Metrics have their own registry; docs/metrics.md lists them. These are counted at each
// event; those of collector at each scrape.
type Metrics struct {
	registry *prometheus.Registry
	rpcs     *prometheus.HistogramVec
	callouts *prometheus.HistogramVec
	requests *prometheus.HistogramVec
	inFlight *prometheus.GaugeVec
}

// NewMetrics returns metrics without values.
func NewMetrics() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		// Name, labels, help and buckets are those of the CSI sidecars, so that
		// their dashboards fit (kubernetes-csi/csi-lib-utils v0.24.0,
		// metrics/metrics.go).
		rpcs: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Subsystem: "csi_sidecar", Name: "operations_seconds",
			Help:    "Container Storage Interface operation duration with gRPC error code status total",
			Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
		}, []string{"driver_name", "method_name", "grpc_status_code"}),
		callouts: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "flex2csi_callout_duration_seconds", Help: "FlexVolume callouts by command and code (OK for Success).",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120},
		}, []string{"command", "code"}),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "flex2csi_api_request_duration_seconds", Help: "Requests to the API server by verb, resource and HTTP status (0: no answer).",
			Buckets: []float64{.005, .025, .1, .5, 1, 2.5, 5, 10},
		}, []string{"verb", "resource", "code"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "flex2csi_callouts_in_flight", Help: "FlexVolume callouts being answered.",
		}, []string{"command"}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "flex2csi_build_info", Help: "The constant 1, with the version of flex2csi.",
		ConstLabels: prometheus.Labels{"version": version.Get().Version, "go_version": version.Get().Go},
	})
	build.Set(1)
	m.registry.MustRegister(m.rpcs, m.callouts, m.requests, m.inFlight, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *Metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}

// ObserveRPC counts an RPC; see csiclient.Observer.
func (m *Metrics) ObserveRPC(driver, method, code string, took time.Duration) {
	m.rpcs.WithLabelValues(driver, method, code).Observe(took.Seconds())
}

// ObserveRequest counts a request to the API server; see kube.Options.Observe.
func (m *Metrics) ObserveRequest(verb, resource string, code int, took time.Duration) {
	m.requests.WithLabelValues(verb, resource, strconv.Itoa(code)).Observe(took.Seconds())
}

// begin counts the begin of a callout, and returns a function for its end.
func (m *Metrics) begin(command flex.Command) func(flex.Code, time.Duration) {
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
