package main

import (
	"context"
	"fmt"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/kube"
	"github.com/flex2csi/flex2csi/internal/mapping"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/version"
)

// migrateVolumes finds what is to be done with volumes.
func migrateVolumes(args []string, env environment) error {
	var o planOptions
	set := o.flags(env)
	if err := set.Parse(args); err != nil {
		return &usageError{err}
	}
	switch what := set.Arg(0); what {
	case "plan":
		return o.run(set.Args()[1:], env)
	case "":
		return usagef("say plan")
	default:
		return usagef("%q is not known, only plan", what)
	}
}

// operatorAccess is how a person's program finds the API server: as kubectl does,
// unless something else is said.
type operatorAccess struct {
	clusterOptions
	context string
}

func (o *operatorAccess) add(set *pflag.FlagSet) {
	set.StringVar(&o.kubeconfig, "kubeconfig", "", "talk to the API server with this `file` (default: as kubectl finds it)")
	set.StringVar(&o.context, "context", "", "the `name` of a context of the kubeconfig (default: the current one)")
	set.BoolVar(&o.inCluster, "in-cluster", false, "talk to the API server as the pod's ServiceAccount")
}

func (o *operatorAccess) connect() (*kube.Cluster, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	return kube.Connect(kube.Options{
		Kubeconfig: o.kubeconfig, AsKubectl: !o.inCluster, Context: o.context,
		UserAgent: "flex2csi-migrate/" + version.Get().Version,
	})
}

// untilInterrupted is a context that ends with Ctrl-C.
func untilInterrupted() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
}

// migrateConfig is the configuration of a file, or that of the daemons.
func migrateConfig(ctx context.Context, path string, r migrate.Reader, env environment) (*bridgeconfig.Configuration, error) {
	if path != "" {
		return loadConfig(bridgeconfig.Loader{}, path, env)
	}
	text, from, err := migrate.InstalledConfig(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("find the configuration: %w", err)
	}
	c, err := bridgeconfig.Loader{}.Decode([]byte(text), mapping.Check)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	fmt.Fprintf(env.err, "note: the configuration is that of the daemons, %s\n", from)
	return c, nil
}

// slashed wants namespace/name.
func slashed(flag, value string) (namespace, name string, err error) {
	namespace, name, ok := strings.Cut(value, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", "", usagef("--%s %s: want namespace/name", flag, value)
	}
	return namespace, name, nil
}
