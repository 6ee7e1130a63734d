//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/distribution"
	"github.com/flex2csi/flex2csi/internal/driverconfig"
	"github.com/flex2csi/flex2csi/internal/hostfile"
	"github.com/flex2csi/flex2csi/internal/install"
	"github.com/flex2csi/flex2csi/internal/install/onnode"
	"github.com/flex2csi/flex2csi/internal/kube"
	"github.com/flex2csi/flex2csi/internal/kubelet"
	"github.com/flex2csi/flex2csi/internal/statedir"
	"github.com/flex2csi/flex2csi/internal/wire"
)

// nodeOptions are the flags for the node's name and directories.
type nodeOptions struct {
	hostRoot, distribution string
	pluginDir, kubeletDir  string
	kubeletPID             int
	socket, stateDir       string
}

func (o *nodeOptions) add(c *cobra.Command) {
	set := c.Flags()
	set.StringVar(&o.hostRoot, "host-root", "", "`directory` of the node's / in a container; its /proc has to be there, too")
	set.StringVar(&o.pluginDir, "volume-plugin-dir", "", "plugin `directory` of the kubelet, as the kubelet calls it (default: what the kubelet says, or the table of distributions)")
	set.StringVar(&o.kubeletDir, "kubelet-dir", "", "the kubelet's --root-dir as the daemon is told it; it is an error if the kubelet says otherwise")
	set.StringVar(&o.distribution, "distribution", "", "`kind` of the node, for what its kubelet does not say: "+strings.Join(distributionNames(), ", "))
	completes(c, "distribution", fixed(distributionNames()))
	set.IntVar(&o.kubeletPID, "kubelet-pid", 0, "process `id` of the kubelet, if there are several")
	set.StringVar(&o.socket, "socket", wire.DefaultSocket, "unix socket of the daemon")
	set.StringVar(&o.stateDir, "state-dir", statedir.DefaultStateDir, "`directory` of the daemon's records")
}

func distributionNames() (names []string) {
	for _, d := range distribution.All() {
		names = append(names, d.Name)
	}
	return names
}

// query returns what the flags say about the kubelet.
func (o *nodeOptions) query() (kubelet.Query, error) {
	q := kubelet.Query{PID: o.kubeletPID, PluginDir: o.pluginDir, RootDir: o.kubeletDir}
	for flag, path := range map[string]string{"host-root": o.hostRoot, "volume-plugin-dir": o.pluginDir, "kubelet-dir": o.kubeletDir, "socket": o.socket, "state-dir": o.stateDir} {
		if path != "" && !filepath.IsAbs(path) {
			return q, usagef("--%s %s: want an absolute path", flag, path)
		}
	}
	if root := filepath.Clean(o.hostRoot); o.hostRoot != "" && root != "/" {
		q.Host.Root = root
	}
	if o.distribution != "" {
		d, err := distribution.Get(o.distribution)
		if err != nil {
			return q, &usageError{fmt.Errorf("--distribution: %w", err)}
		}
		q.Distribution = &d
	}
	return q, nil
}

// installOptions are the flags of install.
type installOptions struct {
	nodeOptions
	config                   string
	api                      apiAccess
	nodeName                 string
	executable               string
	attach, noSELinuxRelabel []string
	controllerSocket         string
	timeouts                 []string
	logFile, logLevel        string
}

// allDrivers selects all drivers of the configuration; a driver's name has a slash.
const allDrivers = "all"

