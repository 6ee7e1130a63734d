// Package onnode is what flex2csi install and uninstall do around package install, which
// installs one driver in one directory: it finds the directory, checks that the kubelet reads
// it, asks the daemon which volumes are in use, and writes what it did to the state directory.
// It has what flexdriver does not link.
//
// It works on the node itself and in a container that has the node's directories
// below another root.
package onnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/internal/cordon"
	"github.com/flex2csi/flex2csi/internal/driverconfig"
	"github.com/flex2csi/flex2csi/internal/install"
	"github.com/flex2csi/flex2csi/internal/kubelet"
	"github.com/flex2csi/flex2csi/internal/version"
)

// Options say what to install where.
type Options struct {
	// Query has what is known of the kubelet. Its Host is the root of all paths.
	Query kubelet.Query
	// StateDir is the daemon's, which gets the Installation. Socket is where a daemon
	// may serve.
	StateDir, Socket string
	// Executable is the driver.
	Executable string
	// Drivers are those to install, each with the configuration next to its
	// executable.
	Drivers []*driverconfig.Configuration
	// Out gets a line for each thing that is done.
	Out io.Writer
}

// Install installs the drivers, or brings them up to date. It goes on
// after a driver that cannot be installed. It may be killed at any instant: the next run
// completes or undoes what was begun.
func Install(ctx context.Context, o Options) error {
	r := &run{host: o.Query.Host, out: o.Out, stateDir: o.StateDir}
	dirs := o.Query.Dirs(ctx)
	r.tellDirs(dirs)
	dir, err := r.prepare(dirs)
	if err != nil {
		return r.shown(err)
	}
	if err := cordon.End(o.StateDir); err != nil {
		return err
	}
	before := r.readBefore()
	if err := r.checkFormer(ctx, before, o); err != nil {
		return r.shown(err)
	}
	now := &Installation{
		APIVersion: apiVersion, Kind: kind, Version: version.Get().Version,
		HostRoot: o.Query.Host.Root, PluginDir: dirs.Plugin.Path, KubeletDir: dirs.Root.Path,
	}
	var errs []error
	for _, c := range o.Drivers {
		at, err := r.installOne(ctx, o.Executable, dir, c)
		if err != nil {
			errs = append(errs, err)
			at, _ = before.driver(c.Driver.String()) // it may be there all the same
		}
		if at != (installedDriver{}) {
			now.Drivers = append(now.Drivers, at)
		}
	}
	now.Former = r.former(before, now)
	// Word of it also if some failed: those that did not are there.
	errs = append(errs, now.Write(o.StateDir))
	return r.shown(errors.Join(errs...))
}

// installOne puts one driver into the plugin directory, which is dir here.
func (r *run) installOne(ctx context.Context, executable, dir string, c *driverconfig.Configuration) (installedDriver, error) {
	report, err := install.Install(ctx, install.Options{PluginDir: dir, Driver: c.Driver, Executable: executable, Config: c, Mountinfo: r.mountinfo()})
	r.tell(c.Driver, report)
	if err != nil {
		return installedDriver{}, err
	}
	return installedDriver{Driver: c.Driver.String(), Executable: filepath.Join(report.Dir, c.Driver.Name)}, nil
}

// readBefore returns the Installation of an earlier run. One that cannot be read is
// replaced.
func (r *run) readBefore() *Installation {
	before, err := Read(r.stateDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		r.warn("%v; it is replaced", err)
	}
	if before == nil {
		before = &Installation{}
	}
	return before
}

// checkFormer refuses a configuration that lacks a driver with volumes in use, while a
// daemon serves that driver. The next daemon would mount no volume of it for new pods,
// and would unmount only volumes with a record that has the endpoint of their CSI
// driver. If no daemon runs, refusing would not help.
func (r *run) checkFormer(ctx context.Context, before *Installation, o Options) error {
	var gone []string
	for _, d := range before.Drivers {
		if !slices.ContainsFunc(o.Drivers, func(c *driverconfig.Configuration) bool { return c.Driver.String() == d.Driver }) {
			gone = append(gone, d.Driver)
		}
	}
	if len(gone) == 0 || o.Socket == "" {
		return nil
	}
	status, err := daemon{o.Socket, o.StateDir}.status(ctx)
	if err != nil || status.Daemon == nil {
		return nil //nolint:nilerr // it does not serve
	}
	if lines := inUse(status, gone); len(lines) > 0 {
		return fmt.Errorf("the configuration has no %s any more, and volumes of it are in use; add it again until their pods have ended\n  %s", strings.Join(gone, ", "), strings.Join(lines, "\n  "))
	}
	return nil
}

// former returns the drivers that were installed earlier and are not in the
// configuration any more. They stay: they may have volumes, and only the driver unmounts
// these.
func (r *run) former(before, now *Installation) (former []installedDriver) {
	for _, d := range slices.Concat(before.Drivers, before.Former) {
		_, wanted := now.driver(d.Driver)
		if _, err := os.Lstat(d.Executable); wanted || err != nil {
			continue
		}
		former = append(former, d)
		r.warn("%s is not in the configuration any more, and stays installed: the daemon unmounts its volumes, and mounts no new ones; add it to the configuration again, or if no pod uses it run: flex2csi uninstall --driver %s", d.Driver, d.Driver)
	}
	return former
}
