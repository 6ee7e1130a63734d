package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/flex2csi/flex2csi/internal/driverconfig"
	"github.com/flex2csi/flex2csi/internal/handoff"
	installer "github.com/flex2csi/flex2csi/internal/install"
	"github.com/flex2csi/flex2csi/internal/local"
	"github.com/flex2csi/flex2csi/internal/statedir"
	"github.com/flex2csi/flex2csi/internal/wire"
)

// installFlags are those of install or uninstall.
type installFlags struct {
	set     *pflag.FlagSet
	driver  string
	options installer.Options
}

func newInstallFlags(name string, w io.Writer, about string) *installFlags {
	f := &installFlags{set: pflag.NewFlagSet(name, pflag.ContinueOnError)}
	f.set.SetOutput(w)
	f.set.SortFlags = false
	f.set.Usage = func() {
		fmt.Fprintf(w, "Usage: flexdriver %s --driver VENDOR/NAME --volume-plugin-dir DIR [flags]\n\n%s\n\nThe kubelet's directory is often\n/usr/libexec/kubernetes/kubelet-plugins/volume/exec; its own flag of the same\nname, or volumePluginDir in its configuration, says.\n\n%s", name, about, f.set.FlagUsagesWrapped(80))
	}
	f.set.StringVar(&f.driver, "driver", "", "`vendor/name` of the driver, as in spec.flexVolume.driver of the PersistentVolumes")
	f.set.StringVar(&f.options.PluginDir, "volume-plugin-dir", "", "the kubelet's --volume-plugin-dir")
	return f
}

// parse returns false if only help was asked for.
func (f *installFlags) parse(args []string) (bool, error) {
	err := f.set.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return false, nil
	case err != nil:
	case f.set.NArg() > 0:
		err = fmt.Errorf("%q is one argument too many", f.set.Arg(0))
	case f.driver == "":
		err = errors.New("which driver? give --driver VENDOR/NAME")
	case f.options.PluginDir == "":
		err = errors.New("where to? give --volume-plugin-dir, which is the kubelet's flag of that name or volumePluginDir in its configuration")
	default:
		f.options.Driver, err = driverconfig.ParseDriverName(f.driver)
	}
	return err == nil, err
}

func (s *settings) flags(w io.Writer) *installFlags {
	f := newInstallFlags("install", w, "Puts this program into the kubelet's plugin directory as a FlexVolume driver,\nor brings the driver there up to date; a kubelet that is running picks it up.")
	s.register(f.set)
	f.set.StringVar(&f.options.Executable, "executable", "", "install this `file` in place of this program: a FlexVolume driver of your own, which needs no configuration")
	return f
}

func install(args []string, w io.Writer) error {
	var s settings
	f := s.flags(w)
	if ok, err := f.parse(args); !ok {
		return err
	}
	o := &f.options
	var err error
	if o.Executable != "" {
		err = f.refuseSettings()
	} else if o.Config, err = s.configuration(o.Driver); err == nil {
		o.Executable, err = os.Executable()
	}
	if err != nil {
		return err
	}
	ctx := untilInterrupted()
	before, _ := driverconfig.Load(filepath.Join(o.PluginDir, o.Driver.DirName(), driverconfig.FileName))
	report, err := installer.Install(ctx, *o)
	if err == nil && o.Config != nil {
		remark(ctx, &report, before, o.Config)
	}
	return printed(w, report, err)
}

// untilInterrupted returns a context that ends with a signal, as the process does then.
func untilInterrupted() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() { cancel(fmt.Errorf("%v signal received", <-signals)) }()
	return ctx
}

// refuseSettings refuses flags that make a configuration: a program of other make has none.
func (f *installFlags) refuseSettings() (err error) {
	f.set.Visit(func(flag *pflag.Flag) {
		if !slices.Contains([]string{"driver", "volume-plugin-dir", "executable"}, flag.Name) {
			err = fmt.Errorf("--%s is for flexdriver itself, not for --executable %s: leave one of them out", flag.Name, f.options.Executable)
		}
	})
	return err
}

