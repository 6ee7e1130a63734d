package migrate

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// world is what was read of the cluster for one plan, each object once: so all
// volumes are judged by the same picture.
type world struct {
	client *objects.Client
	// untried is why the API server is not asked about replacements; empty: it is.
	untried string
	// kept is the same of what removes the old volume.
	kept string
	// now is when the cluster is read.
	now time.Time

	read    map[string]any       // objects and lists, by path and selector
	bridges map[string]*bridgeOf // by node

	feeds *feeds // nil: there are none
	// decides: what is read decides about one volume, so no feed is believed about pods and about
	// what near names, by resource. A plan decides nothing, since apply looks again.
	decides bool
	near    map[string][]string
	// current: what feeds have of all objects has to be what is there now.
	current bool
	// inWindow: it takes less time to list than to wait for a feed.
	inWindow bool
}

// catchUp is how long a feed may take to have what the API server has.
func (w *world) catchUp() time.Duration {
	if w.inWindow {
		return 500 * time.Millisecond
	}
	return 2 * time.Second
}

// soonListed is up to how many objects are listed, and no feed is asked whether it is current: of
// more, some change all the time, by which it is soon known.
const soonListed = 50

func newWorld(c *objects.Client, f *feeds) *world {
	return &world{client: c, feeds: f, read: map[string]any{}, bridges: map[string]*bridgeOf{}}
}

// decideAbout has what the nodes of a volume's pods have of it read from the API server.
func (w *world) decideAbout(volume csivol.Key, nodes []string) {
	w.near = map[string][]string{objects.Nodes().Resource.Resource: nodes, objects.ConfigMaps().Resource.Resource: nodes}
	for _, node := range nodes {
		resource := objects.VolumeAttachments().Resource.Resource
		w.near[resource] = append(w.near[resource], objects.AttachmentName(volume.Handle, volume.Driver, node))
	}
}

// once reads something unless that was done.
func once[T any](w *world, key string, read func() (T, error)) (T, error) {
	if known, ok := w.read[key].(T); ok {
		return known, nil
	}
	value, err := read()
	if err == nil {
		w.read[key] = value
	}
	return value, err
}

// get returns an object; nil if there is none.
func get[T any](ctx context.Context, w *world, k objects.Kind[T], namespace, name string) (*T, error) {
	return once(w, fmt.Sprintf("%s %s/%s", k.Resource, namespace, name), func() (*T, error) {
		if slices.Contains(w.near[k.Resource.Resource], name) {
			return getPresent(ctx, w.client, w.feeds, k, namespace, name)
		}
		return getRecent(ctx, w.client, w.feeds, k, namespace, name)
	})
}

// getPresent returns an object as it is now; nil if there is none.
func getPresent[T any](ctx context.Context, c *objects.Client, f *feeds, k objects.Kind[T], namespace, name string) (*T, error) {
	if feed := liveFeed(ctx, f, k, namespace, metav1.ListOptions{}); feed != nil {
		return feed.Get(ctx, c, namespace, name)
	}
	return k.Get(ctx, c, namespace, name)
}

// getRecent returns an object as a feed has it, for what looks again later; nil if there is none.
func getRecent[T any](ctx context.Context, c *objects.Client, f *feeds, k objects.Kind[T], namespace, name string) (*T, error) {
	if feed := liveFeed(ctx, f, k, namespace, metav1.ListOptions{}); feed != nil {
		if o := feed.Find(namespace, name); o != nil {
			return o, nil
		}
	}
	return k.Get(ctx, c, namespace, name)
}

// listObjects returns the objects that are selected. They belong to a feed where there is one.
func listObjects[T any](ctx context.Context, w *world, k objects.Kind[T], namespace string, o metav1.ListOptions) ([]*T, error) {
	return once(w, fmt.Sprintf("%s %s?%s&%s", k.Resource, namespace, o.LabelSelector, o.FieldSelector), func() ([]*T, error) {
		f := liveFeed(ctx, w.feeds, k, namespace, o)
		if f != nil && (!w.current || (len(f.ListKeys()) > soonListed && f.Current(ctx, w.client, namespace, w.catchUp()))) {
			return rereadNear(ctx, w, k, namespace, f.All())
		}
		return k.List(ctx, w.client, namespace, o)
	})
}

// rereadNear returns what a feed has, and the objects that are near as they are now.
func rereadNear[T any](ctx context.Context, w *world, k objects.Kind[T], namespace string, all []*T) ([]*T, error) {
	names := w.near[k.Resource.Resource]
	all = slices.DeleteFunc(all, func(o *T) bool {
		object, ok := any(o).(metav1.Object)
		return ok && slices.Contains(names, object.GetName())
	})
	for _, name := range names {
		o, err := get(ctx, w, k, namespace, name)
		if err != nil {
			return nil, err
		}
		if o != nil {
			all = append(all, o)
		}
	}
	return all, nil
}

