package migrate

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/nodevolumes"
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
}

func newWorld(c *objects.Client) *world {
	return &world{client: c, read: map[string]any{}, bridges: map[string]*bridgeOf{}}
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
	return once(w, fmt.Sprintf("%s %s/%s", k.Resource, namespace, name), func() (*T, error) { return k.Get(ctx, w.client, namespace, name) })
}

// listed returns the objects that are selected.
func listed[T any](ctx context.Context, w *world, k objects.Kind[T], namespace string, o metav1.ListOptions) ([]*T, error) {
	return once(w, fmt.Sprintf("%s %s?%s&%s", k.Resource, namespace, o.LabelSelector, o.FieldSelector), func() ([]*T, error) {
		return k.List(ctx, w.client, namespace, o)
	})
}

// every returns all objects of a kind.
func every[T any](ctx context.Context, w *world, k objects.Kind[T]) ([]*T, error) {
	return listed(ctx, w, k, "", metav1.ListOptions{})
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
func (w *world) volumes(ctx context.Context, labels string) ([]*volume, error) {
	return once(w, "volumes "+labels, func() ([]*volume, error) {
		found, err := w.client.List(ctx, objects.PersistentVolumes().Resource, "", metav1.ListOptions{LabelSelector: labels})
		if err != nil {
			return nil, err
		}
		volumes := make([]*volume, 0, len(found))
		for _, o := range found {
			v, err := asVolume(o)
			if err != nil {
				return nil, err
			}
			volumes = append(volumes, v)
		}
		return volumes, nil
	})
}

// bridgeOf is what the bridge of a node says.
type bridgeOf struct {
	document *nodevolumes.Document // nil: nothing
	problem  string                // why it cannot be read
}

// documents are what the bridges of all nodes say. Kubernetes puts a
// kube-root-ca.crt into each namespace, which says nothing.
func (w *world) documents(ctx context.Context) ([]*corev1.ConfigMap, error) {
	found, err := listed(ctx, w, objects.ConfigMaps(), nodevolumes.Namespace, metav1.ListOptions{})
	return slices.DeleteFunc(slices.Clone(found), func(o *corev1.ConfigMap) bool {
		_, labelled := o.Labels[nodevolumes.Label]
		_, has := o.Data[nodevolumes.Key]
		return !labelled && !has
	}), err
}

// served reports whether the bridge of any node serves a FlexVolume driver, or
// none says what it serves.
func (w *world) served(ctx context.Context, flexDriver string) (bool, error) {
	all, err := w.documents(ctx)
	return len(all) == 0 || slices.ContainsFunc(all, func(o *corev1.ConfigMap) bool {
		d, err := nodevolumes.Decode(o.Data[nodevolumes.Key])
		return err == nil && d.Serves(flexDriver)
	}), err
}

// stages reports whether a CSI driver is known to stage volumes, on any node: the API
// does not tell.
func (w *world) stages(ctx context.Context, csiDriver string) (bool, error) {
	all, err := w.documents(ctx)
	return slices.ContainsFunc(all, func(o *corev1.ConfigMap) bool {
		d, err := nodevolumes.Decode(o.Data[nodevolumes.Key])
		return err == nil && d.Stages(csiDriver)
	}), err
}

// ofThisBoot: what was told before a node was started is not so any more.
func ofThisBoot(d *nodevolumes.Document, node *corev1.Node) bool {
	return d.BootID == node.Status.NodeInfo.BootID
}

// bridge returns what the bridge of a node says.
func (w *world) bridge(ctx context.Context, node string) *bridgeOf {
	if b, ok := w.bridges[node]; ok {
		return b
	}
	b := &bridgeOf{}
	w.bridges[node] = b
	o, err := get(ctx, w, objects.ConfigMaps(), nodevolumes.Namespace, node)
	if err == nil && o != nil {
		b.document, err = nodevolumes.Decode(o.Data[nodevolumes.Key])
	}
	switch {
	case err != nil:
		b.problem = err.Error()
	case b.document != nil && b.document.Node != node:
		b.problem, b.document = "it is that of node "+b.document.Node, nil
	}
	return b
}
