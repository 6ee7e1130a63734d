package main

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/flex2csi/flex2csi/internal/kube"
	"github.com/flex2csi/flex2csi/internal/version"
)

// apiAccess are the flags for the API server and the user.
type apiAccess struct {
	kubeconfig, context string
	inCluster           bool
	usual               bool // defaults are those of kubectl
}

// add adds the flags of kubectl, with its loading rules.
func (a *apiAccess) add(c *cobra.Command) {
	a.usual = true
	c.Flags().StringVar(&a.kubeconfig, "kubeconfig", "", "kubeconfig `file` (default: $KUBECONFIG, ~/.kube/config, or the ServiceAccount of the pod)")
	c.Flags().StringVar(&a.context, "context", "", "`name` of a context in the kubeconfig (default: the current context)")
	a.addInCluster(c)
	c.MarkFlagsMutuallyExclusive("in-cluster", "context")
}

// addCSIDrivers is for a command that reads CSIDriver objects on request only.
func (a *apiAccess) addCSIDrivers(c *cobra.Command) {
	a.usual = true
	c.Flags().StringVar(&a.kubeconfig, "kubeconfig", "", "read the CSIDriver objects of the cluster with this kubeconfig `file`")
	c.Flags().StringVar(&a.context, "context", "", "read them with this context, a `name` in the kubeconfig")
}

// addExplicit is for daemons, which use an API server only on request: a daemon that
// found one by itself would begin to attach volumes.
func (a *apiAccess) addExplicit(c *cobra.Command) {
	c.Flags().StringVar(&a.kubeconfig, "kubeconfig", "", "talk to the API server with this kubeconfig `file`; without it and --in-cluster the API server is not used")
	a.addInCluster(c)
}

func (a *apiAccess) addInCluster(c *cobra.Command) {
	c.Flags().BoolVar(&a.inCluster, "in-cluster", false, "talk to the API server as the ServiceAccount of the pod")
	c.MarkFlagsMutuallyExclusive("in-cluster", "kubeconfig")
}

// given reports whether a flag names an API server.
func (a *apiAccess) given() bool { return a.inCluster || a.kubeconfig != "" || a.context != "" }

// connect sends no request: the API server may be unavailable.
func (a *apiAccess) connect(k kube.Options) (*kube.Cluster, error) {
	k.Kubeconfig, k.Context, k.AsKubectl = a.kubeconfig, a.context, a.usual && !a.inCluster
	k.UserAgent = cmp.Or(k.UserAgent, "flex2csi") + "/" + version.Get().Version
	return kube.Connect(k)
}
