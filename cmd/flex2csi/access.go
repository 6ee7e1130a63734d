package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // auth-provider in a kubeconfig
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/flex2csi/flex2csi/internal/kube"
	"github.com/flex2csi/flex2csi/internal/version"
)

// apiAccess are the flags for the API server and the user.
type apiAccess struct {
	kubectl    *genericclioptions.ConfigFlags // those of kubectl; nil: of a daemon
	flags      pflag.FlagSet                  // of kubectl
	kubeconfig string                         // of a daemon
	inCluster  bool
}

// connection is the annotation of the flags that kubectl has as well.
const connection = "connection"

// add adds the flags of kubectl, with its loading rules.
func (a *apiAccess) add(c *cobra.Command) {
	a.addKubectl(c)
	c.Flags().BoolVar(&a.inCluster, "in-cluster", false, "talk to the API server as the ServiceAccount of the pod")
	_ = c.Flags().SetAnnotation("in-cluster", connection, nil) // it exists
	a.excludes(c, "in-cluster")
}

// addKubectl is for a command that talks to a cluster on request only: with one of these flags.
func (a *apiAccess) addKubectl(c *cobra.Command) {
	a.kubectl = genericclioptions.NewConfigFlags(false)
	a.kubectl.CacheDir = nil  // nothing is cached
	a.kubectl.Namespace = nil // volumes have none, and those of claims are several
	a.kubectl.AddFlags(&a.flags)
	a.flags.SortFlags = false
	a.flags.VisitAll(func(f *pflag.Flag) { f.Annotations = map[string][]string{connection: nil} })
	timeout := a.flags.Lookup("request-timeout")
	timeout.DefValue, timeout.Usage = "10s", "Timeout of each request, a `duration`"
	c.Flags().AddFlagSet(&a.flags)
	completeKubeconfig(c, a.kubectl)
}

// excludes makes a flag one without those of kubectl, which it would ignore.
func (a *apiAccess) excludes(c *cobra.Command, flag string) {
	a.flags.VisitAll(func(f *pflag.Flag) { c.MarkFlagsMutuallyExclusive(flag, f.Name) })
}

// addExplicit is for daemons, which use an API server only on request: a daemon that
// found one by itself would begin to attach volumes.
func (a *apiAccess) addExplicit(c *cobra.Command) {
	c.Flags().StringVar(&a.kubeconfig, "kubeconfig", "", "talk to the API server with this kubeconfig `file`; without it and --in-cluster the API server is not used")
	c.Flags().BoolVar(&a.inCluster, "in-cluster", false, "talk to the API server as the ServiceAccount of the pod")
	c.MarkFlagsMutuallyExclusive("in-cluster", "kubeconfig")
}

// given reports whether a flag names an API server.
func (a *apiAccess) given() bool {
	given := a.inCluster || a.kubeconfig != ""
	a.flags.VisitAll(func(f *pflag.Flag) { given = given || f.Changed })
	return given
}

// connect sends no request: the API server may be unavailable.
func (a *apiAccess) connect(k kube.Options) (*kube.Cluster, error) {
	k.Kubeconfig = a.kubeconfig
	k.UserAgent = cmp.Or(k.UserAgent, "flex2csi") + "/" + version.Get().Version
	if a.kubectl != nil && !a.inCluster {
		var err error
		if k.Config, err = a.config(); err != nil {
			return nil, fmt.Errorf("find the API server: %w", err)
		}
	}
	return kube.Connect(k)
}

// config returns what kubectl would use, but for an API server that nothing names.
func (a *apiAccess) config() (*rest.Config, error) {
	loader := a.kubectl.ToRawKubeConfigLoader()
	config, err := loader.ClientConfig()
	if err != nil && *a.kubectl.KubeConfig != "" {
		return nil, fmt.Errorf("kubeconfig %s: %w", *a.kubectl.KubeConfig, err)
	}
	if err != nil {
		return nil, err
	}
	raw, err := loader.RawConfig()
	if err == nil && !a.chosen(raw, config.Host) {
		err = a.whyNone(raw)
	}
	return config, err
}

// chosen reports whether an API server is one of the kubeconfig, the flags or the pod, and not
// kubectl's default, http://localhost:8080.
func (a *apiAccess) chosen(raw clientcmdapi.Config, server string) bool {
	return server != clientcmd.ClusterDefaults.Server || server == *a.kubectl.APIServer ||
		slices.ContainsFunc(slices.Collect(maps.Values(raw.Clusters)), func(c *clientcmdapi.Cluster) bool { return c.Server == server })
}

// errInPod: kubectl, too, uses its default then.
var errInPod = errors.New("these flags need a kubeconfig in a pod: give --kubeconfig, or leave them out to be the ServiceAccount of the pod")

// whyNone says why there is no API server.
func (a *apiAccess) whyNone(raw clientcmdapi.Config) error {
	switch {
	case len(raw.Contexts)+len(raw.Clusters) > 0 && cmp.Or(*a.kubectl.Context, raw.CurrentContext) == "":
		return fmt.Errorf("the kubeconfig has no current context: give --context, one of %s", strings.Join(slices.Sorted(maps.Keys(raw.Contexts)), ", "))
	case len(raw.Contexts)+len(raw.Clusters) > 0:
		return fmt.Errorf("context %q of the kubeconfig has no cluster with a server: choose another one with --context", cmp.Or(*a.kubectl.Context, raw.CurrentContext))
	}
	if _, err := rest.InClusterConfig(); err == nil {
		return errInPod
	}
	return kube.ErrNowhere
}
