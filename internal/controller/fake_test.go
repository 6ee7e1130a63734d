package controller_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/attachment"
	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/clusterview"
	"github.com/flex2csi/flex2csi/internal/controller"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// A cluster is one whose answers a test chooses. The tests with a real one are
// in test/cluster.
type cluster struct {
	mu          sync.Mutex
	attachments map[string]clusterview.Attachment
	nodes       map[string]corev1.Node
	pods        map[string][]corev1.Pod
	volumes     map[string]csivol.PersistentVolume
	err         error // of all questions
	asked       int
	attachErr   error
	attaching   chan struct{} // Attach waits for it
	unknown     bool          // nothing has been seen yet
}

const (
	csiDriver  = "disk.csi.example.com"
	flexDriver = "example.com/disk"
)

func newCluster() *cluster {
	return &cluster{
		attachments: map[string]clusterview.Attachment{},
		nodes:       map[string]corev1.Node{"node-1": node("node-1", ready), "node-2": node("node-2", ready)},
		pods:        map[string][]corev1.Pod{},
		volumes: map[string]csivol.PersistentVolume{
			"pv": {Name: "pv", FlexDriver: flexDriver, Claim: csivol.ObjectRef{Namespace: "shop", Name: "data"}},
		},
	}
}

func node(name string, is ...func(*corev1.Node)) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, is := range is {
		is(&n)
	}
	return n
}

func ready(n *corev1.Node) {
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
}

func outOfService(n *corev1.Node) {
	n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService}}
}

func inUse(name corev1.UniqueVolumeName) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Status.VolumesInUse = []corev1.UniqueVolumeName{name} }
}

func attached(name corev1.UniqueVolumeName) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Status.VolumesAttached = []corev1.AttachedVolume{{Name: name}} }
}

// old is one that was made long ago.
func old(node, by string) clusterview.Attachment {
	return clusterview.Attachment{
		Name: attachment.Name("vol", csiDriver, node), Driver: csiDriver, Handle: "vol", Node: node, PersistentVolume: "pv",
		Ours: true, FlexDriver: flexDriver, By: by, Attached: true, Created: time.Now().Add(-time.Hour), Pod: "shop/cart-0",
	}
}

func (c *cluster) put(a clusterview.Attachment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attachments[a.Name] = a
}

func (c *cluster) names() (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.attachments {
		all = append(all, name)
	}
	return all
}

func (c *cluster) ask() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	return c.err
}

func (c *cluster) ListAttachments(context.Context, bool) (all []clusterview.Attachment, err error) {
	err = c.ask()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.attachments {
		all = append(all, a)
	}
	return all, err
}

func (c *cluster) FindAttachments(ctx context.Context, pv, node string) ([]clusterview.Attachment, error) {
	all, err := c.ListAttachments(ctx, true)
	return slices.DeleteFunc(all, func(a clusterview.Attachment) bool { return a.PersistentVolume != pv || a.Node != node }), err
}

func (c *cluster) GetAttachment(_ context.Context, name string) (*clusterview.Attachment, error) {
	if err := c.ask(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	a, ok := c.attachments[name]
	if !ok {
		return nil, nil //nolint:nilnil // as the interface says
	}
	return &a, nil
}

func (c *cluster) ListNodes(context.Context) (all []corev1.Node, err error) {
	for _, n := range c.nodes {
		all = append(all, n)
	}
	return all, c.ask()
}

func (c *cluster) GetNode(_ context.Context, name string) (*corev1.Node, error) {
	if err := c.ask(); err != nil {
		return nil, err
	}
	n, ok := c.nodes[name]
	if !ok {
		return nil, nil //nolint:nilnil // as the interface says
	}
	return &n, nil
}

func (c *cluster) PodsOf(_ context.Context, node string) ([]corev1.Pod, error) {
	return c.pods[node], c.ask()
}

func (c *cluster) PersistentVolume(_ context.Context, name string, _ bool) (*csivol.PersistentVolume, error) {
	if err := c.ask(); err != nil {
		return nil, err
	}
	pv, ok := c.volumes[name]
	if !ok {
		return nil, flex.Errorf(flex.CodeNotFound, "there is no PersistentVolume %s", name)
	}
	return &pv, nil
}

func (c *cluster) Attach(ctx context.Context, a *csivol.Attachment) (csivol.Attached, error) {
	if c.attaching != nil {
		select {
		case <-c.attaching:
		case <-ctx.Done():
			return csivol.Attached{}, ctx.Err()
		}
	}
	if c.attachErr != nil {
		return csivol.Attached{}, c.attachErr
	}
	name := attachment.Name(a.Handle, a.Driver, a.Node)
	c.mu.Lock()
	known, ok := c.attachments[name]
	c.mu.Unlock()
	if ok {
		return csivol.Attached{Object: name, Ours: true, Name: known.PersistentVolume}, nil
	}
	c.put(clusterview.Attachment{
		Name: name, Driver: a.Driver, Handle: a.Handle, Node: a.Node, PersistentVolume: a.Name, Ours: true, AccessModes: a.AccessModes,
		FlexDriver: a.FlexDriver, By: attachment.AttachedByController, Attached: true, Created: time.Now(),
	})
	return csivol.Attached{Object: name, Ours: true, Name: a.Name}, nil
}

func (c *cluster) Detach(_ context.Context, a *csivol.Attachment) error {
	if err := c.ask(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.attachments, attachment.Name(a.Handle, a.Driver, a.Node))
	return nil
}

func (c *cluster) Lost(a *csivol.Attachment) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unknown {
		return false, flex.Errorf(flex.CodeUnavailable, "nothing has been seen yet")
	}
	return !c.attachments[attachment.Name(a.Handle, a.Driver, a.Node)].Attached, nil
}

// newController answers for one driver.
func newController(c *cluster) *controller.Controller {
	return &controller.Controller{Attacher: c, Cluster: c, Drivers: map[string]*bridge.FlexDriver{
		flexDriver: {Name: flexDriver, CSIDriver: csiDriver, Map: func(_ context.Context, o flex.Options) (*csivol.Volume, error) {
			return &csivol.Volume{FlexDriver: flexDriver, Driver: csiDriver, Handle: o.User["volumeID"], Name: o.VolumeName}, nil
		}},
	}}
}

// call makes a callout as flexdriver hands it over.
func call(t *testing.T, c *controller.Controller, driver string, argv ...string) flex.DriverStatus {
	t.Helper()
	return callCtx(t.Context(), t, c, driver, argv...)
}

func callCtx(ctx context.Context, t *testing.T, c *controller.Controller, driver string, argv ...string) flex.DriverStatus {
	t.Helper()
	d, err := c.Driver(driver)
	if err != nil {
		t.Fatal(err)
	}
	return flex.Run(ctx, d, argv)
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
