//go:build linux

package doctor

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/flex2csi/flex2csi/internal/driverconfig"
	"github.com/flex2csi/flex2csi/internal/hostfile"
	"github.com/flex2csi/flex2csi/internal/install"
	"github.com/flex2csi/flex2csi/internal/version"
)

// A flexDriver is a driver's directory as the kubelet's prober sees it
// (pkg/volume/flexvolume/probe.go, newProbeEvent, and plugin.go,
// NewFlexVolumePlugin).
type flexDriver struct {
	name string // vendor/name, as in PersistentVolumes
	dir  string // as the kubelet calls it
	here string // where we find it
}

// driverIn: all '~' become '/', and the executable has the name of the last part.
func driverIn(dir, here, entry string) flexDriver {
	return flexDriver{name: strings.ReplaceAll(entry, "~", "/"), dir: filepath.Join(dir, entry), here: filepath.Join(here, entry)}
}

func (d flexDriver) executable() string { return filepath.Join(d.here, filepath.Base(d.name)) }

// checkDrivers looks at all that is in the plugin directory: one broken driver
// makes itself felt at each operation on any volume.
func (p *probe) checkDrivers(ctx context.Context, n *notes) {
	dir := p.pluginDir()
	here := p.at(dir)
	entries, err := os.ReadDir(here)
	if errors.Is(err, fs.ErrNotExist) {
		return // checkPluginDir says so
	}
	if err != nil {
		n.skip("the drivers in the plugin directory", "%v", err)
		return
	}
	var found []flexDriver
	for _, e := range entries {
		d := driverIn(dir, here, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "."):
			checkHidden(n, d, e)
		case e.Type() == fs.ModeSymlink:
			n.add(driverLink, d.dir, "%s is a symbolic link: the kubelet sees it when it changes, and not after its next start", d.dir)
		case !e.IsDir():
			n.add(strayFile, d.dir, "%s is no directory of a driver", d.dir)
		default:
			if p.checkDriver(ctx, n, d) {
				found = append(found, d)
			}
		}
	}
	p.probeAll(ctx, n, found)
	p.checkInstalled(n, dir, here)
}

// checkHidden: see addWatchRecursive and handleWatchEvent in probe.go: dot-folders
// that are there when the kubelet starts are watched like all others, and what is
// in them is told by its own name.
func checkHidden(n *notes, d flexDriver, e fs.DirEntry) {
	if !e.IsDir() {
		return
	}
	inside, err := os.ReadDir(d.here)
	if err != nil {
		return
	}
	if strings.Contains(e.Name(), "~") && strings.HasSuffix(e.Name(), ".new") {
		n.add(installInterrupted, d.dir, "an installation was begun in %s and not finished", d.dir)
	}
	for _, f := range inside {
		if !strings.HasPrefix(f.Name(), ".") {
			n.add(dotFolder, d.dir, "the folder %s has %s in it: the kubelet ignores the folder, and not what happens in it", d.dir, f.Name())
			return
		}
	}
}

// checkDriver reports whether the driver can be started, for all that can be
// seen without starting it.
func (p *probe) checkDriver(ctx context.Context, n *notes, d flexDriver) bool {
	if strings.Count(d.name, "/") != 1 {
		n.add(driverNoVendor, d.dir, "%s is not called <vendor>~<driver>; PersistentVolumes would have to say driver: %s", d.dir, d.name)
	}
	file := d.executable()
	shown := filepath.Join(d.dir, filepath.Base(d.name))
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		n.add(driverNoExecutable, d.dir, "there is no executable %s", shown).evidence(listing(d.here)...)
		return false
	case err != nil:
		n.skip("the driver "+d.name, "%v", err)
		return false
	case !info.Mode().IsRegular():
		n.add(driverNoExecutable, d.dir, "%s is not a file", shown).evidence(listing(d.here)...)
		return false
	case info.Mode().Perm()&0o111 == 0:
		n.add(driverNotExecutable, shown, "%s cannot be executed", shown).evidence(listing(d.here)...)
		return false
	}
	if err := startable(file, p.at("")); err != nil {
		n.add(driverCannotStart, shown, "%s cannot be started: %v", shown, err)
		return false
	}
	if err := hostfile.CheckTrusted(info, hostfile.MayRead); err != nil {
		n.add(driverUntrusted, shown, "%s %v", shown, err)
	}
	e := n.add(driverFine, d.name, "driver %s is in %s", d.name, d.dir)
	p.checkOurs(ctx, n, e, d, shown)
	checkWritten(n, d)
	return true
}

// listing is what a person would look at next.
func listing(dir string) (lines []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return []string{err.Error()}
	}
	const most = 10
	for i, e := range entries {
		if i == most {
			return append(lines, fmt.Sprintf("and %d more", len(entries)-most))
		}
		if info, err := e.Info(); err == nil {
			lines = append(lines, fmt.Sprintf("%s %d %s", info.Mode(), info.Size(), e.Name()))
		}
	}
	if len(lines) == 0 {
		return []string{"the directory is empty"}
	}
	return lines
}

