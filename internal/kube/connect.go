package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	storagev1client "k8s.io/client-go/kubernetes/typed/storage/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// Options say which cluster, and who asks.
type Options struct {
	// Kubeconfig is a file; empty: the pod's own service account.
	Kubeconfig string
	// AsKubectl finds the kubeconfig as kubectl does ($KUBECONFIG, or in the home
	// directory) where Kubeconfig is empty, and takes Context of it, if that is
	// not the current one.
	AsKubectl bool
	Context   string
	// UserAgent names the program to the API server.
	UserAgent string
	// Node is the one that this program runs on, for events.
	Node string
	// StateFile keeps what CSIDriver objects say for a program that is started
	// while the API server is away. Empty: nothing is kept.
	StateFile string
	// VolumesFile keeps what PersistentVolumes are, likewise.
	VolumesFile string
	// NoCSIDrivers does without CSIDriver objects, and without the right to read them.
	NoCSIDrivers bool
	// Observe, if there is one, is told of each request.
	Observe func(Request)
	Log     *slog.Logger
}

// A Cluster is the way to the API server.
type Cluster struct {
	core         corev1client.CoreV1Interface
	storage      storagev1client.StorageV1Interface
	coordination coordinationv1client.CoordinationV1Interface

	config *rest.Config
	// objects makes requests about objects of any kind, once each.
	objects *objects.Client

	options  Options
	log      *slog.Logger
	requests *requests

	drivers drivers
	volumes volumes
	secrets secrets
	tokens  tokens
	events  events
	// everywhere is which node has which volume.
	everywhere shared[*census]

	mu      sync.Mutex
	ctx     context.Context //nolint:containedctx // that of Run
	mirrors []starter       // those to start with Run
	over    bool
	running sync.WaitGroup
}

// starter is a mirror of whatever kind.
type starter interface{ run(ctx context.Context) }

// requestTimeout bounds a single request: it is answered from the memory of the
// API server or by a write to etcd. Watches have none; that their connection is
// dead is found out by HTTP/2 pings (k8s.io/apimachinery/pkg/util/net/http.go,
// configureHTTP2Transport).
const requestTimeout = 10 * time.Second

// Connect makes the clients. It asks nothing of the API server.
func Connect(o Options) (*Cluster, error) {
	config, err := restConfig(o)
	if err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := &Cluster{config: config, options: o, log: o.Log, requests: &requests{observe: o.Observe}}
	config.UserAgent = o.UserAgent
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	// The API server shares itself out among all of its clients by priority and
	// fairness. A limit here would only delay hundreds of attachments after the
	// reboot of a node. All that repeats itself here has pauses of its own.
	config.QPS = -1
	config.WarningHandlerWithContext = rest.NoWarnings{}
	config.Wrap(c.requests.count)
	if err := c.makeClients(config); err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	if err := c.makeObjects(config); err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	c.mirrorDrivers()
	if o.VolumesFile != "" {
		if err := c.volumes.read(o.VolumesFile); err != nil {
			c.log.Error("what was known of PersistentVolumes is lost", "error", err)
		}
	}
	return c, nil
}

// makeClients makes those for a few groups, over one connection.
func (c *Cluster) makeClients(config *rest.Config) error {
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	if c.core, err = corev1client.NewForConfigAndClient(config, transport); err != nil {
		return err
	}
	if c.storage, err = storagev1client.NewForConfigAndClient(config, transport); err != nil {
		return err
	}
	c.coordination, err = coordinationv1client.NewForConfigAndClient(config, transport)
	return err
}

// errNowhere: the error of clientcmd proposes to set $KUBERNETES_MASTER.
var errNowhere = errors.New("this is no pod of Kubernetes, and no kubeconfig is given")

// restConfig is that of a kubeconfig or of the pod. The token of a service
// account is read again when it has been renewed.
func restConfig(o Options) (*rest.Config, error) {
	if o.Kubeconfig == "" && !o.AsKubectl {
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			err = errNowhere
		}
		if err != nil {
			return nil, fmt.Errorf("find the API server: %w", err)
		}
		return config, nil
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.Context}).ClientConfig()
	switch {
	case err == nil:
		return config, nil
	case clientcmd.IsEmptyConfig(err):
		return nil, fmt.Errorf("find the API server: %w", errNowhere)
	case o.Kubeconfig == "":
		return nil, fmt.Errorf("find the API server as kubectl does: %w", err)
	}
	return nil, fmt.Errorf("find the API server: kubeconfig %s: %w", o.Kubeconfig, err)
}

// Server is the address of the API server, for people.
func (c *Cluster) Server() string { return c.core.RESTClient().Get().URL().Host }

// Run keeps what is in memory up to date while ctx lasts. Until the API server
// has answered, what needs it fails or takes what was known before.
func (c *Cluster) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(c.log.Handler()))
	stop := c.events.start(ctx, c.core, c.options.Node)
	c.mu.Lock()
	c.ctx = ctx
	for _, m := range c.mirrors {
		c.running.Go(func() { m.run(ctx) })
	}
	c.mirrors = nil
	c.mu.Unlock()
	<-ctx.Done()
	c.mu.Lock()
	c.over = true // keep adds none after this
	c.mu.Unlock()
	c.running.Wait()
	stop()
}

// keep runs a mirror while Run does.
func (c *Cluster) keep(m starter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ctx == nil:
		c.mirrors = append(c.mirrors, m)
	case !c.over:
		ctx := c.ctx
		c.running.Go(func() { m.run(ctx) })
	}
}

// request gives a request its deadline.
func request[T any](ctx context.Context, do func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return do(ctx)
}

// aboutVolume names a volume in errors.
func aboutVolume(a *csivol.Attachment) string {
	if a.Name == "" {
		return a.Key().String()
	}
	return fmt.Sprintf("%s (PersistentVolume %s)", a.Key(), a.Name)
}
