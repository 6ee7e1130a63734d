package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/flex2csi/flex2csi/internal/doctor"
	"github.com/flex2csi/flex2csi/internal/kube"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/nodeinstall"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/internal/process"
	"github.com/flex2csi/flex2csi/internal/tombstone"
	"github.com/flex2csi/flex2csi/internal/version"
	"github.com/flex2csi/flex2csi/internal/wire"
)

// doctorOptions are the flags of doctor.
type doctorOptions struct {
	doctor.Options
	where, kubeconfig, output, failOn string
	askMounts                         bool
}

func (o *doctorOptions) flags(env environment) *pflag.FlagSet {
	set := flags("doctor", `Look for what is wrong with FlexVolumes: on this node (as root), in the cluster
(with --kubeconfig, or in a pod), or in both. Nothing is changed. Each finding comes
with its evidence, the messages by which people meet it, and what to do; what
could not be looked at is said, with the reason.

The exit status is 0 if nothing is wrong, 1 if there are errors or warnings (see
--fail-on), 2 if it was called in a wrong way.`, env)
	set.StringVar(&o.where, "on", "auto", "what to look at: `node`, cluster or both; auto is both, without what is not there")
	set.StringVar(&o.kubeconfig, "kubeconfig", "", "`file` to talk to the API server with; empty: $KUBECONFIG, or the pod's own")
	set.StringVar(&o.NodeName, "node-name", "", "`name` of the node in Kubernetes; empty: what the daemon or the kubelet says, and with --on=cluster all nodes")
	set.StringVar(&o.PluginDir, "volume-plugin-dir", "", "`directory` that somebody believes to be the kubelet's; it is compared with what the kubelet says")
	set.StringVar(&o.KubeletDir, "kubelet-dir", "", "`directory` that somebody believes to be the kubelet's --root-dir; compared, too")
	set.StringVar(&o.HostRoot, "host-root", "", "`directory` where the node's / is seen, in a container; empty: as install was told, if it is there")
	set.IntVar(&o.KubeletPID, "kubelet-pid", 0, "process `id` of the kubelet, if there are several")
	set.StringVar(&o.Config, "config", defaultConfig, "the BridgeConfiguration, a `file`")
	set.StringVar(&o.Socket, "socket", wire.DefaultSocket, "unix socket of the daemon")
	set.StringVar(&o.StateDir, "state-dir", tombstone.DefaultStateDir, "`directory` of the records")
	set.BoolVar(&o.ProbeDrivers, "probe-drivers", false, "run init of each driver in the plugin directory, as the kubelet does; other people's programs may do anything then")
	set.StringVarP(&o.output, "output", "o", "", "`format`: json; empty: text")
	set.StringVar(&o.failOn, "fail-on", "warning", "least `severity` for exit status 1: error or warning")
	set.DurationVar(&o.Timeout, "timeout", doctor.DefaultTimeout, "how long each check may take; they run at the same time")
	set.BoolVar(&o.askMounts, "ask-mounts", false, "answer about the mounts whose paths come on standard input")
	_ = set.MarkHidden("ask-mounts") // it is there
	return set
}

// examine is flex2csi doctor.
func examine(args []string, env environment) error {
	var o doctorOptions
	set := o.flags(env)
	if err := parse(set, args); err != nil {
		return err
	}
	switch {
	case o.askMounts:
		return doctor.AnswerMounts(env.in, env.out)
	case o.output != "" && o.output != "json":
		return usagef("--output %s: want json", o.output)
	case o.failOn != "error" && o.failOn != "warning":
		return usagef("--fail-on %s: want error or warning", o.failOn)
	case o.Timeout < time.Second || o.Timeout > time.Hour:
		return usagef("--timeout %v: want 1s to 1h", o.Timeout)
	}
	if err := o.choose(); err != nil {
		return err
	}
	if o.HostRoot == "" {
		o.HostRoot = hostRoot(o.StateDir)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	r := doctor.Run(ctx, o.Options)
	if err := o.print(r, env); err != nil {
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

// hostRoot is where the node's / is in this pod, as install was told. On the node
// itself there is nothing.
func hostRoot(stateDir string) string {
	word, err := nodeinstall.Read(stateDir)
	if err != nil || word.HostRoot == "" {
		return ""
	}
	if _, err := os.Stat(filepath.Join(word.HostRoot, "proc/1")); err != nil {
		return ""
	}
	return word.HostRoot
}

// errNothing keeps scripts from taking silence for health.
var errNothing = errors.New("nothing could be looked at: run this as root on a node, or give it --kubeconfig")

func (o *doctorOptions) print(r *doctor.Report, env environment) error {
	if o.output == "json" {
		return r.PrintJSON(env.out)
	}
	return r.Print(env.out)
}

// choose decides what is looked at.
func (o *doctorOptions) choose() error {
	if !slices.Contains([]string{"auto", "node", "cluster", "both"}, o.where) {
		return usagef("--on %s: want node, cluster, both or auto", o.where)
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

// connect asks nothing of the API server yet.
func (o *doctorOptions) connect() error {
	path := cmp.Or(o.kubeconfig, os.Getenv("KUBECONFIG"))
	c, err := kube.Connect(kube.Options{Kubeconfig: path, UserAgent: "flex2csi-doctor/" + version.Get().Version})
	switch {
	case err == nil:
		o.Cluster = c
		o.Migrations = func(ctx context.Context) ([]doctor.Migration, error) { return haltedMigrations(ctx, c) }
		return nil
	case path != "" || o.where != "auto":
		return err
	}
	o.NoCluster = fmt.Sprintf("%v (--kubeconfig)", err)
	return nil
}

// haltedMigrations are those that stopped half-way. Who may not read the journal,
// as the daemon's ServiceAccount on a node, is not one who migrates.
func haltedMigrations(ctx context.Context, c *kube.Cluster) (all []doctor.Migration, err error) {
	observer := &migrate.Observer{Client: c.Objects(), Journal: journal.NewCluster(c.Objects(), migrate.Namespace), Now: time.Now, Dead: process.Dead}
	halted, err := observer.Halted(ctx)
	if objects.OutcomeOf(err) == objects.Refused {
		return nil, nil
	}
	for _, v := range halted {
		all = append(all, doctor.Migration{Volume: v.Name, Claim: v.Claim, WithoutVolume: v.State == migrate.WithoutVolume, Stage: string(v.Stage), Trouble: v.Trouble})
	}
	return all, err
}

// isNode: on a workstation nobody wants to hear what a node ought to have.
func isNode() bool { return os.Getuid() == 0 }

// self has mounts asked by this program again. On a node people call it out of its
// container, by way of the process there, and then it is not where it believes to be.
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
