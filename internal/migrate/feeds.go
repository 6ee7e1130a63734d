package migrate

import (
	"context"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// feeds keep what the checks of a volume look through, so that a run lists it once and not for
// each volume: 10,000 volumes are tens of megabytes. A feed starts when it is first wanted.
//
// A feed may be behind. So what decides about one volume is still asked for: its
// PersistentVolume, its claim, and of its pods' nodes the Node, the VolumeAttachment and the
// report (world.near). Feeds tell of all others, where another client may create something a
// moment after the check as well; they have to be live for that. Any pod may be one of the
// volume's, so for pods the feed has to be current, or the namespace is listed.
type feeds struct {
	volumes     func() *objects.Feed[corev1.PersistentVolume]
	attachments func() *objects.Feed[storagev1.VolumeAttachment]
	nodes       func() *objects.Feed[corev1.Node]
	documents   func() *objects.Feed[corev1.ConfigMap]
	pods        func() *objects.Feed[corev1.Pod]
	csiNodes    func() *objects.Feed[storagev1.CSINode]
	csiDrivers  func() *objects.Feed[storagev1.CSIDriver]
	// many: there are enough volumes to list for them what is asked for by name else.
	many bool
}

// manyVolumes is from how many volumes on all pods are listed once, and not those of the
// namespace for each volume; and all CSINodes.
const manyVolumes = 10

// Watch has the planner, and the runner of which it is, keep up to date by watches what they
// would list for each volume, until ctx ends. Without the right to watch they list.
func (p *Planner) Watch(ctx context.Context) error {
	all, err := p.drivers()
	if err != nil {
		return err
	}
	p.feeds = &feeds{
		volumes: lazily(ctx, p, objects.PersistentVolumes(), "", all.sameVolume, cache.Indexers{
			isIndex: byAnnotation(isIndex), becomesIndex: byAnnotation(becomesIndex), shareIndex: byAnnotation(shareIndex),
		}),
		attachments: lazily(ctx, p, objects.VolumeAttachments(), "", trimmed(trimAttachment), nil),
		nodes:       lazily(ctx, p, objects.Nodes(), "", trimmed(trimNode), nil),
		documents:   lazily(ctx, p, objects.ConfigMaps(), bridgestatus.Namespace, objects.As[corev1.ConfigMap], nil),
		pods:        lazily(ctx, p, objects.Pods(), "", trimmed(trimPod), cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
		csiNodes:    lazily(ctx, p, objects.CSINodes(), "", objects.As[storagev1.CSINode], nil),
		csiDrivers:  lazily(ctx, p, objects.CSIDrivers(), "", objects.As[storagev1.CSIDriver], nil),
	}
	return nil
}

// lazily starts a feed when it is first wanted.
func lazily[T any](ctx context.Context, p *Planner, k objects.Kind[T], namespace string, read func(*unstructured.Unstructured) (*T, error), by cache.Indexers) func() *objects.Feed[T] {
	return sync.OnceValue(func() *objects.Feed[T] { return objects.NewFeed(ctx, p.Client, k, namespace, read, by) })
}

func (r *Runner) feeds() *feeds {
	if r.Planner == nil {
		return nil
	}
	return r.Planner.feeds
}

// expect prepares for so many volumes.
func (f *feeds) expect(volumes int) {
	if f != nil {
		f.many = volumes > manyVolumes
	}
}

// liveFeed returns the feed of a list; nil: there is none that may be used.
func liveFeed[T any](ctx context.Context, f *feeds, k objects.Kind[T], namespace string, o metav1.ListOptions) *objects.Feed[T] {
	if f == nil || o.LabelSelector+o.FieldSelector != "" {
		return nil
	}
	var feed any
	switch k.Resource.Resource + " " + namespace {
	case objects.VolumeAttachments().Resource.Resource + " ":
		feed = f.attachments()
	case objects.Nodes().Resource.Resource + " ":
		feed = f.nodes()
	case objects.ConfigMaps().Resource.Resource + " " + bridgestatus.Namespace:
		feed = f.documents()
	case objects.CSINodes().Resource.Resource + " ":
		if f.many {
			feed = f.csiNodes()
		}
	case objects.CSIDrivers().Resource.Resource + " ":
		if f.many {
			feed = f.csiDrivers()
		}
	}
	if feed, ok := feed.(*objects.Feed[T]); ok && feed.Live(ctx) {
		return feed
	}
	return nil
}

// Indexes of the PersistentVolumes of a feed, by the CSI volume that each is or would become and
// by their share, and the annotations that have it there.
const (
	isIndex      = "is"
	becomesIndex = "becomes"
	shareIndex   = "share"
)

func byAnnotation(name string) cache.IndexFunc {
	return func(o any) ([]string, error) {
		pv, ok := o.(*corev1.PersistentVolume)
		if !ok || pv.Annotations[name] == "" {
			return nil, nil
		}
		return []string{pv.Annotations[name]}, nil
	}
}

// sameVolume keeps of a PersistentVolume which CSI volume it is or would become.
func (d *drivers) sameVolume(u *unstructured.Unstructured) (*corev1.PersistentVolume, error) {
	o, err := asVolume(u)
	if err != nil {
		return nil, err
	}
	h := newHandles()
	h.add(context.Background(), d, o)
	keep := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: o.Name, ResourceVersion: o.ResourceVersion, Annotations: map[string]string{}}}
	for key := range h.are {
		keep.Annotations[isIndex] = key.String()
	}
	for key := range h.become {
		keep.Annotations[becomesIndex] = key.String()
	}
	for share := range h.shares {
		keep.Annotations[shareIndex] = share
	}
	return keep, nil
}

// trimmed reads an object, and leaves out what no check looks at.
func trimmed[T any](trim func(*T)) func(*unstructured.Unstructured) (*T, error) {
	return func(u *unstructured.Unstructured) (*T, error) {
		o, err := objects.As[T](u)
		if err == nil {
			trim(o)
		}
		return o, err
	}
}

func trimAttachment(o *storagev1.VolumeAttachment) {
	o.Annotations, o.Finalizers, o.Status.AttachmentMetadata = nil, nil, nil
	if spec := o.Spec.Source.InlineVolumeSpec; spec != nil && spec.CSI != nil {
		o.Spec.Source.InlineVolumeSpec = &corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: spec.CSI.Driver, VolumeHandle: spec.CSI.VolumeHandle},
		}}
	}
}

func trimNode(o *corev1.Node) {
	o.Labels, o.Annotations = nil, map[string]string{objects.ControllerAttaches: o.Annotations[objects.ControllerAttaches]}
	o.Status = corev1.NodeStatus{Conditions: o.Status.Conditions, NodeInfo: o.Status.NodeInfo, VolumesAttached: o.Status.VolumesAttached, VolumesInUse: o.Status.VolumesInUse}
}

// trimPod keeps who it is and of what, where it runs, and which claims it has.
func trimPod(o *corev1.Pod) {
	o.Labels, o.Annotations, o.Finalizers = nil, nil, nil
	o.Spec.Volumes = slices.DeleteFunc(o.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim == nil && v.Ephemeral == nil })
	o.Spec = corev1.PodSpec{
		NodeName: o.Spec.NodeName, Volumes: o.Spec.Volumes, ServiceAccountName: o.Spec.ServiceAccountName,
		TerminationGracePeriodSeconds: o.Spec.TerminationGracePeriodSeconds, SecurityContext: o.Spec.SecurityContext,
	}
	o.Status = corev1.PodStatus{Phase: o.Status.Phase, Conditions: o.Status.Conditions}
}