// ourProgram is the main package of the driver of this project.
const ourProgram = "github.com/flex2csi/flex2csi/cmd/flexdriver"

// checkOurs looks at a driver that this project has installed.
func (p *probe) checkOurs(ctx context.Context, n *notes, e *entry, d flexDriver, shown string) {
	build, err := buildinfo.ReadFile(d.executable())
	if err != nil || build.Path != ourProgram {
		e.evidence("of other make than flexdriver")
		p.checkOverwritten(n, d, shown)
		return
	}
	e.evidence("flexdriver " + build.Main.Version)
	if ours := version.Get().Version; build.Main.Version != ours {
		n.add(driverVersion, d.name, "%s is flexdriver %s, and this is flex2csi %s", shown, build.Main.Version, ours)
	}
	if _, err := os.Lstat(filepath.Join(d.here, ".executable.old")); err == nil {
		n.add(installInterrupted, d.dir, "an update of %s was begun and not finished", d.name)
	}
	c, err := driverconfig.Load(filepath.Join(d.here, driverconfig.FileName))
	if err != nil {
		n.add(driverUnconfigured, d.name, "%s", strings.ReplaceAll(err.Error(), d.here, d.dir))
		return
	}
	e.evidence(fmt.Sprintf("backend %s, attach: %v", c.Backend, c.Capabilities.Attach))
	if c.Capabilities.Attach {
		p.checkControllerManager(ctx, n, c)
	}
	if c.Backend != driverconfig.BackendCSI {
		return
	}
	if filepath.Clean(c.Socket) != filepath.Clean(p.Socket) {
		n.add(driverSocket, d.name, "%s calls the daemon at %s, and doctor was told (--socket) %s", d.name, c.Socket, p.Socket)
	}
	if served, ok := p.served(); ok && len(served[d.name]) == 0 {
		n.add(driverNotServed, d.name, "%s hands its calls to the daemon, which serves no such driver", d.name)
	}
}

// checkOverwritten: another program has the place of a driver of ours.
func (p *probe) checkOverwritten(n *notes, d flexDriver, shown string) {
	if served, ok := p.served(); ok && len(served[d.name]) > 0 {
		n.add(driverOverwritten, d.name, "%s is not flexdriver, and flex2csi serves %s", shown, d.name)
		return
	}
	if _, err := os.Lstat(filepath.Join(d.here, driverconfig.FileName)); err == nil {
		n.add(driverOverwritten, d.name, "%s is not flexdriver, and a configuration of flexdriver is next to it", shown)
	}
}

// fresh is how new a change is that is likely to be one of many.
const fresh = 10 * time.Minute

// checkWritten looks for files next to the executable that are written to.
func checkWritten(n *notes, d flexDriver) {
	executable, err := os.Stat(d.executable())
	if err != nil {
		return
	}
	_ = filepath.WalkDir(d.here, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.HasPrefix(e.Name(), ".") || path == d.executable() {
			return nil //nolint:nilerr // go on with the rest
		}
		info, err := e.Info()
		if err == nil && time.Since(info.ModTime()) < fresh && info.ModTime().After(executable.ModTime().Add(fresh)) {
			n.add(driverWritten, d.dir, "%s was written to %v ago", strings.Replace(path, d.here, d.dir, 1), time.Since(info.ModTime()).Round(time.Second))
		}
		return nil
	})
}

// checkInstalled: what the daemon serves has to be where the kubelet looks.
func (p *probe) checkInstalled(n *notes, dir, here string) {
	served, _ := p.served()
	for _, name := range sortedKeys(served) {
		if _, err := os.Stat(filepath.Join(here, strings.ReplaceAll(name, "/", "~"))); errors.Is(err, fs.ErrNotExist) {
			n.add(driverNotInstalled, name, "the daemon serves %s, and there is no such driver in %s", name, dir).
				advice("flexdriver install --backend=csi --driver %s --volume-plugin-dir %s --socket %s", name, dir, p.Socket)
		}
	}
}

// probeAll runs init of the drivers if that is wanted: it may have side effects.
func (p *probe) probeAll(ctx context.Context, n *notes, drivers []flexDriver) {
	if len(drivers) == 0 {
		return
	}
	if !p.ProbeDrivers {
		n.skip("what the drivers answer to init", "it runs other people's programs; with --probe-drivers that is done as the kubelet does it")
		return
	}
	var probes sync.WaitGroup
	for _, d := range drivers {
		probes.Go(func() { p.probe(ctx, n, d) })
	}
	probes.Wait()
}

func (p *probe) probe(ctx context.Context, n *notes, d flexDriver) {
	start := time.Now()
	err := install.TryInit(ctx, d.executable(), p.Timeout/2, nil)
	took := time.Since(start)
	switch {
	case err != nil:
		n.add(driverInitFails, d.dir, "%s init: %v", d.dir, err)
	case took > install.SlowInit:
		n.add(driverInitSlow, d.dir, "init of %s took %v", d.name, took.Round(time.Millisecond))
	}
}