// remark says what volumes the driver serves by itself, and warns of what works and may not
// be meant. before is nil if there was no configuration.
func remark(ctx context.Context, r *installer.Report, before, now *driverconfig.Configuration) {
	warn := func(text string) { r.Warnings = append(r.Warnings, installer.Warning+text) }
	if before != nil && before.Backend != now.Backend {
		warn(fmt.Sprintf("the backend was %s and is %s now; volumes that are mounted can be unmounted all the same", before.Backend, now.Backend))
	}
	if now.Backend == driverconfig.BackendCSI {
		if err := handoff.Probe(ctx, now.Driver.String(), now.Socket, now.StateDir); err != nil {
			warn("not all calls will work until this has changed: " + err.Error())
		}
		return
	}
	r.Steps = append(r.Steps, "allowed volumes: "+now.Allowed.String())
	for _, text := range aboveBounds(ctx, now) {
		warn(text)
	}
}

// aboveBounds waits at most as long as a person does: an image root may be on a silent server.
func aboveBounds(ctx context.Context, c *driverconfig.Configuration) []string {
	b := local.Backend{ImageRoots: c.ImageRoots, MaxSizePerNamespace: c.MaxBytesPerNamespace(), MaxImagesPerNamespace: c.MaxImagesPerNamespace}
	found := make(chan []string, 1)
	go func() { found <- b.AboveBounds() }()
	select {
	case all := <-found:
		return all
	case <-time.After(5 * time.Second):
	case <-ctx.Done():
	}
	return []string{"the image roots do not answer, so namespaces above their bounds are not named"}
}

func uninstallFlags(w io.Writer) *installFlags {
	f := newInstallFlags("uninstall", w, "Removes a FlexVolume driver and its directory; refuses while its volumes are\nmounted. A program that was put there by other means than install is left.")
	f.set.BoolVar(&f.options.Restore, "restore", false, "put back the program that was there before the first install")
	f.set.BoolVar(&f.options.Force, "force", false, "remove it even if its volumes are mounted; the kubelet cannot unmount them then")
	return f
}

func uninstall(args []string, w io.Writer) error {
	f := uninstallFlags(w)
	if ok, err := f.parse(args); !ok {
		return err
	}
	f.options.Recorded = true
	report, err := installer.Uninstall(untilInterrupted(), f.options)
	return printed(w, report, err)
}

// printed prints what was done, and returns err.
func printed(w io.Writer, r installer.Report, err error) error {
	for _, line := range r.Lines() {
		fmt.Fprintln(w, line)
	}
	return err
}

// settings are the flags of install that make a configuration.
type settings struct {
	backend, socket, stateDir, controllerSocket  string
	kubeletDir, fsGroupPolicy, logFile, logLevel string
	attach, noSELinuxRelabel                     bool
	allowed                                      driverconfig.Allowed
	timeouts                                     []string
}

