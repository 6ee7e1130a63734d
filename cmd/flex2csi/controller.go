//go:build linux

package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/controller"
	"github.com/flex2csi/flex2csi/internal/daemon"
	"github.com/flex2csi/flex2csi/internal/drivers"
	"github.com/flex2csi/flex2csi/internal/hostfile"
	"github.com/flex2csi/flex2csi/internal/install/onnode"
	"github.com/flex2csi/flex2csi/internal/kube"
	"github.com/flex2csi/flex2csi/internal/mapping"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// controllerOptions are the flags of controller.
type controllerOptions struct {
	serveOptions
	sweep, noForceDetach bool
	leaseNamespace       string
}

func newController() *cobra.Command {
	var o controllerOptions
	c := &cobra.Command{
		Use:   "controller --socket PATH",
		Short: "Attach volumes for kube-controller-manager, and delete leaked VolumeAttachments",
		Long: `Run the controller. It attaches and detaches for kube-controller-manager the
volumes of drivers with attach: true, and deletes VolumeAttachments that no other
component deletes, until it gets SIGTERM.`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return o.control(c) },
	}
	set := c.Flags()
	addConfig(set, &o.config)
	o.api.addExplicit(c)
	set.StringVar(&o.socket, "socket", "", "unix socket at which flexdriver calls; required. Empty: delete leaked VolumeAttachments only")
	set.BoolVar(&o.sweep, "sweep", true, "take part in the election of the controller that deletes leaked VolumeAttachments")
	set.BoolVar(&o.noForceDetach, "disable-force-detach-on-timeout", false, "do not detach from nodes that are not ready for six minutes; give it if kube-controller-manager has it")
	set.StringVar(&o.leaseNamespace, "lease-namespace", "", "`namespace` of the Lease "+leaseName+" (default: that of the pod, else flex2csi)")
	completes(c, "lease-namespace", o.api.names(namespaceNames()))
	addHTTP(set, &o.serveOptions)
	return c
}

// leaseName is also in install/rbac/controller.yaml.
const leaseName = "flex2csi-controller"

// control is flex2csi controller.
func (o *controllerOptions) control(c *cobra.Command) error {
	switch {
	case !o.api.given():
		return usagef("which API server? give --in-cluster or --kubeconfig")
	case !c.Flags().Changed("socket"):
		return usagef("where does flexdriver call? give --socket, or --socket= to delete leaked VolumeAttachments only")
	case o.socket == "" && !o.sweep:
		return usagef("without --socket and with --sweep=false there is nothing to do")
	case o.socket != "" && !filepath.IsAbs(o.socket):
		return usagef("--socket is an absolute path")
	}
	env := streams(c)
	config, mappers, err := o.load(env)
	if err != nil {
		return err
	}
	ctx, stop := untilInterrupted(c)
	defer stop()
	return o.run(ctx, config, mappers, o.logger(env))
}

// load reads the configuration. Sweeping alone needs none.
func (o *controllerOptions) load(env environment) (*bridgeconfig.Configuration, mapping.Mappers, error) {
	if o.socket == "" {
		return &bridgeconfig.Configuration{}, nil, nil
	}
	c, err := loadConfig(bridgeconfig.Loader{Others: hostfile.MayRead}, o.config, env)
	if err != nil {
		return nil, nil, err
	}
	mappers, err := mapping.Compile(c)
	return c, mappers, err
}

// run runs the parts of the controller.
func (o *controllerOptions) run(ctx context.Context, c *bridgeconfig.Configuration, mappers mapping.Mappers, log *slog.Logger) error {
	metrics := daemon.NewMetrics()
	cluster, err := o.api.connect(kube.Options{Log: log, NoCSIDrivers: o.socket == "", Observe: func(r kube.Request) {
		metrics.ObserveRequest(r.Verb, r.Resource, r.Code, r.Duration)
	}})
	if err != nil {
		return err
	}
	attachments := cluster.Attachments("", objects.AttachedByController)
	k := &controller.Controller{Drivers: bridge.Drivers{Choose: mappers.Choose}, Attacher: attachments, Cluster: cluster}
	for i := range c.Drivers {
		k.Drivers.All = append(k.Drivers.All, drivers.New(&c.Drivers[i], mappers[i].WithoutSecrets(), nil, cluster, nil))
	}
	sweeper := &controller.Sweeper{View: cluster, Delete: attachments.Detach, DisableForceDetachOnTimeout: o.noForceDetach, Log: log}
	options := daemon.ControllerOptions{
		Controller: k, Socket: o.socket, Collector: controller.NewCollector(sweeper.Result), Metrics: metrics,
		HTTPEndpoint: o.httpEndpoint, MetricsPath: o.metricsPath, Drain: o.drain, Log: log,
	}
	if o.sweep {
		election := kube.Election{Namespace: cmp.Or(o.leaseNamespace, podNamespace(), "flex2csi"), Name: leaseName, Identity: identity()}
		options.Background = append(options.Background, func(ctx context.Context) { cluster.Lead(ctx, election, saying(log, election, sweeper.Run)) })
	}
	// Calls that are being drained still wait for their attachments.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	var watching sync.WaitGroup
	watching.Go(func() { cluster.Run(life) })
	err = daemon.RunController(ctx, options)
	end()
	watching.Wait()
	return errors.Join(err, o.leave(log))
}

// saying logs when this process begins and ends to sweep.
func saying(log *slog.Logger, e kube.Election, sweep func(context.Context)) func(context.Context) {
	log = log.With("lease", e.Namespace+"/"+e.Name, "identity", e.Identity)
	return func(ctx context.Context) {
		log.InfoContext(ctx, "this is the one that sweeps now")
		sweep(ctx)
		log.InfoContext(ctx, "this is not the one that sweeps any more")
	}
}

// leave removes the socket, if flex2csi was uninstalled and nothing calls it.
func (o *controllerOptions) leave(log *slog.Logger) error {
	if o.socket == "" {
		return nil
	}
	left, err := onnode.LeaveController(o.socket)
	if left {
		log.Info("no driver calls here any more: removed the socket", "socket", o.socket)
	}
	return err
}

// podNamespace returns the namespace of the pod; empty outside of one.
func podNamespace() string {
	data, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// identity is unique to this process.
func identity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s_%s", host, strings.ToLower(rand.Text()[:8]))
}
