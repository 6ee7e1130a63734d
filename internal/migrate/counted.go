package migrate

import (
	"context"
	"sync/atomic"

	"github.com/flex2csi/flex2csi/internal/clusterview"
)

// counted counts the requests that are made for one volume.
type counted struct {
	Cluster
	requests atomic.Int64
}

// GetObject is a request.
func (c *counted) GetObject(ctx context.Context, r clusterview.Resource, namespace, name string) ([]byte, error) {
	c.requests.Add(1)
	return c.Cluster.GetObject(ctx, r, namespace, name)
}

// ListObjects is one request, or some if the list is long.
func (c *counted) ListObjects(ctx context.Context, r clusterview.Resource, s clusterview.Selector) ([][]byte, error) {
	c.requests.Add(1)
	return c.Cluster.ListObjects(ctx, r, s)
}

// DryRunCreate is a request.
func (c *counted) DryRunCreate(ctx context.Context, r clusterview.Resource, namespace, name string, object []byte) ([]byte, bool, error) {
	c.requests.Add(1)
	return c.Cluster.DryRunCreate(ctx, r, namespace, name, object)
}

// May is a request.
func (c *counted) May(ctx context.Context, a clusterview.Access) (bool, error) {
	c.requests.Add(1)
	return c.Cluster.May(ctx, a)
}

// CreateObject is a request.
func (c *counted) CreateObject(ctx context.Context, r clusterview.Resource, namespace string, object []byte) ([]byte, error) {
	c.requests.Add(1)
	return c.Cluster.CreateObject(ctx, r, namespace, object)
}

// DeleteObject is a request.
func (c *counted) DeleteObject(ctx context.Context, r clusterview.Resource, namespace, name string, p clusterview.Preconditions) error {
	c.requests.Add(1)
	return c.Cluster.DeleteObject(ctx, r, namespace, name, p)
}

// PatchObject is a request.
func (c *counted) PatchObject(ctx context.Context, r clusterview.Resource, namespace, name string, kind clusterview.PatchKind, patch []byte) ([]byte, error) {
	c.requests.Add(1)
	return c.Cluster.PatchObject(ctx, r, namespace, name, kind, patch)
}

// EvictPod is a request.
func (c *counted) EvictPod(ctx context.Context, namespace, name, uid string, dryRun bool) error {
	c.requests.Add(1)
	return c.Cluster.EvictPod(ctx, namespace, name, uid, dryRun)
}

// WatchObject is a request.
func (c *counted) WatchObject(ctx context.Context, r clusterview.Resource, namespace, name string) (<-chan clusterview.Event, error) {
	c.requests.Add(1)
	return c.Cluster.WatchObject(ctx, r, namespace, name)
}
