package daemon

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
)

// collector makes metrics at each scrape, from the same view as flex2csi status.
type collector struct {
	look  func() *view
	descs map[string]*prometheus.Desc // by name
}

func newCollector(look func() *view) *collector {
	c := &collector{look: look, descs: map[string]*prometheus.Desc{}}
	for _, g := range gauges() {
		c.descs[g.name] = prometheus.NewDesc(g.name, g.help, g.labels, nil)
	}
	return c
}

// A gauge is one metric of the collector.
type gauge struct {
	name, help string
	labels     []string
	kind       prometheus.ValueType
}

func volumesGauge() gauge {
	return gauge{"flex2csi_volumes", "Volumes on this node by CSI driver and phase.", []string{"driver_name", "phase"}, prometheus.GaugeValue}
}

func operationsGauge() gauge {
	return gauge{"flex2csi_operations_in_flight", "Operations on volumes that run or wait for their turn.", []string{"driver_name"}, prometheus.GaugeValue}
}

func oldestOperationGauge() gauge {
	return gauge{"flex2csi_oldest_operation_age_seconds", "How long the oldest operation has been under way; 0 if there is none.", []string{"driver_name"}, prometheus.GaugeValue}
}

func oldestUncertainGauge() gauge {
	return gauge{"flex2csi_oldest_uncertain_age_seconds", "How long the longest attach, stage, publish or their reverse has been neither done nor undone; 0 if there is none.", []string{"driver_name"}, prometheus.GaugeValue}
}

func corruptedGauge() gauge {
	return gauge{"flex2csi_corrupted_mounts", "Mounts that do not work any more, such as FUSE filesystems without their process.", []string{"driver_name"}, prometheus.GaugeValue}
}

func connectedGauge() gauge {
	return gauge{"flex2csi_driver_connected", "1 if there is a connection to the service of the CSI driver. It is made when it is needed.", []string{"driver_name", "flex_driver", "service"}, prometheus.GaugeValue}
}

func reconnectsCounter() gauge {
	return gauge{"flex2csi_driver_reconnects_total", "Connections to the service of the CSI driver after the first one.", []string{"driver_name", "flex_driver", "service"}, prometheus.CounterValue}
}

func attachmentsGauge() gauge {
	return gauge{"flex2csi_volume_attachments", "VolumeAttachments that records of this node name, by CSI driver and state.", []string{"driver_name", "state"}, prometheus.GaugeValue}
}

func reachableGauge() gauge {
	return gauge{"flex2csi_api_server_reachable", "1 if the last request to the API server was answered; absent if none are made.", nil, prometheus.GaugeValue}
}

func pendingUnmountsGauge() gauge {
	return gauge{"flex2csi_pending_unmounts", "Unmounts that flexdriver made while the daemon was down, and that the daemon has not completed.", nil, prometheus.GaugeValue}
}

func lostGauge() gauge {
	return gauge{"flex2csi_lost_mounts", "Mounts that pods have and that no record knows of.", nil, prometheus.GaugeValue}
}

func brokenGauge() gauge {
	return gauge{"flex2csi_broken_state_files", "State files that could not be read; those put aside stay until an operator removes them.", nil, prometheus.GaugeValue}
}

// volumeStats are named and labelled as the kubelet's kubelet_volume_stats, without
// the claim, which no callout has.
type volumeStat struct {
	gauge
	of func(*csivol.Stats) int64
}

func volumeStats() []volumeStat {
	stat := func(name, help string, of func(*csivol.Stats) int64) volumeStat {
		return volumeStat{gauge{"flex2csi_volume_stats_" + name, help, []string{"driver_name", "persistentvolume"}, prometheus.GaugeValue}, of}
	}
	return []volumeStat{
		stat("capacity_bytes", "Capacity of the volume as its CSI driver tells.", func(s *csivol.Stats) int64 { return s.Bytes.Total }),
		stat("used_bytes", "Bytes used in the volume as its CSI driver tells.", func(s *csivol.Stats) int64 { return s.Bytes.Used }),
		stat("available_bytes", "Bytes available in the volume as its CSI driver tells.", func(s *csivol.Stats) int64 { return s.Bytes.Available }),
		stat("inodes", "Inodes of the volume as its CSI driver tells; 0 if it does not.", func(s *csivol.Stats) int64 { return s.Inodes.Total }),
		stat("inodes_used", "Inodes used in the volume.", func(s *csivol.Stats) int64 { return s.Inodes.Used }),
		stat("inodes_free", "Inodes free in the volume.", func(s *csivol.Stats) int64 { return s.Inodes.Available }),
	}
}

