package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/doctor"
	"github.com/flex2csi/flex2csi/internal/driverconfig"
	"github.com/flex2csi/flex2csi/internal/kube"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/internal/statedir"
)

// doctorOptions are the flags of doctor.
type doctorOptions struct {
	doctor.Options
	api           apiAccess
	home          ownNamespace
	where, failOn string
	askMounts     bool
	client        *objects.Client // of the cluster, if there is one
	format        outputFormat
}

func newDoctor() *cobra.Command {
	o := doctorOptions{where: "auto", failOn: "warning", format: outputFormat{formats: []string{table, asJSON, asYAML}}}
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Find what is wrong on this node, or in the cluster",
		Long: `Find what is wrong with FlexVolumes: on this node (as root), in the cluster, or in
both. Nothing is changed. Each finding comes with its evidence, the messages that
it causes, and what to do. Skipped checks are listed with the reason.

The exit status is 0 if nothing is wrong, 1 if there are errors or warnings (see
--fail-on) or if no check could be made.`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return o.examine(c) },
	}
	set := c.Flags()
	addChoice(c, &o.where, []string{"auto", "node", "cluster", "both"}, "on", "", "`what` to check; auto skips what is not available")
	set.StringVar(&o.NodeName, "node-name", "", "`name` of the node in Kubernetes (default: that of the daemon or the kubelet; with --on=cluster all nodes)")
	set.StringVar(&o.PluginDir, "volume-plugin-dir", "", "expected plugin `directory`, compared with that of the kubelet")
	set.StringVar(&o.KubeletDir, "kubelet-dir", "", "expected --root-dir of the kubelet, a `directory`, compared with that of the kubelet")
	set.StringVar(&o.HostRoot, "host-root", "", "`directory` of the node's / in a container (default: as install was told, if it exists)")
	set.IntVar(&o.KubeletPID, "kubelet-pid", 0, "process `id` of the kubelet, if there are several")
	set.StringVar(&o.Config, "config", defaultConfig, "BridgeConfiguration, a `file` (with --on=cluster: that of the daemons)")
	set.StringVar(&o.Socket, "socket", driverconfig.DefaultSocket, "unix socket of the daemon")
	set.StringVar(&o.StateDir, "state-dir", statedir.DefaultStateDir, "`directory` of the records of volumes")
	set.BoolVar(&o.ProbeDrivers, "probe-drivers", false, "run init of each driver in the plugin directory, as the kubelet does; drivers of other vendors may do anything then")
	o.format.add(c)
	addChoice(c, &o.failOn, []string{"error", "warning"}, "fail-on", "", "lowest `severity` for exit status 1")
	set.DurationVar(&o.Timeout, "timeout", doctor.DefaultTimeout, "how long each check may take; they run at the same time")
	set.BoolVar(&o.askMounts, "ask-mounts", false, "check the mounts with the paths on standard input")
	_ = set.MarkHidden("ask-mounts") // it exists
	o.home.add(c, &o.api)
	o.api.add(c)
	completes(c, "node-name", o.api.names(nodeNames()))
	return c
}

// examine is flex2csi doctor.
func (o *doctorOptions) examine(c *cobra.Command) error {
	env := streams(c)
	switch {
	case o.askMounts:
		return doctor.AnswerMounts(env.in, env.out)
	case o.Timeout < time.Second || o.Timeout > time.Hour:
		return usagef("--timeout %v: want 1s to 1h", o.Timeout)
	}
	if err := o.choose(); err != nil {
		return err
	}
	if o.client != nil && !o.Local && !c.Flags().Changed("config") {
		o.InstalledConfig = func(ctx context.Context) (string, error) {
			text, _, err := migrate.InstalledConfig(ctx, o.client, string(o.home))
			return text, err
		}
	}
	if o.HostRoot == "" {
		o.HostRoot = hostRoot(o.StateDir)
	}
	ctx, stop := untilInterrupted(c)
	defer stop()
	r := doctor.Run(ctx, o.Options)
	if err := o.format.print(env.out, r, r.Show); err != nil {
		return err
	}
	faults, warnings := r.Count(doctor.Error), r.Count(doctor.Warning)
	switch {
	case faults > 0 || warnings > 0 && o.failOn == "warning":
		return fmt.Errorf("errors: %d, warnings: %d", faults, warnings)
	case len(r.Findings) == 0:
		return errNothing
	}
	return nil
}

// errNothing: a script must not mistake silence for success.
var errNothing = errors.New("nothing to check: run this as root on a node, or give it --kubeconfig")

// choose decides what to check.
func (o *doctorOptions) choose() error {
	if runtime.GOOS != "linux" && (o.where == "node" || o.where == "both") {
		return usagef("--on %s: this machine is no node; want cluster, or run doctor on a node: kubectl -n flex2csi exec ds/flex2csi-node -- /flex2csi doctor", o.where)
	}
	o.Local = o.where == "node" || o.where == "both" || o.where == "auto" && isNode()
	if o.where == "node" {
		o.NoCluster = "--on=node"
		return o.self()
	}
	if err := o.connect(); err != nil {
		return err
	}
	return o.self()
}

// connect makes the client, without a request.
func (o *doctorOptions) connect() error {
	c, err := o.api.connect(kube.Options{UserAgent: "flex2csi-doctor"})
	switch {
	case err == nil:
		o.Cluster, o.Server, o.client, o.Namespace = c, c.Server(), c.Objects(), string(o.home)
		o.DaemonSets = func(ctx context.Context) ([]*appsv1.DaemonSet, error) {
			return objects.DaemonSets().List(ctx, c.Objects(), "", metav1.ListOptions{})
		}
		o.Migrations = func(ctx context.Context) ([]doctor.Migration, error) { return haltedMigrations(ctx, c, o.home) }
		return nil
	case o.where != "auto" || o.api.given() || os.Getenv("KUBECONFIG") != "":
		return err
	}
	o.NoCluster = fmt.Sprintf("%v (--kubeconfig)", err)
	return nil
}

// haltedMigrations returns migrations that stopped before the end; none if the user may
// not read the journal, as the daemon's ServiceAccount.
func haltedMigrations(ctx context.Context, c *kube.Cluster, home ownNamespace) (all []doctor.Migration, err error) {
	observer := &migrate.Observer{Client: c.Objects(), Journal: home.journal(c, ""), Now: time.Now, Dead: journal.ProcessDead}
	halted, err := observer.Halted(ctx)
	if objects.OutcomeOf(err) == objects.Refused {
		return nil, nil
	}
	for _, v := range halted {
		all = append(all, doctor.Migration{Volume: v.Name, Claim: v.Claim, WithoutVolume: v.State == migrate.WithoutVolume, Stage: string(v.Stage), Trouble: v.Trouble})
	}
	return all, err
}

// isNode: on a workstation findings about a node do not help.
func isNode() bool { return runtime.GOOS == "linux" && os.Getuid() == 0 }

// self sets the command that checks mounts to this program. An operator may run it from
// the daemon's container by /proc/PID/root, so that its path does not exist here.
func (o *doctorOptions) self() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if _, err := os.Stat(self); err != nil {
		self = "/proc/self/exe"
	}
	o.AskMounts = []string{self, "doctor", "--ask-mounts"}
	return nil
}