// podsOf returns the pods of a namespace.
func (w *world) podsOf(ctx context.Context, namespace string) ([]*corev1.Pod, error) {
	if w.feeds == nil || !w.feeds.many {
		return listObjects(ctx, w, objects.Pods(), namespace, metav1.ListOptions{})
	}
	const few = 10 // that an answer has is soon read
	f := w.feeds.pods()
	enough := f.Live(ctx)
	if w.decides && enough {
		enough = len(f.By(cache.NamespaceIndex, namespace)) > few && f.Current(ctx, w.client, namespace, w.catchUp())
	}
	if enough {
		return f.By(cache.NamespaceIndex, namespace), nil
	}
	return listObjects(ctx, w, objects.Pods(), namespace, metav1.ListOptions{})
}

// listAll returns all objects of a kind.
func listAll[T any](ctx context.Context, w *world, k objects.Kind[T]) ([]*T, error) {
	return listObjects(ctx, w, k, "", metav1.ListOptions{})
}

// volume returns a PersistentVolume; nil if there is none.
func (w *world) volume(ctx context.Context, name string) (*volume, error) {
	return once(w, "volume "+name, func() (*volume, error) { return getVolume(ctx, w.client, name) })
}

func getVolume(ctx context.Context, c *objects.Client, name string) (*volume, error) {
	o, err := c.Get(ctx, objects.PersistentVolumes().Resource, "", name)
	if o == nil || err != nil {
		return nil, err
	}
	return asVolume(o)
}

// volumes returns the PersistentVolumes with these labels; empty: all.
func (w *world) volumes(ctx context.Context, labels string) (all []*volume, err error) {
	err = w.eachVolume(ctx, labels, func(v *volume) { all = append(all, v) })
	return all, err
}

// eachVolume calls do with each of them, and keeps none.
func (w *world) eachVolume(ctx context.Context, labels string, do func(*volume)) error {
	return w.client.Each(ctx, objects.PersistentVolumes().Resource, "", metav1.ListOptions{LabelSelector: labels}, func(u *unstructured.Unstructured) error {
		v, err := asVolume(u)
		if err == nil {
			do(v)
		}
		return err
	})
}

// bridgeOf is what the bridge of a node says.
type bridgeOf struct {
	document *bridgestatus.NodeVolumes // nil: nothing
	problem  string                    // why it cannot be read
}

// documents are what the bridges of all nodes say. Kubernetes puts a
// kube-root-ca.crt into each namespace, which says nothing.
func (w *world) documents(ctx context.Context) ([]*corev1.ConfigMap, error) {
	found, err := listObjects(ctx, w, objects.ConfigMaps(), bridgestatus.Namespace, metav1.ListOptions{})
	return slices.DeleteFunc(slices.Clone(found), func(o *corev1.ConfigMap) bool {
		_, labelled := o.Labels[bridgestatus.Label]
		_, has := o.Data[bridgestatus.Key]
		return !labelled && !has
	}), err
}

// served reports whether the bridge of any node serves a FlexVolume driver, or
// none says what it serves.
func (w *world) served(ctx context.Context, flexDriver string) (bool, error) {
	all, err := w.documents(ctx)
	return len(all) == 0 || slices.ContainsFunc(all, func(o *corev1.ConfigMap) bool {
		d, err := bridgestatus.DecodeNodeVolumes(o.Data[bridgestatus.Key])
		return err == nil && d.Serves(flexDriver)
	}), err
}

// stages reports whether a CSI driver is known to stage volumes, on any node: the API
// does not tell.
func (w *world) stages(ctx context.Context, csiDriver string) (bool, error) {
	all, err := w.documents(ctx)
	return slices.ContainsFunc(all, func(o *corev1.ConfigMap) bool {
		d, err := bridgestatus.DecodeNodeVolumes(o.Data[bridgestatus.Key])
		return err == nil && d.Stages(csiDriver)
	}), err
}

// ofThisBoot: what was told before a node was started is not so any more.
func ofThisBoot(d *bridgestatus.NodeVolumes, node *corev1.Node) bool {
	return d.BootID == node.Status.NodeInfo.BootID
}

// bridge returns what the bridge of a node says.
func (w *world) bridge(ctx context.Context, node string) *bridgeOf {
	if b, ok := w.bridges[node]; ok {
		return b
	}
	b := &bridgeOf{}
	w.bridges[node] = b
	o, err := get(ctx, w, objects.ConfigMaps(), bridgestatus.Namespace, node)
	if err == nil && o != nil {
		b.document, err = bridgestatus.DecodeNodeVolumes(o.Data[bridgestatus.Key])
	}
	switch {
	case err != nil:
		b.problem = err.Error()
	case b.document != nil && b.document.Node != node:
		b.problem, b.document = "it is that of node "+b.document.Node, nil
	}
	return b
}
