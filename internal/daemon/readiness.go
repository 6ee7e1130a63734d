package daemon

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/statedir"
	"github.com/flex2csi/flex2csi/internal/version"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// takeOverWait is how long calls may wait for the process before this one. That
// process takes at most its drain time, unless it hangs.
const takeOverWait = time.Minute

// readiness is the answer to flex2csi ready.
func (d *Daemon) readiness() (any, error) {
	r := &bridgestatus.Readiness{
		APIVersion: bridgestatus.APIVersion, Kind: bridgestatus.ReadinessKind, Time: time.Now().UTC(),
		Version: version.Get().Version, Started: d.started.UTC(), Drivers: d.reachDrivers(),
	}
	r.State, r.Ready, r.Message = d.state()
	r.Live = true
	if err := d.checkLive(); err != nil {
		r.Live, r.Ready, r.Message = false, false, err.Error()
	}
	if d.Bridge != nil {
		r.NodeName, r.SettingUp = d.Bridge.NodeName, d.countSettingUp()
	}
	if d.StateDir == "" {
		return r, nil
	}
	note, err := statedir.GetCordon(d.StateDir)
	if err != nil {
		return nil, err
	}
	if note != nil {
		r.CordonedSince = &note.Since
		r.Message += fmt.Sprintf("; cordoned since %s: no new volume is set up", note.Since.Format(time.RFC3339))
	}
	return r, nil
}

// state returns the state of this process, whether an upgrade may continue, and a
// message.
func (d *Daemon) state() (s bridgestatus.State, ready bool, message string) {
	switch d.phase.Load() {
	case standingBy:
		who := "another flex2csi"
		if w := d.standsBy.Load(); w != nil {
			who = *w
		}
		return bridgestatus.StandingBy, true, "standing by for " + who
	case takingOver:
		waited := time.Since(time.Unix(0, d.tookSocket.Load())).Round(time.Second)
		message = fmt.Sprintf("taking over: calls wait for %v already for the flex2csi before this one to complete those that it has", waited)
		return bridgestatus.TakingOver, waited < takeOverWait, message
	case serving:
		return bridgestatus.Serving, true, "serving"
	case draining:
		return bridgestatus.Draining, false, "draining: completing the calls that are left"
	}
	return bridgestatus.Starting, false, "not serving yet"
}

// checkLive returns why a restart would help.
func (d *Daemon) checkLive() error {
	if d.phase.Load() != serving {
		return nil
	}
	return d.ownSocket()
}

// setsUp reports whether a callout may set up one more volume on the node.
func setsUp(c flex.Command) bool {
	return c == flex.CommandMount || c == flex.CommandMountDevice || c == flex.CommandAttach
}

// countSettingUp counts calls and operations that may set up a volume. Operations may
// outlive their calls.
func (d *Daemon) countSettingUp() int {
	calls, operations := int(d.settingUp.Load()), 0
	for _, v := range d.Bridge.Status() {
		for _, o := range v.Operations {
			if setsUp(o.Command) {
				operations++
			}
		}
	}
	return max(calls, operations)
}

func (d *Daemon) checkCordon() error {
	note, err := statedir.GetCordon(d.StateDir)
	switch {
	case err != nil:
		return flex.Errorf(flex.CodeUnavailable, "%w", err)
	case note != nil:
		return flex.Errorf(flex.CodeUnavailable, "flex2csi is being uninstalled from this node since %s: no volume is set up any more; if it is to stay, flex2csi install makes it take volumes again", note.Since.Format(time.RFC3339))
	}
	return nil
}

func (d *Daemon) cordon() (any, error) {
	if _, err := statedir.BeginCordon(d.StateDir); err != nil {
		return nil, err
	}
	d.Log.Info("cordoned: no new volume is set up")
	return d.readiness()
}

func (d *Daemon) uncordon() (any, error) {
	if err := statedir.EndCordon(d.StateDir); err != nil {
		return nil, err
	}
	d.Log.Info("uncordoned: volumes are set up")
	return d.readiness()
}

const (
	// reachWait bounds how long the first answer waits for CSI drivers. Later
	// results are in the next answer.
	reachWait = 200 * time.Millisecond
	// reachTimeout bounds a try.
	reachTimeout = 5 * time.Second
)

// driverName names one of the configuration.
type driverName struct{ flexDriver, csiDriver string }

func (d ConfiguredDriver) name() driverName { return driverName{d.FlexDriver, d.CSIDriver} }

// reaches has the tries to reach CSI drivers, one for each driver at a time.
type reaches struct {
	mu       sync.Mutex
	underWay map[driverName]chan struct{}
	failed   map[driverName]string // why the last one failed; empty: success
}

// reachDrivers tries to reach drivers without a connection, and returns all states.
func (d *Daemon) reachDrivers() []bridgestatus.DriverStatus {
	wait, cancel := context.WithTimeout(context.Background(), reachWait)
	defer cancel()
	var tried []<-chan struct{}
	for _, driver := range d.Drivers {
		if driver.Reach != nil && !connected(driver) {
			if done := d.reaches.reach(driver); done != nil {
				tried = append(tried, done)
			}
		}
	}
	for _, done := range tried {
		select {
		case <-done:
		case <-wait.Done():
		}
	}
	all := []bridgestatus.DriverStatus{}
	for _, driver := range d.Drivers {
		s := driverStatus(driver)
		for i := range s.Services {
			if !s.Services[i].Connected && s.Services[i].LastError == "" {
				s.Services[i].LastError = d.reaches.why(driver.name())
			}
		}
		all = append(all, s)
	}
	return all
}

func connected(d ConfiguredDriver) bool {
	for _, c := range d.Connections() {
		if !c.Connected {
			return false
		}
	}
	return true
}

// reach tries to reach a driver, unless a try is under way. The channel is closed at the
// first result.
func (r *reaches) reach(driver ConfiguredDriver) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.underWay == nil {
		r.underWay, r.failed = map[driverName]chan struct{}{}, map[driverName]string{}
	}
	done, ok := r.underWay[driver.name()]
	if !ok {
		done = make(chan struct{})
		r.underWay[driver.name()] = done
		go r.try(driver, done)
	}
	if _, known := r.failed[driver.name()]; known {
		return nil
	}
	return done
}

func (r *reaches) try(driver ConfiguredDriver, done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), reachTimeout)
	defer cancel()
	why := ""
	if err := driver.Reach(ctx); err != nil {
		why = bridgestatus.Clean(err.Error())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed[driver.name()] = why
	delete(r.underWay, driver.name())
	close(done)
}

func (r *reaches) why(name driverName) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed[name]
}

// ownSocket checks that calls at the socket reach this process.
func (d *Daemon) ownSocket() error {
	if d.Socket == "" {
		return nil // flex2csi controller that only sweeps
	}
	now, err := os.Lstat(d.Socket)
	if err != nil {
		return fmt.Errorf("the socket is gone: %w", err)
	}
	if !os.SameFile(now, d.socketInfo) {
		return fmt.Errorf("%s is not the socket of this process any more", d.Socket)
	}
	return nil
}
