package main

import (
	"context"
	"log/slog"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/calllog"
	"github.com/flex2csi/flex2csi/internal/tombstone"
	"github.com/flex2csi/flex2csi/internal/trust"
	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// serveOptions are the flags of serve.
type serveOptions struct {
	config                                 *string
	socket, stateDir, kubeletDir, nodeName string
	httpEndpoint, metricsPath, bootIDFile  string
	drain, interval, grace, timeout        time.Duration
	verbosity                              int
	api                                    clusterOptions
}

func (o *serveOptions) flags(env environment) *pflag.FlagSet {
	set := flags("serve", "The daemon of a node: answers flexdriver, and does with CSI drivers what it asks\nfor, until it is told to end. With --controller first it is something else, see\nflex2csi serve --controller --help.", env)
	o.config = configFlag(set)
	set.StringVar(&o.socket, "socket", wire.DefaultSocket, "unix socket at which flexdriver calls; its directory is for root alone")
	set.StringVar(&o.stateDir, "state-dir", tombstone.DefaultStateDir, "`directory` of the records of volumes, and of notes that flexdriver leaves. It has to outlive this process, and is for one daemon")
	set.StringVar(&o.kubeletDir, "kubelet-dir", "/var/lib/kubelet", "the kubelet's --root-dir")
	set.StringVar(&o.nodeName, "node-name", "", "the `name` of this node in Kubernetes; has to be given")
	o.api.add(set)
	set.StringVar(&o.httpEndpoint, "http-endpoint", "", "loopback `address` (127.0.0.1:PORT) for /healthz, /readyz and metrics; empty: none")
	set.StringVar(&o.metricsPath, "metrics-path", "/metrics", "path of the metrics")
	set.DurationVar(&o.timeout, "timeout", bridgeconfig.DefaultTimeout, "deadline of RPCs for which the configuration has none")
	set.DurationVar(&o.drain, "drain-timeout", 20*time.Second, "how long calls under way are waited for at the end")
	set.DurationVar(&o.interval, "reconcile-interval", 30*time.Second, "pause between two looks for what nobody wants any more, and for mounts that died")
	set.DurationVar(&o.grace, "grace", bridge.DefaultGrace, "how long something may be left half-done before it is undone because nobody asks for it any more; the kubelet asks at least every 2m3s")
	set.StringVar(&o.bootIDFile, "boot-id-file", bridge.BootIDFile, "`file` that says something else after each boot of the node; for tests, and where the kernel's is hidden")
	set.CountVarP(&o.verbosity, "v", "v", "log requests and responses as well, secrets masked")
	return set
}

// serve is the daemon: it answers flexdriver until it is told to end.
func serve(args []string, env environment) error {
	if slices.Contains(args, "--controller") {
		return serveController(args, env)
	}
	var o serveOptions
	set := o.flags(env)
	if err := parse(set, args); err != nil {
		return err
	}
	switch {
	case o.nodeName == "":
		return usagef("which node is this? give --node-name")
	case !filepath.IsAbs(o.kubeletDir) || !filepath.IsAbs(o.stateDir):
		return usagef("--kubelet-dir and --state-dir are absolute paths")
	case o.timeout < time.Second || o.timeout > time.Hour:
		return usagef("--timeout %v: want 1s to 1h", o.timeout)
	}
	if err := o.api.check(); err != nil {
		return err
	}
	c, err := loadConfig(bridgeconfig.Loader{Others: trust.MayRead, Timeout: o.timeout}, *o.config, env)
	if err != nil {
		return err
	}
	if err := o.api.requireCluster(c); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return o.run(ctx, c, o.logger(env))
}

func (o *serveOptions) logger(env environment) *slog.Logger {
	level := slog.LevelInfo
	if o.verbosity > 0 {
		level = slog.LevelDebug
	}
	// Who logs takes out secrets by their value; this is a net for the rest.
	var byKey *flex.Redactor
	redacting := calllog.Redacting(byKey.Redact)
	log := slog.New(slog.NewJSONHandler(env.err, &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration {
			return slog.String(a.Key, a.Value.Duration().String())
		}
		return redacting(groups, a)
	}}))
	klog.SetSlogLogger(log) // what k8s.io/mount-utils says
	return log
}
