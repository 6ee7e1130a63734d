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

	"github.com/flex2csi/flex2csi/internal/driverconfig"
	"github.com/flex2csi/flex2csi/internal/install"
	"github.com/flex2csi/flex2csi/internal/kubelet"
	"github.com/flex2csi/flex2csi/internal/statedir"
	"github.com/flex2csi/flex2csi/internal/version"
)

// A Node is where flex2csi is installed.
type Node struct {
	// Query has what is known of the kubelet. Its Host is the root of all paths.
	Query kubelet.Query
	// StateDir is the daemon's, which gets the Installation. Socket is where a daemon
	// may serve.
	StateDir, Socket string
	// Out gets a line for each thing that is done.
	Out io.Writer
}

// Install installs an executable as these drivers, or brings them up to date; each gets its
// configuration. It goes on after a driver that cannot be installed. It may be killed at any
// instant: the next run completes or undoes what was begun.
func (n Node) Install(ctx context.Context, executable string, drivers []*driverconfig.Configuration) error {
	return n.shown(n.install(ctx, executable, drivers))
}

func (n Node) install(ctx context.Context, executable string, drivers []*driverconfig.Configuration) error {
	dirs := n.Query.Dirs(ctx)
	n.printDirs(dirs)
	dir, err := n.prepare(dirs)
	if err != nil {
		return err
	}
	if err := statedir.EndCordon(n.StateDir); err != nil {
		return err
	}
	before := n.readBefore()
	if err := n.checkFormer(ctx, before, drivers); err != nil {
		return err
	}
	now := &Installation{
		APIVersion: apiVersion, Kind: kind, Version: version.Get().Version,
		HostRoot: n.Query.Host.Root, PluginDir: dirs.Plugin.Path, KubeletDir: dirs.Root.Path,
	}
	var errs []error
	for _, c := range drivers {
		at, err := n.installOne(ctx, executable, dir, c)
		if err != nil {
			errs = append(errs, err)
			at, _ = before.driver(c.Driver.String()) // it may be there all the same
		}
		if at != (installedDriver{}) {
			now.Drivers = append(now.Drivers, at)
		}
	}
	now.Former = n.former(before, now)
	// Word of it also if some failed: those that did not are there.
	return errors.Join(append(errs, now.Write(n.StateDir))...)
}

// installOne puts one driver into the plugin directory, which is dir here.
func (n Node) installOne(ctx context.Context, executable, dir string, c *driverconfig.Configuration) (installedDriver, error) {
	report, err := install.Install(ctx, install.Options{PluginDir: dir, Driver: c.Driver, Executable: executable, Config: c, Mountinfo: n.mountinfo()})
	n.printReport(c.Driver, report)
	if err != nil {
		return installedDriver{}, err
	}
	return installedDriver{Driver: c.Driver.String(), Executable: filepath.Join(report.Dir, c.Driver.Name)}, nil
}

// readBefore returns the Installation of an earlier run. One that cannot be read is
// replaced.
func (n Node) readBefore() *Installation {
	before, err := Read(n.StateDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		n.warn("%v; it is replaced", err)
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
func (n Node) checkFormer(ctx context.Context, before *Installation, drivers []*driverconfig.Configuration) error {
	var gone []string
	for _, d := range before.Drivers {
		if !slices.ContainsFunc(drivers, func(c *driverconfig.Configuration) bool { return c.Driver.String() == d.Driver }) {
			gone = append(gone, d.Driver)
		}
	}
	if len(gone) == 0 || n.Socket == "" {
		return nil
	}
	status, err := n.status(ctx)
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
func (n Node) former(before, now *Installation) (former []installedDriver) {
	for _, d := range slices.Concat(before.Drivers, before.Former) {
		_, wanted := now.driver(d.Driver)
		if _, err := os.Lstat(d.Executable); wanted || err != nil {
			continue
		}
		former = append(former, d)
		n.warn("%s is not in the configuration any more, and stays installed: the daemon unmounts its volumes, and mounts no new ones; add it to the configuration again, or if no pod uses it run: flex2csi uninstall --driver %s", d.Driver, d.Driver)
	}
	return former
}
