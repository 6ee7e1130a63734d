//go:build linux

package main

import (
	"log/slog"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/hostfile"
	"github.com/flex2csi/flex2csi/internal/statedir"
	"github.com/flex2csi/flex2csi/internal/volumelog"
	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// serveOptions are the flags of serve.
type serveOptions struct {
	config                                 string
	socket, stateDir, kubeletDir, nodeName string
	httpEndpoint, metricsPath, bootIDFile  string
	drain, interval, grace, timeout        time.Duration
	verbosity                              int
	api                                    apiAccess
}

func newServe() *cobra.Command {
	var o serveOptions
	c := &cobra.Command{
		Use:   "serve --node-name NAME",
		Short: "Run the daemon of a node",
		Long: `Run the daemon of a node. It answers flexdriver, and calls CSI drivers for it,
until it gets SIGTERM.`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return o.serve(c) },
	}
	set := c.Flags()
	addConfig(set, &o.config)
	set.StringVar(&o.socket, "socket", wire.DefaultSocket, "unix socket at which flexdriver calls; only root may enter its directory")
	set.StringVar(&o.stateDir, "state-dir", statedir.DefaultStateDir, "`directory` of the records of volumes, and of notes that flexdriver leaves. It has to outlive this process, and is for one daemon")
	set.StringVar(&o.kubeletDir, "kubelet-dir", "/var/lib/kubelet", "the kubelet's --root-dir")
	set.StringVar(&o.nodeName, "node-name", "", "`name` of this node in Kubernetes; required")
	o.api.addExplicit(c)
	completes(c, "node-name", o.api.names(nodeNames()))
	addHTTP(set, &o)
	set.DurationVar(&o.timeout, "timeout", bridgeconfig.DefaultTimeout, "deadline of each RPC")
	set.DurationVar(&o.interval, "reconcile-interval", 30*time.Second, "interval of the checks for volumes that no pod uses, and for dead mounts")
	set.DurationVar(&o.grace, "grace", bridge.DefaultGrace, "how long an unfinished operation is kept, if the kubelet does not call again, before it is undone; the kubelet calls at least every 2m3s")
	set.StringVar(&o.bootIDFile, "boot-id-file", bridge.BootIDFile, "`file` that changes with each boot of the node; for tests, and where the kernel's file is hidden")
	return c
}

// addHTTP adds the flags that serve and controller share.
func addHTTP(set *pflag.FlagSet, o *serveOptions) {
	set.StringVar(&o.httpEndpoint, "http-endpoint", "", "loopback `address` (127.0.0.1:PORT) for /healthz, /readyz and metrics; empty: none")
	set.StringVar(&o.metricsPath, "metrics-path", "/metrics", "path of the metrics")
	set.DurationVar(&o.drain, "drain-timeout", 20*time.Second, "how long calls that are under way may take after SIGTERM")
	set.CountVarP(&o.verbosity, "v", "v", "log requests and responses, too, with secrets masked")
}

// serve runs the daemon, which answers flexdriver until it is stopped.
func (o *serveOptions) serve(c *cobra.Command) error {
	switch {
	case o.nodeName == "":
		return usagef("--node-name is required: the name that kubectl get nodes shows")
	case !filepath.IsAbs(o.kubeletDir) || !filepath.IsAbs(o.stateDir):
		return usagef("--kubelet-dir and --state-dir are absolute paths")
	case o.timeout < time.Second || o.timeout > time.Hour:
		return usagef("--timeout %v: want 1s to 1h", o.timeout)
	}
	env := streams(c)
	config, err := loadConfig(bridgeconfig.Loader{Others: hostfile.MayRead, Timeout: o.timeout}, o.config, env)
	if err != nil {
		return err
	}
	if err := o.api.requireCluster(config); err != nil {
		return err
	}
	ctx, stop := untilInterrupted(c)
	defer stop()
	return o.run(ctx, config, o.logger(env))
}

func (o *serveOptions) logger(env environment) *slog.Logger {
	level := slog.LevelInfo
	if o.verbosity > 0 {
		level = slog.LevelDebug
	}
	// Log calls remove secrets by their value; this removes others by their keys.
	var byKey *flex.Redactor
	redacting := volumelog.Redacting(byKey.Redact)
	log := slog.New(slog.NewJSONHandler(env.err, &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration {
			return slog.String(a.Key, a.Value.Duration().String())
		}
		return redacting(groups, a)
	}}))
	klog.SetSlogLogger(log) // what k8s.io/mount-utils says
	return log
}
