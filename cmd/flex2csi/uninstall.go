package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/flex2csi/flex2csi/internal/attachment"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/kube"
	"github.com/flex2csi/flex2csi/internal/nodeinstall"
)

// uninstallOptions are the flags of uninstall.
type uninstallOptions struct {
	nodeOptions
	drivers              []string
	force                bool
	timeout              time.Duration
	kubeconfig, nodeName string
}

func (o *uninstallOptions) flags(env environment) *pflag.FlagSet {
	set := flags("uninstall", `Take the drivers of this node away. The daemon is told to set up nothing any more;
if a volume is in use all the same, this is refused, with the names of the pods, and
all is as before. The drivers are taken away such that a running kubelet forgets
them, and VolumeAttachments of this node that nobody needs are deleted. What is left
are the daemon and its directories, which it removes when it ends: delete its
DaemonSet next. If no daemon runs its directories are removed at once.

In a pod of the daemon no flag is needed: install has left word of what is where.

With --driver only drivers that are not in the configuration any more are taken
away, and the daemon goes on.`, env)
	set.StringArrayVar(&o.drivers, "driver", nil, "take away only this `driver`, VENDOR/NAME; may be repeated")
	set.BoolVar(&o.force, "force", false, "take away what is in use, too, and say what is left: mounts that nobody unmounts, and pods that stay Terminating")
	set.DurationVar(&o.timeout, "timeout", time.Minute, "how long to wait for volumes that are being set up, or undone")
	o.add(set)
	set.StringVar(&o.kubeconfig, "kubeconfig", "", "`file` to talk to the API server with; empty: $KUBECONFIG, or the pod's own")
	set.StringVar(&o.nodeName, "node-name", "", "the `name` of this node in Kubernetes; empty: as the daemon was told")
	return set
}

// uninstallDrivers is flex2csi uninstall.
func uninstallDrivers(args []string, env environment) error {
	var o uninstallOptions
	if err := parse(o.flags(env), args); err != nil {
		return err
	}
	if o.timeout <= 0 {
		return usagef("--timeout %v: want a time that can pass", o.timeout)
	}
	query, err := o.query()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	removal := nodeinstall.UninstallOptions{
		Query: query, StateDir: o.stateDir, Socket: o.socket, Drivers: o.drivers, Force: o.force, Patience: o.timeout, Out: env.out,
	}
	sweep, err := o.sweeper(ctx)
	if err != nil {
		removal.NoSweep = err.Error()
	} else {
		removal.Sweep = sweep
	}
	return nodeinstall.Uninstall(ctx, removal)
}

// sweeper returns what deletes the VolumeAttachments of this node, or why they
// cannot be looked at.
func (o *uninstallOptions) sweeper(ctx context.Context) (func(context.Context) ([]string, error), error) {
	api := clusterOptions{kubeconfig: cmp.Or(o.kubeconfig, os.Getenv("KUBECONFIG"))}
	cluster, err := api.connect(kube.Options{})
	if err != nil {
		return nil, err
	}
	node := cmp.Or(o.nodeName, o.daemonNode(ctx))
	if node == "" {
		return nil, errors.New("which node this is nobody says (--node-name)")
	}
	return func(ctx context.Context) (names []string, err error) {
		ctx, cancel := context.WithTimeout(ctx, o.timeout)
		defer cancel()
		attachments := cluster.Attachments(node, attachment.AttachedByNode)
		go cluster.Run(ctx)
		all, err := attachments.List(ctx)
		if err != nil {
			return nil, fmt.Errorf("look at the VolumeAttachments of node %s: %w", node, err)
		}
		errs := []error{cluster.DropNodeVolumes(ctx, node)}
		for _, a := range all {
			deleted, err := detached(ctx, cluster, attachments, a)
			if deleted {
				names = append(names, a.Name)
			}
			errs = append(errs, err)
		}
		return names, errors.Join(errs...)
	}, nil
}

// detached deletes an attachment, unless the control plane has taken it over.
func detached(ctx context.Context, cluster *kube.Cluster, attachments *kube.Attachments, a *csivol.Attachment) (bool, error) {
	if err := attachments.Detach(ctx, a); err != nil {
		return false, err
	}
	left, err := cluster.GetAttachment(ctx, attachment.Name(a.Handle, a.Driver, a.Node))
	return err == nil && left == nil, err
}

// daemonNode is the name that the daemon of this node was told.
func (o *uninstallOptions) daemonNode(ctx context.Context) string {
	r, err := (&readyOptions{socket: o.socket, timeout: 10 * time.Second}).ask(ctx)
	if err != nil {
		return ""
	}
	return r.NodeName
}
