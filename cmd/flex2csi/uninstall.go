//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/install/onnode"
	"github.com/flex2csi/flex2csi/internal/kube"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// uninstallOptions are the flags of uninstall.
type uninstallOptions struct {
	nodeOptions
	drivers  []string
	force    bool
	restore  bool
	timeout  time.Duration
	api      apiAccess
	nodeName string
}

func newUninstall() *cobra.Command {
	var o uninstallOptions
	c := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove the drivers from this node, unless they are in use",
		Long: `Remove the drivers from this node. The daemon stops setting up volumes; if a volume
is in use all the same, uninstall fails with the names of the pods, and all is as
before. A running kubelet forgets the removed drivers, and VolumeAttachments of
this node that no volume needs are deleted. The daemon and its directories stay
until the daemon ends: delete its DaemonSet next. If no daemon runs, uninstall
removes its directories.

In a pod of the daemon no flag is needed: install has written down what is where.

With --restore the vendor's programs that install found and kept take their places
again, at once; their volumes that running pods still have are no obstacle. Without
it they stay kept, and uninstall --restore can follow later. A program of other make
that has overwritten flexdriver is left.

With --driver only drivers that are no longer in the configuration are removed, and
the daemon goes on.`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return o.uninstall(c) },
	}
	set := c.Flags()
	set.StringArrayVar(&o.drivers, "driver", nil, "remove only this `driver`, VENDOR/NAME; may be repeated")
	set.BoolVar(&o.force, "force", false, "remove what is in use, too, and list what is left: mounts that stay, and pods that stay Terminating")
	set.BoolVar(&o.restore, "restore", false, "put the programs back that were there before install")
	set.DurationVar(&o.timeout, "timeout", time.Minute, "how long to wait for volumes that are being set up, or undone")
	o.add(c)
	set.StringVar(&o.nodeName, "node-name", "", "`name` of this node in Kubernetes (default: as the daemon was told)")
	o.api.add(c)
	completes(c, "node-name", o.api.names(nodeNames()))
	c.MarkFlagsMutuallyExclusive("force", "restore")
	return c
}

// uninstall is flex2csi uninstall.
func (o *uninstallOptions) uninstall(c *cobra.Command) error {
	if o.timeout <= 0 {
		return usagef("--timeout %v: want more than 0, such as 30s", o.timeout)
	}
	query, err := o.query()
	if err != nil {
		return err
	}
	ctx, stop := untilInterrupted(c)
	defer stop()
	removal := onnode.UninstallOptions{Drivers: o.drivers, Force: o.force, Restore: o.restore, Patience: o.timeout}
	sweep, err := o.sweeper(ctx)
	if err != nil {
		removal.NoSweep = err.Error()
	} else {
		removal.Sweep = sweep
	}
	node := onnode.Node{Query: query, StateDir: o.stateDir, Socket: o.socket, Out: streams(c).out}
	return node.Uninstall(ctx, removal)
}

// sweeper returns the function that deletes the VolumeAttachments of this node, or why
// they cannot be read.
func (o *uninstallOptions) sweeper(ctx context.Context) (func(context.Context) ([]string, error), error) {
	cluster, err := o.api.connect(kube.Options{})
	if err != nil {
		return nil, err
	}
	node := cmp.Or(o.nodeName, o.daemonNode(ctx))
	if node == "" {
		return nil, errors.New("the name of this node is not known; give --node-name")
	}
	return func(ctx context.Context) (names []string, err error) {
		ctx, cancel := context.WithTimeout(ctx, o.timeout)
		defer cancel()
		attachments := cluster.Attachments(node, objects.AttachedByNode)
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

// detached deletes an attachment, unless it was handed over to the control plane.
func detached(ctx context.Context, cluster *kube.Cluster, attachments *kube.Attachments, a *csivol.Attachment) (bool, error) {
	if err := attachments.Detach(ctx, a); err != nil {
		return false, err
	}
	left, err := cluster.GetAttachment(ctx, objects.AttachmentName(a.Handle, a.Driver, a.Node))
	return err == nil && left == nil, err
}

// daemonNode returns the node's name from its daemon.
func (o *uninstallOptions) daemonNode(ctx context.Context) string {
	r, err := (&readyOptions{socket: o.socket, timeout: 10 * time.Second}).ask(ctx)
	if err != nil {
		return ""
	}
	return r.NodeName
}
