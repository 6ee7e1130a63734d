package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/lifecycle"
	"github.com/flex2csi/flex2csi/internal/nodemounts"
	"github.com/flex2csi/flex2csi/internal/statedir"
	"github.com/flex2csi/flex2csi/internal/version"
	"github.com/flex2csi/flex2csi/internal/volstate"
)

// A view is the state of the daemon at one moment.
type view struct {
	time    time.Time
	drivers []bridgestatus.DriverStatus
	volumes []bridge.VolumeState
	lost    []bridge.LostStatus
	cluster *bridgestatus.ClusterStatus // nil: no access
	files
}

// look makes no request, so that it works when others hang.
func (d *Daemon) look() *view {
	v := &view{time: time.Now(), volumes: d.Bridge.Status(), lost: d.Bridge.Lost(), files: look(d.StateDir)}
	if d.Cluster != nil {
		v.cluster = d.Cluster()
	}
	for _, driver := range d.Drivers {
		v.drivers = append(v.drivers, driverStatus(driver))
	}
	return v
}

// status is the answer to flex2csi status.
func (d *Daemon) status() *bridgestatus.BridgeStatus {
	v := d.look()
	s := bridgestatus.New(bridgestatus.SourceDaemon)
	s.Time = v.time.UTC()
	s.Daemon = &bridgestatus.Daemon{
		NodeName: d.Bridge.NodeName, Version: version.Get().Version, Started: d.started.UTC(),
		Draining: d.phase.Load() == draining,
	}
	s.Cluster = v.cluster
	s.Drivers = append(s.Drivers, v.drivers...)
	for _, volume := range v.volumes {
		shown := volumeStatus(volume)
		shown.TakenOver = shown.TakenOver || d.Bridge.KubeletTook(volume.Record)
		s.Volumes = append(s.Volumes, shown)
	}
	for _, l := range v.lost {
		s.Lost = append(s.Lost, bridgestatus.Lost{FlexDriver: l.FlexDriver, PersistentVolume: l.PersistentVolume, Dir: l.Dir})
	}
	s.Failures = d.failures.list(v.time)
	v.addTo(s)
	return s
}

// files are the files in a state directory other than records.
type files struct {
	pending []statedir.PendingUnmount
	broken  []string // files that cannot be read, or were put aside
}

// look reads the directory once: it may have thousands of records.
func look(stateDir string) (f files) {
	dir, err := os.Open(stateDir)
	if err != nil {
		return files{broken: []string{err.Error()}}
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		f.broken = append(f.broken, err.Error())
	}
	for _, name := range names {
		if volstate.IsAside(name) {
			f.broken = append(f.broken, filepath.Join(stateDir, name))
		}
	}
	slices.Sort(f.broken)
	if !slices.ContainsFunc(names, statedir.IsPendingUnmount) {
		return f
	}
	pending, broken := statedir.ListPendingUnmounts(stateDir)
	for _, err := range broken {
		f.broken = append(f.broken, err.Error())
	}
	f.pending = pending
	return f
}

func (f *files) addTo(s *bridgestatus.BridgeStatus) {
	for _, t := range f.pending {
		s.PendingUnmounts = append(s.PendingUnmounts, bridgestatus.PendingUnmount{FlexDriver: t.Driver, Dir: t.Dir, Since: t.Time.UTC()})
	}
	s.BrokenFiles = append(s.BrokenFiles, f.broken...)
}

// FromFiles returns the status of a bridge that does not run.
func FromFiles(stateDir string) (*bridgestatus.BridgeStatus, error) {
	records, broken, err := volstate.Peek(stateDir)
	if err != nil {
		return nil, err
	}
	s := bridgestatus.New(bridgestatus.SourceStateDir)
	var mounts nodemounts.Mounts
	for _, r := range records {
		// The record is that of before the bind, as it is for the next daemon.
		lifecycle.Recognize(r, func(dir string) bool { mounted, err := mounts.Mounted(dir); return err == nil && mounted })
		s.Volumes = append(s.Volumes, bridgestatus.Of(r))
	}
	for _, err := range broken {
		s.BrokenFiles = append(s.BrokenFiles, err.Error())
	}
	files := look(stateDir)
	files.addTo(s)
	return s, nil
}

func driverStatus(d ConfiguredDriver) bridgestatus.DriverStatus {
	out := bridgestatus.DriverStatus{FlexDriver: d.FlexDriver, CSIDriver: d.CSIDriver, Services: []bridgestatus.Service{}}
	for _, c := range d.Connections() {
		service := bridgestatus.Service{
			Name: c.Service, Connected: c.Connected, Version: c.Version, Since: bridgestatus.When(c.Since),
			Reconnects: max(c.Made-1, 0), LastError: bridgestatus.Clean(c.LastError),
		}
		out.Services = append(out.Services, service)
	}
	return out
}

// volumeStatus returns the record with the state of the process.
func volumeStatus(v bridge.VolumeState) bridgestatus.VolumeStatus {
	out := bridgestatus.Of(v.Record)
	out.UncertainSince = bridgestatus.When(v.UncertainSince)
	if out.Attachment != nil {
		out.Attachment.Lost = v.AttachmentLost
	}
	if s := v.Stats; s != nil {
		out.Usage = &bridgestatus.Usage{
			CapacityBytes: s.Bytes.Total, UsedBytes: s.Bytes.Used, AvailableBytes: s.Bytes.Available,
			Inodes: s.Inodes.Total, InodesUsed: s.Inodes.Used, InodesFree: s.Inodes.Available,
		}
	}
	for _, o := range v.Operations {
		out.Operations = append(out.Operations, bridgestatus.Operation{
			Command: string(o.Command), Dir: o.Dir, Request: o.Request, Since: o.Since.UTC(), Begun: bridgestatus.When(o.Begun),
			Step: o.Step, StepSince: bridgestatus.When(o.StepSince),
		})
	}
	return out
}