// gauges returns all metrics of the collector.
func gauges() []gauge {
	all := []gauge{
		volumesGauge(), operationsGauge(), oldestOperationGauge(), oldestUncertainGauge(), corruptedGauge(),
		connectedGauge(), reconnectsCounter(), attachmentsGauge(), reachableGauge(), pendingUnmountsGauge(), lostGauge(), brokenGauge(),
	}
	for _, s := range volumeStats() {
		all = append(all, s.gauge)
	}
	return all
}

// Describe lists the metrics; see prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect makes the metrics; see prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	send := func(g gauge, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(c.descs[g.name], g.kind, value, labels...)
	}
	v := c.look()
	send(pendingUnmountsGauge(), float64(len(v.pending)))
	send(lostGauge(), float64(len(v.lost)))
	send(brokenGauge(), float64(len(v.broken)))
	if v.cluster != nil {
		send(reachableGauge(), truth(v.cluster.Reachable))
	}
	for _, d := range v.drivers {
		for _, service := range d.Services {
			send(connectedGauge(), truth(service.Connected), d.CSIDriver, d.FlexDriver, service.Name)
			send(reconnectsCounter(), float64(service.Reconnects), d.CSIDriver, d.FlexDriver, service.Name)
		}
	}
	sendStats(v, send)
	for driver, n := range count(v) {
		for phase, volumes := range n.volumes {
			send(volumesGauge(), float64(volumes), driver, string(phase))
		}
		send(operationsGauge(), float64(n.operations), driver)
		send(oldestOperationGauge(), n.oldestOperation.Seconds(), driver)
		send(oldestUncertainGauge(), n.oldestUncertain.Seconds(), driver)
		send(corruptedGauge(), float64(n.corrupted), driver)
		for state, attachments := range n.attachments {
			send(attachmentsGauge(), float64(attachments), driver, string(state))
		}
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// sendStats sends the statistics of volumes. A PersistentVolume that was deleted and
// re-created may be two volumes for a time, and a metric must be unique: it shows the
// first one.
func sendStats(v *view, send func(gauge, float64, ...string)) {
	stats, sent := volumeStats(), map[[2]string]bool{}
	for _, volume := range v.volumes {
		name := [2]string{volume.Record.Driver, volume.Record.Name}
		if volume.Stats == nil || sent[name] {
			continue
		}
		sent[name] = true
		for _, g := range stats {
			send(g.gauge, float64(g.of(volume.Stats)), name[:]...)
		}
	}
}

// attachmentState is the state of a VolumeAttachment.
type attachmentState string

const (
	attached  attachmentState = "attached"
	attaching attachmentState = "attaching"
	detaching attachmentState = "detaching"
	lostState attachmentState = "lost"
)

func stateOf(v bridge.VolumeState) attachmentState {
	switch {
	case v.AttachmentLost:
		return lostState
	case v.Record.Attach == volstate.Doing:
		return attaching
	case v.Record.Attach == volstate.Undoing:
		return detaching
	}
	return attached
}

// counts has the counts of one CSI driver.
type counts struct {
	volumes                          map[bridgestatus.Phase]int
	attachments                      map[attachmentState]int
	operations, corrupted            int
	oldestOperation, oldestUncertain time.Duration
}

// count counts by driver. It includes zeros for all drivers of the configuration and all
// phases, so that no graph has gaps.
func count(v *view) map[string]*counts {
	all := map[string]*counts{}
	of := func(driver string) *counts {
		if all[driver] == nil {
			all[driver] = &counts{volumes: map[bridgestatus.Phase]int{}, attachments: map[attachmentState]int{attached: 0, attaching: 0, detaching: 0, lostState: 0}}
			for _, p := range bridgestatus.Phases() {
				all[driver].volumes[p] = 0
			}
		}
		return all[driver]
	}
	for _, d := range v.drivers {
		of(d.CSIDriver)
	}
	for _, volume := range v.volumes {
		of(volume.Record.Driver).add(volume, v.time)
	}
	return all
}

func (c *counts) add(v bridge.VolumeState, now time.Time) {
	c.volumes[bridgestatus.PhaseOf(v.Record)]++
	if v.Record.Object != "" {
		c.attachments[stateOf(v)]++
	}
	c.operations += len(v.Operations)
	for _, o := range v.Operations {
		c.oldestOperation = max(c.oldestOperation, now.Sub(o.Since))
	}
	c.corrupted += v.Record.DeadMounts()
	if !v.UncertainSince.IsZero() {
		c.oldestUncertain = max(c.oldestUncertain, now.Sub(v.UncertainSince))
	}
}
