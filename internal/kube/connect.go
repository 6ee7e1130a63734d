package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	storagev1client "k8s.io/client-go/kubernetes/typed/storage/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// Options name the cluster and the program.
type Options struct {
	// Config has the API server and the user. Its Timeout bounds a single request.
	Config *rest.Config
	// Kubeconfig is a file with them, if Config is nil; empty: the pod's own ServiceAccount.
	Kubeconfig string
	// UserAgent names the program to the API server.
	UserAgent string
	// Node is the program's node, for events.
	Node string
	// StateFile caches CSIDriver objects for a program that starts while the API
	// server is unavailable. Empty: no cache.
	StateFile string
	// VolumesFile caches PersistentVolumes likewise.
	VolumesFile string
	// NoCSIDrivers reads no CSIDriver objects, and needs no right to.
	NoCSIDrivers bool
	// QPS is how many requests objects makes in a second, after Burst at once; zero: any number.
	QPS   float32
	Burst int
	// Observe, if set, is called after each request.
	Observe func(Request)
	Log     *slog.Logger
}

// A Cluster is a client of the API server.
type Cluster struct {
	core         corev1client.CoreV1Interface
	storage      storagev1client.StorageV1Interface
	coordination coordinationv1client.CoordinationV1Interface

	config *rest.Config
	// objects makes requests about objects of any kind, without retries.
	objects *objects.Client

	options  Options
	log      *slog.Logger
	requests *requests

	drivers    drivers
	volumes    volumes
	secrets    sync.Map            // of seenSecret, by csivol.SecretRef: as many as the configuration names
	tokens     *utilcache.Expiring // of seenToken, by tokenKey
	events     events
	everywhere everywhere

	mu         sync.Mutex
	ctx        context.Context         //nolint:containedctx // of Run
	background []func(context.Context) // to start with Run
	over       bool
	running    sync.WaitGroup
}

// requestTimeout bounds a single request, which the API server answers from memory or
// by a write to etcd. Watches have no timeout: HTTP/2 pings find a dead connection
// (k8s.io/apimachinery/pkg/util/net/http.go, configureHTTP2Transport).
const requestTimeout = 10 * time.Second

// Connect makes the clients. It makes no request.
func Connect(o Options) (*Cluster, error) {
	config, err := restConfig(o)
	if err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := &Cluster{config: config, options: o, log: o.Log, requests: &requests{observe: o.Observe}, tokens: utilcache.NewExpiring()}
	config.UserAgent = o.UserAgent
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	// The API server limits its clients by priority and fairness. A limit here would
	// only delay hundreds of attachments after the reboot of a node. All retries here
	// have their own pauses.
	config.QPS = -1
	config.WarningHandlerWithContext = rest.NoWarnings{}
	config.Wrap(c.requests.wrap)
	if err := c.makeClients(config); err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	if err := c.makeObjects(config); err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	c.watchDrivers()
	if o.VolumesFile != "" {
		if err := c.volumes.read(o.VolumesFile); err != nil {
			c.log.Error("the cache of PersistentVolumes cannot be read", "error", err)
		}
	}
	return c, nil
}

// makeClients makes the clients of a few groups, over one connection.
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

// ErrNowhere is returned if nothing names an API server.
var ErrNowhere = errors.New("this is not a pod, and no kubeconfig is given: give one with --kubeconfig or in $KUBECONFIG")

// restConfig returns a configuration that may be changed. The token of a ServiceAccount is
// read again when it was renewed.
func restConfig(o Options) (config *rest.Config, err error) {
	switch {
	case o.Config != nil:
		return rest.CopyConfig(o.Config), nil
	case o.Kubeconfig != "":
		config, err = clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	default:
		config, err = rest.InClusterConfig()
	}
	switch {
	case err == nil:
		return config, nil
	case errors.Is(err, rest.ErrNotInCluster), clientcmd.IsEmptyConfig(err):
		err = ErrNowhere
	case o.Kubeconfig != "":
		err = fmt.Errorf("kubeconfig %s: %w", o.Kubeconfig, err)
	}
	return nil, fmt.Errorf("find the API server: %w", err)
}

// Server returns the address of the API server, for messages.
func (c *Cluster) Server() string { return c.core.RESTClient().Get().URL().Host }

// Run keeps the informers up to date until ctx ends. Until the API server has
// answered, calls that need it fail or use the caches.
func (c *Cluster) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(c.log.Handler()))
	stop := c.events.start(ctx, c.core, c.options.Node)
	c.mu.Lock()
	c.ctx = ctx
	for _, run := range c.background {
		c.running.Go(func() { run(ctx) })
	}
	c.background = nil
	c.mu.Unlock()
	<-ctx.Done()
	c.mu.Lock()
	c.over = true // keep adds none after this
	c.mu.Unlock()
	c.running.Wait()
	stop()
}

// aboutVolume names a volume in errors.
func aboutVolume(a *csivol.Attachment) string {
	if a.Name == "" {
		return a.Key().String()
	}
	return fmt.Sprintf("%s (PersistentVolume %s)", a.Key(), a.Name)
}
