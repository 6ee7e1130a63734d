package onnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/driverconfig"
	"github.com/flex2csi/flex2csi/internal/install"
)

// UninstallOptions are what to remove.
type UninstallOptions struct {
	// Drivers are those to remove; empty: all, and all else of flex2csi on the node.
	Drivers []string
	// Force removes drivers that volumes need, too.
	Force bool
	// Restore puts the programs of other make back that Install kept. A driver without
	// one is removed; if none has one, nothing is done.
	Restore bool
	// Patience is how long to wait for operations under way.
	Patience time.Duration
	// Sweep deletes this node's VolumeAttachments, and returns their volumes; nil: they
	// are skipped, and NoSweep is the reason.
	Sweep   func(context.Context) ([]string, error)
	NoSweep string
}

// Uninstall removes drivers, unless volumes of them are in use. Without names it cordons
// the daemon first, so that no pod begins to use a volume meanwhile, and uncordons it if
// it refuses. It may be killed and run again.
func (n Node) Uninstall(ctx context.Context, o UninstallOptions) error {
	u := &removal{Node: n, UninstallOptions: o}
	err := u.find(ctx)
	if err == nil && o.Restore {
		err = u.checkOriginals()
	}
	switch {
	case err != nil:
	case len(o.Drivers) > 0:
		err = u.some(ctx)
	default:
		err = u.everything(ctx)
	}
	return u.shown(err)
}

// removal is one run of Uninstall.
type removal struct {
	Node
	UninstallOptions
	word  *Installation
	dir   string // the plugin directory, here
	found []string
	kept  bool // volumes that are in use are left as they are
}

// find finds the plugin directory and the drivers in it. What install has written has
// precedence over a search.
func (u *removal) find(ctx context.Context) (err error) {
	u.word = u.readBefore()
	u.Query.Host.Root = cmp.Or(u.Query.Host.Root, u.word.HostRoot)
	path := cmp.Or(u.Query.PluginDir, u.word.PluginDir)
	if path == "" {
		dirs := u.Query.Dirs(ctx)
		u.printDirs(dirs)
		path = dirs.Plugin.Path
	}
	if u.dir, err = u.Query.Host.Resolve(path); err != nil {
		return fmt.Errorf("plugin directory %s: %w", path, err)
	}
	u.found = u.drivers()
	return nil
}

