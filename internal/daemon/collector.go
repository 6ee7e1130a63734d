package daemon

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
)

// collector makes metrics of a status when somebody asks for them, so that
// flex2csi status and the metrics never disagree.
type collector struct {
	status func() *bridgestatus.BridgeStatus
	descs  map[string]*prometheus.Desc // by name
}

func newCollector(status func() *bridgestatus.BridgeStatus) *collector {
	c := &collector{status: status, descs: map[string]*prometheus.Desc{}}
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

func oldestDoubtGauge() gauge {
	return gauge{"flex2csi_oldest_in_doubt_age_seconds", "How long the longest attach, stage, publish or their reverse has been neither done nor undone; 0 if there is none.", []string{"driver_name"}, prometheus.GaugeValue}
}

func corruptedGauge() gauge {
	return gauge{"flex2csi_corrupted_mounts", "Mounts that do not work any more, such as those of a filesystem whose process is gone.", []string{"driver_name"}, prometheus.GaugeValue}
}

func connectedGauge() gauge {
	return gauge{"flex2csi_driver_connected", "1 if there is a connection to the service of the CSI driver. It is made when it is needed.", []string{"driver_name", "flex_driver", "service"}, prometheus.GaugeValue}
}

func reconnectsCounter() gauge {
	return gauge{"flex2csi_driver_reconnects_total", "Connections to the service of the CSI driver after the first one.", []string{"driver_name", "flex_driver", "service"}, prometheus.CounterValue}
}

func tombstonesGauge() gauge {
	return gauge{"flex2csi_tombstones", "Unmounts made while the daemon was down that are not worked off yet.", nil, prometheus.GaugeValue}
}

func lostGauge() gauge {
	return gauge{"flex2csi_lost_mounts", "Mounts that pods have and that no record knows of.", nil, prometheus.GaugeValue}
}

func brokenGauge() gauge {
	return gauge{"flex2csi_broken_state_files", "State files that could not be read; those put aside stay until somebody removes them.", nil, prometheus.GaugeValue}
}

// volumeStats are named and labelled as the kubelet's kubelet_volume_stats, but
// for the claim, which no callout tells.
type volumeStat struct {
	gauge
	of func(*bridgestatus.Usage) int64
}

func volumeStats() []volumeStat {
	stat := func(name, help string, of func(*bridgestatus.Usage) int64) volumeStat {
		return volumeStat{gauge{"flex2csi_volume_stats_" + name, help, []string{"driver_name", "persistentvolume"}, prometheus.GaugeValue}, of}
	}
	return []volumeStat{
		stat("capacity_bytes", "Capacity of the volume as its CSI driver tells.", func(u *bridgestatus.Usage) int64 { return u.CapacityBytes }),
		stat("used_bytes", "Bytes used in the volume as its CSI driver tells.", func(u *bridgestatus.Usage) int64 { return u.UsedBytes }),
		stat("available_bytes", "Bytes available in the volume as its CSI driver tells.", func(u *bridgestatus.Usage) int64 { return u.AvailableBytes }),
		stat("inodes", "Inodes of the volume as its CSI driver tells; 0 if it does not.", func(u *bridgestatus.Usage) int64 { return u.Inodes }),
		stat("inodes_used", "Inodes used in the volume.", func(u *bridgestatus.Usage) int64 { return u.InodesUsed }),
		stat("inodes_free", "Inodes free in the volume.", func(u *bridgestatus.Usage) int64 { return u.InodesFree }),
	}
}

// gauges are all metrics of the collector.
func gauges() []gauge {
	all := []gauge{
		volumesGauge(), operationsGauge(), oldestOperationGauge(), oldestDoubtGauge(), corruptedGauge(),
		connectedGauge(), reconnectsCounter(), tombstonesGauge(), lostGauge(), brokenGauge(),
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
	s := c.status()
	send(tombstonesGauge(), float64(len(s.Tombstones)))
	send(lostGauge(), float64(len(s.Lost)))
	send(brokenGauge(), float64(len(s.BrokenFiles)))
	for _, d := range s.Drivers {
		for _, service := range d.Services {
			connected := 0.0
			if service.Connected {
				connected = 1
			}
			send(connectedGauge(), connected, d.CSIDriver, d.FlexDriver, service.Name)
			send(reconnectsCounter(), float64(service.Reconnects), d.CSIDriver, d.FlexDriver, service.Name)
		}
	}
	sendStats(s, send)
	for driver, n := range count(s) {
		for phase, volumes := range n.volumes {
			send(volumesGauge(), float64(volumes), driver, string(phase))
		}
		send(operationsGauge(), float64(n.operations), driver)
		send(oldestOperationGauge(), n.oldestOperation.Seconds(), driver)
		send(oldestDoubtGauge(), n.oldestDoubt.Seconds(), driver)
		send(corruptedGauge(), float64(n.corrupted), driver)
	}
}

// sendStats sends the statistics of volumes. A PersistentVolume that was deleted
// and made again may stand for two volumes at a time, and a metric may not: the
// first one is shown.
func sendStats(s *bridgestatus.BridgeStatus, send func(gauge, float64, ...string)) {
	stats, sent := volumeStats(), map[[2]string]bool{}
	for i := range s.Volumes {
		v := &s.Volumes[i]
		name := [2]string{v.CSIDriver, v.PersistentVolume}
		if v.Usage == nil || sent[name] {
			continue
		}
		sent[name] = true
		for _, g := range stats {
			send(g.gauge, float64(g.of(v.Usage)), name[:]...)
		}
	}
}

// counts are those of one CSI driver.
type counts struct {
	volumes                      map[bridgestatus.Phase]int
	operations, corrupted        int
	oldestOperation, oldestDoubt time.Duration
}

// count counts by driver. All drivers of the configuration and all phases are
// there, so that nothing vanishes from a graph when it is zero.
func count(s *bridgestatus.BridgeStatus) map[string]*counts {
	all := map[string]*counts{}
	of := func(driver string) *counts {
		if all[driver] == nil {
			all[driver] = &counts{volumes: map[bridgestatus.Phase]int{}}
			for _, p := range bridgestatus.Phases() {
				all[driver].volumes[p] = 0
			}
		}
		return all[driver]
	}
	for _, d := range s.Drivers {
		of(d.CSIDriver)
	}
	for i := range s.Volumes {
		of(s.Volumes[i].CSIDriver).add(&s.Volumes[i], s.Time)
	}
	return all
}

func (c *counts) add(v *bridgestatus.Volume, now time.Time) {
	c.volumes[v.Phase]++
	c.operations += len(v.Operations)
	for _, o := range v.Operations {
		c.oldestOperation = max(c.oldestOperation, now.Sub(o.Since))
	}
	c.corrupted += v.Corrupted()
	if v.InDoubtSince != nil {
		c.oldestDoubt = max(c.oldestDoubt, now.Sub(*v.InDoubtSince))
	}
}
