package doctor

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/controller"
	"github.com/flex2csi/flex2csi/internal/kubelet"
)

// A Cluster is asked about Kubernetes' objects. Each method may fail on its own,
// as for a token that may not read everything.
type Cluster interface {
	controller.View
	Version(ctx context.Context) (string, error)
	ListDrivers(ctx context.Context) ([]storagev1.CSIDriver, error)
	// NodeDrivers are the entries of the node's CSINode object.
	NodeDrivers(ctx context.Context, node string) ([]storagev1.CSINodeDriver, error)
	// Kubelet asks a kubelet for its configuration, through the API server.
	Kubelet(ctx context.Context, node string) (kubelet.Configuration, error)
	// DeniesInline is what a policy says to a pod with an inline volume of a driver;
	// empty if none denies it.
	DeniesInline(ctx context.Context, flexDriver string) (says string, err error)
	// User is who asks.
	User(ctx context.Context) (authenticationv1.UserInfo, error)
	// DeniesAttachment is what a policy says to a VolumeAttachment of a user, likewise;
	// without a name it is the one that asks. The error is the API server's Forbidden if
	// the user may make none.
	DeniesAttachment(ctx context.Context, as authenticationv1.UserInfo, o *storagev1.VolumeAttachment) (says string, err error)
}

// Options say where to look.
type Options struct {
	// Local: this machine is a node. Without it only the cluster is asked.
	Local bool
	// HostRoot is where the node's / is seen, in a container; its /proc is there,
	// too. Empty: /.
	HostRoot string
	// KubeletPID is for machines with several kubelets; zero: look for one.
	KubeletPID int
	// KubeletDir and PluginDir are set by the operator; empty: as the kubelet says.
	KubeletDir, PluginDir    string
	Config, Socket, StateDir string
	// InstalledConfig, if not nil, returns the configuration, instead of the file Config.
	InstalledConfig func(context.Context) (text string, err error)
	// NodeName is the node that the cluster is asked about; empty: find out, and
	// without Local all nodes.
	NodeName string

	// Cluster is asked if it is not nil; otherwise NoCluster says why not.
	Cluster   Cluster
	NoCluster string
	// Namespace of flex2csi; empty: flex2csi.
	Namespace string
	// Server is the address of its API server, for messages.
	Server string

	// Migrations returns those that stopped before the end; nil: not known.
	Migrations func(context.Context) ([]Migration, error)

	// DaemonSets returns those of all namespaces; nil: not known.
	DaemonSets func(context.Context) ([]*appsv1.DaemonSet, error)

	// ProbeDrivers runs init of each driver in the plugin directory, as the
	// kubelet does.
	ProbeDrivers bool
	// Timeout is that of each check.
	Timeout time.Duration
	// AskMounts is the command that answers about mounts ([AnswerMounts]).
	AskMounts []string
}