func newInstall() *cobra.Command {
	var o installOptions
	c := &cobra.Command{
		Use:   "install",
		Short: "Install the drivers of a configuration on this node",
		Long: `Put flexdriver into the kubelet's plugin directory, once for each driver of the
configuration, or update what is installed. A running kubelet finds it, and each of
its calls finds either the version before or this one. install may be repeated at
any time; an older release installs that release again.

The plugin directory is, in this order: that of --volume-plugin-dir, what the API
server says of the kubelet (with --in-cluster or --kubeconfig, and the right to get
nodes/proxy), what the kubelet's process and files say, that of --distribution,
upstream's default. install prints which one it took, and why. It is an error if
nothing can be written or started there, or if the kubelet keeps its volumes
elsewhere than --kubelet-dir says.

A program of other make that has a driver's place, such as its vendor's, is kept in
the plugin directory: uninstall --restore puts it back.

Drivers that were in an earlier configuration stay, with a warning. It is an error
if a daemon serves one of them and volumes of it are in use: the next daemon would
not even unmount them.`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return o.install(c) },
	}
	set := c.Flags()
	addConfig(set, &o.config)
	o.nodeOptions.add(c)
	set.StringVar(&o.executable, "driver-executable", "", "`program` to install (default: flexdriver in the directory of this program)")
	set.StringArrayVar(&o.attach, "attach", nil, "have kube-controller-manager attach the volumes of this `driver`, VENDOR/NAME, or of all; may be repeated")
	set.StringVar(&o.controllerSocket, "controller-socket", "", "for drivers of --attach: where flex2csi controller listens for calls from kube-controller-manager; .NAME is a `file` in the driver's directory, ../.NAME one in the plugin directory")
	set.StringArrayVar(&o.noSELinuxRelabel, "no-selinux-relabel", nil, "do not have the container runtime relabel the files in volumes of this `driver`, or of all; may be repeated")
	set.StringArrayVar(&o.timeouts, "callout-timeout", nil, "deadline of a callout, such as `mount=60s`; may be repeated")
	set.StringVar(&o.logFile, "log-file", "", "`file` to which the drivers append a log; \"journal\" for the journal of systemd (default: no log)")
	addChoice(c, &o.logLevel, []string{"debug", "info", "warn", "error"}, "log-level", "", "lowest `level` that the drivers log, info by default")
	set.StringVar(&o.nodeName, "node-name", "", "`name` of this node in Kubernetes, to ask the API server about its kubelet")
	o.api.addExplicit(c)
	completes(c, "node-name", o.api.names(nodeNames()))
	return c
}

// install is flex2csi install.
func (o *installOptions) install(c *cobra.Command) error {
	query, err := o.query()
	if err == nil {
		query.Configz, err = o.configz()
	}
	if err != nil {
		return err
	}
	env := streams(c)
	config, err := loadConfig(bridgeconfig.Loader{Others: hostfile.MayRead}, o.config, env)
	if err != nil {
		return err
	}
	drivers, err := o.drivers(config)
	if err != nil {
		return err
	}
	executable, err := o.driverExecutable()
	if err != nil {
		return err
	}
	ctx, stop := untilInterrupted(c)
	defer stop()
	node := onnode.Node{Query: query, StateDir: o.stateDir, Socket: o.socket, Out: env.out}
	return node.Install(ctx, executable, drivers)
}

func (o *installOptions) driverExecutable() (string, error) {
	if o.executable != "" {
		return o.executable, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(self), "flexdriver"), nil
}

// configzTimeout bounds the request: there are other sources.
const configzTimeout = 10 * time.Second

// configz returns how to ask for the kubelet's configuration; nil without access to an
// API server.
func (o *installOptions) configz() (func(context.Context) (string, error), error) {
	if !o.api.given() {
		return nil, nil //nolint:nilnil // documented
	}
	if o.nodeName == "" {
		return nil, usagef("which node is this? the API server can be asked about its kubelet with --node-name only")
	}
	cluster, err := o.api.connect(kube.Options{})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, configzTimeout)
		defer cancel()
		k, err := cluster.Kubelet(ctx, o.nodeName)
		return k.VolumePluginDir, err
	}, nil
}

// drivers returns the configurations next to the executables.
func (o *installOptions) drivers(config *bridgeconfig.Configuration) ([]*driverconfig.Configuration, error) {
	timeouts, err := install.Timeouts(o.timeouts)
	if err != nil {
		return nil, &usageError{fmt.Errorf("--callout-timeout %w", err)}
	}
	var names []string
	for i := range config.Drivers {
		if name := config.Drivers[i].FlexDriver; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, chosen := range slices.Concat(o.attach, o.noSELinuxRelabel) {
		if chosen != allDrivers && !slices.Contains(names, chosen) {
			return nil, usagef("there is no driver %s in the configuration, only %s", chosen, strings.Join(names, ", "))
		}
	}
	var all []*driverconfig.Configuration
	for _, name := range names {
		driver, err := driverconfig.ParseDriverName(name)
		if err != nil {
			return nil, err
		}
		c := driverconfig.Default(driver, driverconfig.BackendCSI)
		c.Socket, c.StateDir = o.socket, o.stateDir
		c.Capabilities.Attach = chosen(o.attach, name)
		c.Capabilities.SELinuxRelabel = !chosen(o.noSELinuxRelabel, name)
		if c.Capabilities.Attach {
			c.ControllerSocket = o.controllerSocket
		}
		c.Timeouts = timeouts
		c.Log = driverconfig.Log{File: o.logFile, Level: driverconfig.LogLevel(o.logLevel)}
		if err := c.Validate(); err != nil {
			return nil, fmt.Errorf("configuration of driver %s: %w", name, err)
		}
		all = append(all, c)
	}
	return all, nil
}

func chosen(drivers []string, name string) bool {
	return slices.Contains(drivers, name) || slices.Contains(drivers, allDrivers)
}
