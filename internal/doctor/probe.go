package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/distribution"
	"github.com/flex2csi/flex2csi/internal/kubelet"
	"github.com/flex2csi/flex2csi/internal/mapping"
)

// A probe has the node and the cluster, and facts that several checks need.
// Each is found out when it is wanted first. A check that waits for one that
// hangs is given up like that which began it.
type probe struct {
	Options
	life context.Context //nolint:containedctx // of all checks: facts outlive the one that wants them first

	kubelet func() (*kubelet.Kubelet, error)
	config  func() (*bridgeconfig.Configuration, error)
	status  func() (*daemonStatus, error)

	nodes       func() ([]corev1.Node, error)
	onlyOwn     atomic.Bool // nodes is this one alone, of more
	attachments func() ([]storagev1.VolumeAttachment, error)
	drivers     func() ([]storagev1.CSIDriver, error)
	version     func() (serverVersion, error)
}

// A serverVersion is what the API server says first.
type serverVersion struct {
	text string
	took time.Duration
}

func newProbe(o Options) *probe {
	p := &probe{Options: o}
	p.kubelet = sync.OnceValues(p.findKubelet)
	p.config = sync.OnceValues(p.loadConfig)
	p.status = sync.OnceValues(p.askDaemon)
	p.nodes = sync.OnceValues(p.listNodes)
	p.attachments = sync.OnceValues(func() ([]storagev1.VolumeAttachment, error) { return p.Cluster.ListAttachments(p.life, false) })
	p.drivers = sync.OnceValues(func() ([]storagev1.CSIDriver, error) { return p.Cluster.ListDrivers(p.life) })
	p.version = sync.OnceValues(func() (serverVersion, error) {
		start := time.Now()
		version, err := p.Cluster.Version(p.life)
		return serverVersion{version, time.Since(start).Round(time.Millisecond)}, err
	})
	return p
}

// listNodes asks for all nodes, or with a right to no more, for this one.
func (p *probe) listNodes() ([]corev1.Node, error) {
	all, err := p.Cluster.ListNodes(p.life)
	name := p.node()
	if err == nil || name == "" {
		return all, err
	}
	own, ownErr := p.Cluster.GetNode(p.life, name)
	if ownErr != nil || own == nil {
		return nil, err
	}
	p.onlyOwn.Store(true)
	return []corev1.Node{*own}, nil
}

func (p *probe) loadConfig() (*bridgeconfig.Configuration, error) {
	if p.InstalledConfig == nil {
		return bridgeconfig.Loader{}.Load(p.Config, mapping.Check)
	}
	text, err := p.InstalledConfig(p.life)
	if err != nil {
		return nil, err
	}
	return bridgeconfig.Loader{}.Decode([]byte(text), mapping.Check)
}

// host is where the processes of the node are seen. Those that a socket tells of
// are seen by ourselves only, which is the same but for a pod without hostPID.
func (p *probe) host() kubelet.Host { return kubelet.Host{Root: p.HostRoot} }

var errNoKubelet = fmt.Errorf("%w: run this on the node itself, in a pod of the daemon, or in one with hostPID: true. (A k3s, k0s or microk8s has the kubelet inside another process.) --volume-plugin-dir and --kubelet-dir, or --kubeconfig, do without it", kubelet.ErrNone)

func (p *probe) findKubelet() (*kubelet.Kubelet, error) {
	k, err := kubelet.Find(p.host(), p.KubeletPID)
	if errors.Is(err, kubelet.ErrNone) {
		err = errNoKubelet
	}
	return k, err
}

// A daemonStatus is what the daemon says, or its files if there is none.
type daemonStatus struct {
	*bridgestatus.BridgeStatus
	absent error // that there is no daemon
	// pid is the daemon's process; zero if it cannot be seen from here.
	pid int
}

// served are the CSI drivers of the daemon by FlexVolume driver: as its configuration
// says, or where that lies in its pod only, as it says itself. ok is false if neither is
// known.
func (p *probe) served() (csiDrivers map[string][]string, ok bool) {
	csiDrivers = map[string][]string{}
	if config, err := p.config(); err == nil {
		for i := range config.Drivers {
			d := &config.Drivers[i]
			csiDrivers[d.FlexDriver] = append(csiDrivers[d.FlexDriver], d.CSIDriver)
		}
		return csiDrivers, true
	}
	s, err := p.status()
	if err != nil || s.absent != nil {
		return nil, false
	}
	for _, d := range s.Drivers {
		csiDrivers[d.FlexDriver] = append(csiDrivers[d.FlexDriver], d.CSIDriver)
	}
	return csiDrivers, true
}

// kubeletDir returns the directory as set by the operator, or the kubelet's, or the default.
func (p *probe) kubeletDir() string {
	if p.KubeletDir != "" {
		return p.KubeletDir
	}
	if k, err := p.kubelet(); err == nil && k.RootDir != "" {
		return k.RootDir
	}
	return distribution.DefaultKubeletDir
}

// pluginDir is the kubelet's as far as is known.
func (p *probe) pluginDir() string {
	if k, err := p.kubelet(); err == nil && k.PluginDir != "" {
		return k.PluginDir
	}
	if p.PluginDir != "" {
		return p.PluginDir
	}
	return distribution.DefaultPluginDir
}

// at is where we find a path of the kubelet's, which may live in another mount
// namespace: a kubelet in a container, or doctor in one.
func (p *probe) at(path string) string {
	if k, err := p.kubelet(); err == nil {
		return k.View + path
	}
	return p.host().At(path)
}

// node returns the name of this node in Kubernetes; empty if not known.
func (p *probe) node() string {
	if p.NodeName != "" || !p.Local {
		return p.NodeName
	}
	if s, err := p.status(); err == nil && s.Daemon != nil {
		return s.Daemon.NodeName
	}
	if k, err := p.kubelet(); err == nil {
		if k.NodeName != "" {
			return k.NodeName
		}
		// pkg/util/node (component-helpers), GetHostname.
		if name, err := os.Hostname(); err == nil {
			return strings.ToLower(strings.TrimSpace(name))
		}
	}
	return ""
}

// nodeIfKnown is for the end, when facts that hang must not be waited for.
func (p *probe) nodeIfKnown() string {
	name := make(chan string, 1)
	go func() { name <- p.node() }()
	select {
	case n := <-name:
		return n
	case <-p.life.Done():
		return p.NodeName
	}
}