// register uses arrays where pflag has slices and maps: a path may have commas
// in it, and those bring encoding/csv along.
func (s *settings) register(set *pflag.FlagSet) {
	set.StringVar(&s.backend, "backend", string(driverconfig.BackendLocal), "who does the work: local, this program; or csi, a CSI driver through the daemon flex2csi on the node")
	set.StringVar(&s.socket, "socket", "", "with --backend csi: flex2csi's socket (default: "+wire.DefaultSocket+")")
	set.StringVar(&s.stateDir, "state-dir", "", "with --backend csi: flex2csi's `directory` of that name (default: "+statedir.DefaultStateDir+")")
	set.StringVar(&s.controllerSocket, "controller-socket", "", "with --backend csi: flex2csi controller's socket for kube-controller-manager; .NAME is a `file` next to the driver, ../.NAME one in the plugin directory (default: none)")
	set.BoolVar(&s.attach, "attach", false, "have kube-controller-manager attach and detach volumes; the driver must be installed there too")
	set.StringVar(&s.kubeletDir, "kubelet-dir", "", "the kubelet's --root-dir (default: found from the paths that it passes)")
	registerAllowed(set, &s.allowed)
	set.StringVar(&s.fsGroupPolicy, "fs-group-policy", "", "who gives a volume to the pod's fsGroup: driver, kubelet or none (default: driver; not with --backend csi)")
	set.BoolVar(&s.noSELinuxRelabel, "no-selinux-relabel", false, "do not have the container runtime relabel the files of volumes")
	set.StringArrayVar(&s.timeouts, "timeout", nil, "deadline of a callout, such as `mount=60s`; may be repeated")
	set.StringVar(&s.logFile, "log-file", "", "append a log to this `file`; \"journal\" for the journal of systemd (default: no log)")
	set.StringVar(&s.logLevel, "log-level", "", "least severe level that is logged: debug, info, warn or error (default: info)")
}

// registerAllowed adds the flags for what volumes may be made of. Without them
// there are only volumes in memory.
func registerAllowed(set *pflag.FlagSet, a *driverconfig.Allowed) {
	set.StringArrayVar(&a.ImageRoots, "image-root", nil, "allow disk images below this `directory`, those of a namespace in the directory of its name; may be repeated (default: none)")
	set.StringArrayVar(&a.DeviceRoots, "device-root", nil, "allow block devices that have a name below this `directory`, such as /dev/disk/by-id; may be repeated (default: none)")
	set.StringArrayVar(&a.DirectoryRoots, "directory-root", nil, "allow volumes with path below this `directory`; may be repeated (default: none)")
	set.StringArrayVar(&a.SourceTypes, "source-type", nil, "allow volumes with source of this `type` of filesystem, such as nfs; may be repeated (default: none)")
	set.StringVar(&a.MaxSize, "max-size", "", "the most that an image or a memory volume may have, a `quantity` (default: "+driverconfig.DefaultMaxSize+")")
	set.StringVar(&a.MaxSizePerNamespace, "max-size-per-namespace", "", "the most that all images of a namespace below an image root may have, a `quantity` (default: that of --max-size)")
	set.IntVar(&a.MaxImagesPerNamespace, "max-images-per-namespace", 0, "the most images that a namespace may have below an image root, a `number` (default: "+strconv.Itoa(driverconfig.DefaultMaxImagesPerNamespace)+")")
}

func (s *settings) configuration(driver driverconfig.DriverName) (*driverconfig.Configuration, error) {
	c := driverconfig.Default(driver, driverconfig.Backend(s.backend))
	c.Socket, c.StateDir = cmp.Or(s.socket, c.Socket), cmp.Or(s.stateDir, c.StateDir)
	c.ControllerSocket = s.controllerSocket
	c.Capabilities.Attach = s.attach
	c.Capabilities.SELinuxRelabel = !s.noSELinuxRelabel
	c.FSGroupPolicy = cmp.Or(driverconfig.FSGroupPolicy(s.fsGroupPolicy), c.FSGroupPolicy)
	c.Capabilities.FSGroup = c.FSGroupPolicy == driverconfig.FSGroupKubelet
	c.KubeletDir = s.kubeletDir
	s.allowed.MaxSize = cmp.Or(s.allowed.MaxSize, c.MaxSize)
	s.allowed.MaxImagesPerNamespace = cmp.Or(s.allowed.MaxImagesPerNamespace, c.MaxImagesPerNamespace)
	c.Allowed = s.allowed
	c.Log = driverconfig.Log{File: s.logFile, Level: driverconfig.LogLevel(s.logLevel)}
	var err error
	if c.Timeouts, err = installer.Timeouts(s.timeouts); err != nil {
		return nil, fmt.Errorf("--timeout %w", err)
	}
	return c, c.Validate()
}
