package controller

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// collector has the metrics of a sweeper.
type collector struct {
	result                         func() SweepResult
	attachments, leaked, swept, at *prometheus.Desc
}

// NewCollector returns the metrics of docs/controller.md. Only the controller that
// sweeps has them.
func NewCollector(result func() SweepResult) prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &collector{
		result:      result,
		attachments: desc("flex2csi_attachments", "VolumeAttachments of flex2csi by state.", "state"),
		leaked:      desc("flex2csi_leaked_attachments", "VolumeAttachments of flex2csi that keep a volume on a node for no reason."),
		swept:       desc("flex2csi_swept_attachments_total", "VolumeAttachments that this controller has deleted.", "state"),
		at:          desc("flex2csi_sweeper_last_look_timestamp_seconds", "When this controller last looked at all VolumeAttachments."),
	}
}

// Describe lists the metrics; see prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.attachments, c.leaked, c.swept, c.at} {
		ch <- d
	}
}

// Collect makes the metrics; see prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, value, labels...)
	}
	r, leaked, by := c.result(), 0, map[AttachmentState]int{}
	for i := range r.Findings {
		by[r.Findings[i].State]++
		if r.Findings[i].Leaked(time.Now()) {
			leaked++
		}
	}
	for _, v := range States() {
		if _, swept := v.grace(); swept {
			send(c.swept, prometheus.CounterValue, float64(r.Swept[v]), string(v))
		}
		if !r.Looked.IsZero() {
			send(c.attachments, prometheus.GaugeValue, float64(by[v]), string(v))
		}
	}
	if !r.Looked.IsZero() {
		send(c.leaked, prometheus.GaugeValue, float64(leaked))
		send(c.at, prometheus.GaugeValue, float64(r.Looked.UnixMilli())/1000)
	}
}