// drivers returns the installed drivers: those of the Installation, and those in the
// plugin directory that pass their calls to this daemon.
func (u *removal) drivers() (names []string) {
	for _, d := range slices.Concat(u.word.Drivers, u.word.Former) {
		names = append(names, d.Driver)
	}
	files, _ := filepath.Glob(filepath.Join(u.dir, "*", driverconfig.FileName)) // the pattern is well formed
	for _, file := range files {
		c, err := driverconfig.Load(file)
		if err == nil && c.Backend == driverconfig.BackendCSI && c.Socket == u.Socket && c.StateDir == u.StateDir {
			names = append(names, c.Driver.String())
		}
	}
	if u.Restore {
		names = append(names, u.uninstalled()...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// uninstalled returns drivers that were removed without Restore: their programs are kept,
// and nothing has their place.
func (u *removal) uninstalled() (names []string) {
	for _, driver := range install.Originals(u.dir) {
		if _, err := os.Lstat(filepath.Join(u.dir, driver.DirName())); errors.Is(err, os.ErrNotExist) {
			names = append(names, driver.String())
		}
	}
	return names
}

// checkOriginals refuses to restore if there is nothing to put back.
func (u *removal) checkOriginals() error {
	names := u.found
	if len(u.Drivers) > 0 {
		names = u.Drivers
	}
	if len(names) == 0 {
		return fmt.Errorf("restore: no driver of flex2csi is in %s, and no program was kept there", u.dir)
	}
	restorable := false
	err := u.each(names, func(o install.Options) error {
		err := install.Restorable(o.PluginDir, o.Driver)
		restorable = restorable || err == nil
		return err
	})
	if restorable {
		return nil
	}
	return fmt.Errorf("%w; run uninstall without --restore, and install the earlier driver with its own installer", err)
}

// some removes the drivers that were named. The daemon goes on.
func (u *removal) some(ctx context.Context) error {
	status, err := u.status(ctx)
	if err != nil {
		return err
	}
	for _, d := range status.Drivers {
		if slices.Contains(u.Drivers, d.FlexDriver) && !u.Force {
			return fmt.Errorf("the daemon serves %s; remove it from the configuration first, since the next start would install it again", d.FlexDriver)
		}
	}
	if err := u.checkUnused(status, u.Drivers); err != nil {
		return err
	}
	if err := u.removeDrivers(ctx, u.Drivers); err != nil {
		return err
	}
	return u.forget(u.Drivers)
}

// everything removes all of flex2csi, as far as that is possible while the daemon runs.
func (u *removal) everything(ctx context.Context) error {
	running, err := u.cordonDaemon(ctx)
	if err != nil {
		return err
	}
	if err := u.release(ctx); err != nil {
		if again := u.uncordonDaemon(ctx); again != nil {
			return errors.Join(err, fmt.Errorf("and volumes cannot be mounted before this is corrected: %w", again))
		}
		return err
	}
	if u.kept {
		u.say("the records stay in %s, for a later installation", u.StateDir)
		return nil
	}
	if !running {
		u.say("the daemon does not run: removing its directories")
		return removeTraces(u.Query.Host, u.StateDir, u.Socket)
	}
	u.say("done. The daemon sets up no volume any more, and removes its directories when it ends: delete its DaemonSet now, or stop it. A new pod of the DaemonSet would install the drivers again")
	return nil
}

// release is what is refused while volumes are in use.
func (u *removal) release(ctx context.Context) error {
	status, err := u.settled(ctx)
	if err != nil {
		return err
	}
	if err := u.checkUnused(status, nil); err != nil {
		return err
	}
	if err := u.removeDrivers(ctx, u.found); err != nil {
		return err
	}
	if err := u.sweep(ctx); err != nil {
		return err
	}
	return u.forget(u.found)
}

// settled waits until no volume is being set up, and until volumes without pods are
// unmounted.
func (u *removal) settled(ctx context.Context) (*bridgestatus.BridgeStatus, error) {
	const pause = 200 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, u.Patience)
	defer cancel()
	for {
		status, err := u.status(ctx)
		if err != nil {
			return nil, err
		}
		busy, err := u.settingUp(ctx)
		if err != nil {
			return nil, err
		}
		if busy == 0 && (!onlyRest(status) || u.Force) {
			return status, nil
		}
		select {
		case <-ctx.Done():
			if busy > 0 {
				return nil, fmt.Errorf("after %v volumes are still being set up (%d): run this again", u.Patience, busy)
			}
			return status, nil
		case <-time.After(pause):
		}
	}
}

// onlyRest: there are volumes, and no pod has one of them.
func onlyRest(s *bridgestatus.BridgeStatus) bool {
	for i := range s.Volumes {
		if len(s.Volumes[i].Targets) > 0 {
			return false
		}
	}
	return len(s.Volumes)+len(s.PendingUnmounts) > 0
}

// removeDrivers unregisters them, one by one, if none of them is needed.
func (u *removal) removeDrivers(ctx context.Context, names []string) error {
	if len(names) == 0 {
		u.say("no driver of flex2csi is in %s", u.dir)
	}
	err := u.each(names, func(o install.Options) error { return install.Removable(ctx, o) })
	if err != nil {
		return err
	}
	return u.each(names, func(o install.Options) error {
		report, err := install.Uninstall(ctx, o)
		u.printReport(o.Driver, report)
		return err
	})
}

// each calls f for all drivers, also after errors.
func (u *removal) each(names []string, do func(install.Options) error) error {
	var errs []error
	for _, name := range names {
		driver, err := driverconfig.ParseDriverName(name)
		if err == nil {
			err = do(install.Options{PluginDir: u.dir, Driver: driver, Force: u.Force, Restore: u.Restore, Mountinfo: u.mountinfo()})
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// sweep deletes VolumeAttachments that the daemon has not deleted, as after its records
// were lost. Volumes in use are never detached.
func (u *removal) sweep(ctx context.Context) error {
	switch {
	case u.Force: // which does not know what is in use
		u.say("VolumeAttachments of this node are left as they are: flex2csi status --attachments shows them, and the controller deletes them when the Node is gone")
		return nil
	case u.Sweep == nil:
		u.say("VolumeAttachments were skipped: %s", u.NoSweep)
		return nil
	}
	names, err := u.Sweep(ctx)
	if len(names) > 0 {
		u.say("deleted VolumeAttachments of this node, of %s", strings.Join(names, ", "))
	}
	return err
}

// forget removes these drivers from the Installation.
func (u *removal) forget(names []string) error {
	if _, err := os.Stat(Path(u.StateDir)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	gone := func(d installedDriver) bool { return slices.Contains(names, d.Driver) }
	u.word.Drivers = slices.DeleteFunc(u.word.Drivers, gone)
	u.word.Former = slices.DeleteFunc(u.word.Former, gone)
	u.word.APIVersion, u.word.Kind = apiVersion, kind
	return u.word.Write(u.StateDir)
}
