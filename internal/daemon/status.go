package daemon

import (
	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/tombstone"
	"github.com/flex2csi/flex2csi/internal/version"
	"github.com/flex2csi/flex2csi/internal/volstate"
)

// status is the answer to flex2csi status, and what metrics are made of. It
// asks nobody, so that it works when everything else hangs.
func (d *Daemon) status() *bridgestatus.BridgeStatus {
	s := bridgestatus.New(bridgestatus.SourceDaemon)
	s.Daemon = &bridgestatus.Daemon{
		NodeName: d.Bridge.NodeName, Version: version.Get().Version, Started: d.started.UTC(),
		Draining: d.phase.Load() == draining,
	}
	for _, driver := range d.Drivers {
		s.Drivers = append(s.Drivers, driverStatus(driver))
	}
	for _, v := range d.Bridge.Status() {
		s.Volumes = append(s.Volumes, volumeStatus(v))
	}
	for _, l := range d.Bridge.Lost() {
		s.Lost = append(s.Lost, bridgestatus.Lost{FlexDriver: l.FlexDriver, PersistentVolume: l.PersistentVolume, Dir: l.Dir})
	}
	s.Failures = d.failures.list(s.Time)
	AddFiles(s, d.StateDir)
	return s
}

// AddFiles adds to a status what lies in a state directory beside the records:
// tombstones, and files that were put aside.
func AddFiles(s *bridgestatus.BridgeStatus, stateDir string) {
	stones, broken := tombstone.List(stateDir)
	for _, t := range stones {
		s.Tombstones = append(s.Tombstones, bridgestatus.Tombstone{FlexDriver: t.Driver, Dir: t.Dir, Since: t.Time.UTC()})
	}
	for _, err := range broken {
		s.BrokenFiles = append(s.BrokenFiles, err.Error())
	}
	aside, err := volstate.Aside(stateDir)
	if err != nil {
		s.BrokenFiles = append(s.BrokenFiles, err.Error())
	}
	s.BrokenFiles = append(s.BrokenFiles, aside...)
}

// FromFiles is the status of a bridge that does not run.
func FromFiles(stateDir string) (*bridgestatus.BridgeStatus, error) {
	records, broken, err := volstate.Peek(stateDir)
	if err != nil {
		return nil, err
	}
	s := bridgestatus.New(bridgestatus.SourceStateDir)
	for _, r := range records {
		s.Volumes = append(s.Volumes, bridgestatus.Of(r))
	}
	for _, err := range broken {
		s.BrokenFiles = append(s.BrokenFiles, err.Error())
	}
	AddFiles(s, stateDir)
	return s, nil
}

func driverStatus(d Driver) bridgestatus.Driver {
	out := bridgestatus.Driver{FlexDriver: d.FlexDriver, CSIDriver: d.CSIDriver, Services: []bridgestatus.Service{}}
	for _, c := range d.Connections() {
		service := bridgestatus.Service{
			Name: c.Service, Connected: c.Connected, Version: c.Version, Since: bridgestatus.When(c.Since),
			Reconnects: max(c.Made-1, 0), LastError: bridgestatus.Clean(c.LastError),
		}
		out.Services = append(out.Services, service)
	}
	return out
}

// volumeStatus adds to what the record says what only the process knows.
func volumeStatus(v bridge.VolumeStatus) bridgestatus.Volume {
	out := bridgestatus.Of(v.Record)
	out.InDoubtSince = bridgestatus.When(v.InDoubtSince)
	if s := v.Stats; s != nil {
		out.Usage = &bridgestatus.Usage{
			CapacityBytes: s.Bytes.Total, UsedBytes: s.Bytes.Used, AvailableBytes: s.Bytes.Available,
			Inodes: s.Inodes.Total, InodesUsed: s.Inodes.Used, InodesFree: s.Inodes.Available,
		}
	}
	for _, o := range v.Operations {
		out.Operations = append(out.Operations, bridgestatus.Operation{
			Command: string(o.Command), Dir: o.Dir, Request: o.Request, Since: o.Since.UTC(), Begun: bridgestatus.When(o.Begun),
		})
	}
	return out
}
