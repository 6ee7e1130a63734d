package controller_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/controller"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// A cluster is a fake with the answers that a test chooses. Tests with a real cluster
// are in test/cluster.
type cluster struct {
	mu          sync.Mutex
	attachments map[string]storagev1.VolumeAttachment
	nodes       map[string]corev1.Node
	pods        map[string][]corev1.Pod
	volumes     map[string]csivol.PersistentVolume
	err         error // of all questions
	failAt      int   // the question of this number is not answered
	asked       int
	podsOf      int    // how many of them were for pods
	stale       bool   // a PersistentVolume was wanted that need not be fresh
	foreign     bool   // attachments of others were wanted, too
	onList      func() // called with each list of attachments
	onPods      func() // called with each question for pods
	attachErr   error
	attachedAs  *csivol.Attached // what Attach returns then
	attaching   chan struct{}    // Attach waits for it
	unknown     bool             // nothing has been seen yet
}

const (
	csiDriver  = "disk.csi.example.com"
	flexDriver = "example.com/disk"
)

func newCluster() *cluster {
	return &cluster{
		attachments: map[string]storagev1.VolumeAttachment{},
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
func old(node, by string) *storagev1.VolumeAttachment {
	return made(&csivol.Attachment{Driver: csiDriver, Handle: "vol", Node: node, FlexDriver: flexDriver, Name: "pv", Pod: csivol.Pod{Namespace: "shop", Name: "cart-0"}}, by, time.Now().Add(-time.Hour))
}

// made is one as internal/kube makes it, attached.
func made(a *csivol.Attachment, by string, at time.Time) *storagev1.VolumeAttachment {
	name := objects.AttachmentName(a.Handle, a.Driver, a.Node)
	o := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(at),
			Labels:      map[string]string{objects.ManagedByLabel: objects.ManagedBy, objects.AttachedByLabel: by},
			Annotations: map[string]string{objects.FlexDriverAnnotation: a.FlexDriver, objects.PersistentVolumeAnnotation: a.Name, objects.PodAnnotation: a.Pod.Namespace + "/" + a.Pod.Name},
		},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: a.Driver, NodeName: a.Node, Source: storagev1.VolumeAttachmentSource{
			InlineVolumeSpec: &corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: a.Driver, VolumeHandle: a.Handle},
			}},
		}},
		Status: storagev1.VolumeAttachmentStatus{Attached: true},
	}
	for _, mode := range a.AccessModes {
		o.Spec.Source.InlineVolumeSpec.AccessModes = append(o.Spec.Source.InlineVolumeSpec.AccessModes, corev1.PersistentVolumeAccessMode(mode))
	}
	return o
}

func (c *cluster) put(o *storagev1.VolumeAttachment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attachments[o.Name] = *o
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
	if c.asked == c.failAt {
		return flex.Errorf(flex.CodeUnavailable, "the API server is away")
	}
	return c.err
}

func (c *cluster) ListAttachments(_ context.Context, ours bool) (all []storagev1.VolumeAttachment, err error) {
	err = c.ask()
	c.foreign = c.foreign || !ours
	if c.onList != nil {
		c.onList()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.attachments {
		all = append(all, a)
	}
	return all, err
}

func (c *cluster) FindAttachments(ctx context.Context, pv, node string) ([]storagev1.VolumeAttachment, error) {
	all, err := c.ListAttachments(ctx, true)
	return slices.DeleteFunc(all, func(a storagev1.VolumeAttachment) bool {
		return objects.AttachmentPersistentVolume(&a) != pv || a.Spec.NodeName != node
	}), err
}

func (c *cluster) GetAttachment(_ context.Context, name string) (*storagev1.VolumeAttachment, error) {
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
	c.mu.Lock()
	c.podsOf++ // by several sweeps at once
	c.mu.Unlock()
	if c.onPods != nil {
		c.onPods()
	}
	return c.pods[node], c.ask()
}

func (c *cluster) PersistentVolume(_ context.Context, name string, fresh bool) (*csivol.PersistentVolume, error) {
	c.mu.Lock()
	c.stale = c.stale || !fresh
	c.mu.Unlock()
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
	if c.attachedAs != nil {
		return *c.attachedAs, c.attachErr
	}
	if c.attachErr != nil {
		return csivol.Attached{}, c.attachErr
	}
	name := objects.AttachmentName(a.Handle, a.Driver, a.Node)
	c.mu.Lock()
	known, ok := c.attachments[name]
	c.mu.Unlock()
	if ok {
		return csivol.Attached{Object: name, Ours: true, Name: objects.AttachmentPersistentVolume(&known)}, nil
	}
	c.put(made(a, objects.AttachedByController, time.Now()))
	return csivol.Attached{Object: name, Ours: true, Name: a.Name}, nil
}

func (c *cluster) Detach(_ context.Context, a *csivol.Attachment) error {
	if err := c.ask(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.attachments, objects.AttachmentName(a.Handle, a.Driver, a.Node))
	return nil
}

func (c *cluster) Lost(a *csivol.Attachment) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unknown {
		return false, flex.Errorf(flex.CodeUnavailable, "nothing has been seen yet")
	}
	return !c.attachments[objects.AttachmentName(a.Handle, a.Driver, a.Node)].Status.Attached, nil
}

// newController answers for one driver.
func newController(c *cluster) *controller.Controller {
	return &controller.Controller{Attacher: c, Cluster: c, Drivers: bridge.Drivers{All: []*bridge.FlexDriver{
		{Name: flexDriver, CSIDriver: csiDriver, Map: func(_ context.Context, o flex.Options) (*csivol.Volume, error) {
			return &csivol.Volume{FlexDriver: flexDriver, Driver: csiDriver, Handle: o.User["volumeID"], Name: o.VolumeName}, nil
		}},
	}}}
}

// call makes a callout as flexdriver hands it over.
func call(t *testing.T, c *controller.Controller, driver string, argv ...string) flex.DriverStatus {
	t.Helper()
	return callCtx(t.Context(), t, c, driver, argv...)
}

func callCtx(ctx context.Context, t *testing.T, c *controller.Controller, driver string, argv ...string) flex.DriverStatus {
	t.Helper()
	d, err := c.Callouts(driver)
	if err != nil {
		t.Fatal(err)
	}
	return flex.Run(ctx, d, argv)
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
