// Package nodeinstall installs the drivers of a whole configuration on a node,
// and takes them away: what flex2csi install and uninstall do. Package install
// does the work for one driver in one directory; this package finds the
// directory, looks whether a kubelet can do anything with it, and leaves word of
// what it did.
//
// It works on the node itself and in a container that has the node's directories
// below another root.
package nodeinstall

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
	// Query says what is known of the kubelet. Its Host is where all happens.
	Query kubelet.Query
	// StateDir is the daemon's, where word is left of what was done, and Socket
	// where one may serve.
	StateDir, Socket string
	// Executable is the driver.
	Executable string
	// Drivers are those to install, each with the configuration that lies beside
	// it.
	Drivers []*driverconfig.Configuration
	// Out is told what is done, in lines.
	Out io.Writer
}

// Install installs the drivers, or brings them up to date. One that cannot be
// installed does not keep the others from it. It may be killed at any instant
// and run again; there is nothing that it would not finish or undo.
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
		APIVersion: APIVersion, Kind: Kind, Version: version.Get().Version,
		HostRoot: o.Query.Host.Root, PluginDir: dirs.Plugin.Path, KubeletDir: dirs.Root.Path,
	}
	var errs []error
	for _, c := range o.Drivers {
		at, err := r.installOne(ctx, o.Executable, dir, c)
		if err != nil {
			errs = append(errs, err)
			at, _ = before.driver(c.Driver.String()) // it may be there all the same
		}
		if at != (Driver{}) {
			now.Drivers = append(now.Drivers, at)
		}
	}
	now.Former = r.former(before, now)
	// Word of it also if some failed: those that did not are there.
	errs = append(errs, now.Write(o.StateDir))
	return r.shown(errors.Join(errs...))
}

// run is one run of Install or Uninstall.
type run struct {
	host     kubelet.Host
	out      io.Writer
	stateDir string
}

func (r *run) say(format string, args ...any) {
	fmt.Fprintln(r.out, r.host.Shown(fmt.Sprintf(format, args...)))
}

func (r *run) warn(format string, args ...any) { r.say("warning: "+format, args...) }

// shown is an error whose paths are those of the node.
func (r *run) shown(err error) error {
	if err == nil {
		return nil
	}
	return &shownError{err, r.host.Shown(err.Error())}
}

type shownError struct {
	error
	text string
}

func (e *shownError) Error() string { return e.text }
func (e *shownError) Unwrap() error { return e.error }

func (r *run) tellDirs(d kubelet.Dirs) {
	r.say("plugin directory %s, from %s", d.Plugin.Path, d.Plugin.From)
	r.say("kubelet's directory %s, from %s", d.Root.Path, d.Root.From)
	for _, note := range d.Notes {
		r.warn("%s", note)
	}
}

// installOne puts one driver into the plugin directory, which is dir here.
func (r *run) installOne(ctx context.Context, executable, dir string, c *driverconfig.Configuration) (Driver, error) {
	report, err := install.Install(ctx, install.Options{PluginDir: dir, Driver: c.Driver, Executable: executable, Config: c})
	r.tell(report)
	if err != nil {
		return Driver{}, err
	}
	return Driver{Driver: c.Driver.String(), Executable: filepath.Join(report.Dir, c.Driver.Name)}, nil
}

func (r *run) tell(report install.Report) {
	for _, step := range report.Steps {
		r.say("%s: %s", report.Driver, step)
	}
	for _, warning := range report.Warnings {
		r.warn("%s: %s", report.Driver, warning)
	}
}

// readBefore is what an earlier run has left word of. Word that cannot be read
// is as good as none: it is written anew.
func (r *run) readBefore() *Installation {
	before, err := Read(r.stateDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		r.warn("%v; it is written anew", err)
	}
	if before == nil {
		before = &Installation{}
	}
	return before
}

// checkFormer refuses a configuration without a driver whose volumes are in use,
// as long as a daemon serves that: the one of this configuration, which is to
// follow, would mount none for the pods that come next, and end only those with a
// record that says where their CSI driver is. Without one nothing is gained by it.
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
		return fmt.Errorf("the configuration has no %s any more, and volumes of it are in use: put it back until their pods have ended\n  %s", strings.Join(gone, ", "), strings.Join(lines, "\n  "))
	}
	return nil
}

// former are the drivers that were installed earlier and are wanted no more.
// They stay: their volumes may be mounted, or be about to be, and what takes
// volumes away is the driver.
func (r *run) former(before, now *Installation) (former []Driver) {
	for _, d := range slices.Concat(before.Drivers, before.Former) {
		_, wanted := now.driver(d.Driver)
		if _, err := os.Lstat(d.Executable); wanted || err != nil {
			continue
		}
		former = append(former, d)
		r.warn("%s is not in the configuration any more, and stays installed: the daemon ends the volumes that pods have, and mounts none. Put it back, or if no pod uses it run: flex2csi uninstall --driver %s", d.Driver, d.Driver)
	}
	return former
}
