package migrate

import (
	"context"
	"fmt"
	"slices"

	"github.com/flex2csi/flex2csi/internal/clusterview"
	"github.com/flex2csi/flex2csi/internal/nodevolumes"
)

// world is what was read of the cluster for one plan, each object once: so all
// volumes are judged by the same picture.
type world struct {
	reader Reader
	// untried is why the API server is not asked about replacements; empty: it is.
	untried string

	got     map[string]*Object   // by path; nil: there is none
	listed  map[string][]*Object // by path and selector
	bridges map[string]*bridgeOf // by node
}

func newWorld(r Reader) *world {
	return &world{reader: r, got: map[string]*Object{}, listed: map[string][]*Object{}, bridges: map[string]*bridgeOf{}}
}

// get returns an object; nil if there is none.
func (w *world) get(ctx context.Context, r clusterview.Resource, namespace, name string) (*Object, error) {
	key := r.Path(namespace) + "/" + name
	if o, ok := w.got[key]; ok {
		return o, nil
	}
	raw, err := w.reader.GetObject(ctx, r, namespace, name)
	if err != nil {
		return nil, err
	}
	var o *Object
	if raw != nil {
		if o, err = ParseObject(raw); err != nil {
			return nil, fmt.Errorf("read %s %s: %w", r.Name, name, err)
		}
	}
	w.got[key] = o
	return o, nil
}

// list returns the objects that are selected.
func (w *world) list(ctx context.Context, r clusterview.Resource, s clusterview.Selector) ([]*Object, error) {
	key := r.Path(s.Namespace) + "?" + s.Labels + "&" + s.Fields
	if all, ok := w.listed[key]; ok {
		return all, nil
	}
	raws, err := w.reader.ListObjects(ctx, r, s)
	if err != nil {
		return nil, err
	}
	all := make([]*Object, 0, len(raws))
	for _, raw := range raws {
		o, err := ParseObject(raw)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", r.Name, err)
		}
		all = append(all, o)
	}
	w.listed[key] = all
	return all, nil
}

func (w *world) all(ctx context.Context, r clusterview.Resource) ([]*Object, error) {
	return w.list(ctx, r, clusterview.Selector{})
}

// bridgeOf is what the bridge of a node says.
type bridgeOf struct {
	document *nodevolumes.Document // nil: nothing
	problem  string                // why it cannot be read
}

// documents are what the bridges of all nodes say. Kubernetes puts a
// kube-root-ca.crt into each namespace, which says nothing.
func (w *world) documents(ctx context.Context) ([]*Object, error) {
	all, err := w.list(ctx, configMaps(), clusterview.Selector{Namespace: nodevolumes.Namespace})
	return slices.DeleteFunc(slices.Clone(all), func(o *Object) bool {
		_, labelled := o.pairs("metadata", "labels")[nodevolumes.Label]
		return !labelled && !o.has("data", nodevolumes.Key)
	}), err
}

// served reports whether the bridge of any node serves a FlexVolume driver, or
// none says what it serves.
func (w *world) served(ctx context.Context, flexDriver string) (bool, error) {
	all, err := w.documents(ctx)
	return len(all) == 0 || slices.ContainsFunc(all, func(o *Object) bool {
		d, err := nodevolumes.Decode(o.text("data", nodevolumes.Key))
		return err == nil && d.Serves(flexDriver)
	}), err
}

// stages reports whether a CSI driver is known to stage volumes, on any node: the API
// does not tell.
func (w *world) stages(ctx context.Context, csiDriver string) (bool, error) {
	all, err := w.documents(ctx)
	return slices.ContainsFunc(all, func(o *Object) bool {
		d, err := nodevolumes.Decode(o.text("data", nodevolumes.Key))
		return err == nil && d.Stages(csiDriver)
	}), err
}

// ofThisBoot: what was told before a node was started is not so any more.
func ofThisBoot(d *nodevolumes.Document, node *Object) bool {
	return d.BootID == node.text("status", "nodeInfo", "bootID")
}

// bridge returns what the bridge of a node says.
func (w *world) bridge(ctx context.Context, node string) *bridgeOf {
	if b, ok := w.bridges[node]; ok {
		return b
	}
	b := &bridgeOf{}
	w.bridges[node] = b
	o, err := w.get(ctx, configMaps(), nodevolumes.Namespace, node)
	if err == nil && o != nil {
		b.document, err = nodevolumes.Decode(o.text("data", nodevolumes.Key))
	}
	switch {
	case err != nil:
		b.problem = err.Error()
	case b.document != nil && b.document.Node != node:
		b.problem, b.document = "it is that of node "+b.document.Node, nil
	}
	return b
}
