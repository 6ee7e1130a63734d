package kube

import (
	"context"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/flex2csi/flex2csi/internal/objects"
)

// An object is a Kubernetes object.
type object interface {
	metav1.Object
	runtime.Object
}

// listWatcher is a client of an informer.
type listWatcher[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// An informer is client-go's, which knows whether its watch runs. While the API server is
// unavailable it keeps its last state.
type informer struct {
	cache.SharedIndexInformer
	objects.Liveness
	selector labels.Selector
	idle     *time.Timer     // stops it when it was not used for a while; nil: it is always used
	used     context.Context //nolint:containedctx // until stop
	stop     context.CancelFunc
}

// newInformer returns the informer of the selected objects. Trim, if set, removes fields that
// are not needed.
func newInformer[T object, L runtime.Object](client listWatcher[L], selected metav1.ListOptions, kind T, indexers cache.Indexers, trim func(T)) *informer {
	m := &informer{}
	m.used, m.stop = context.WithCancel(context.Background())
	with := func(o metav1.ListOptions) metav1.ListOptions {
		o.LabelSelector, o.FieldSelector = selected.LabelSelector, selected.FieldSelector
		return o
	}
	listWatch := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := client.List(ctx, with(o))
			if err != nil {
				m.Fail()
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := client.Watch(ctx, with(o))
			if err != nil {
				m.Fail()
				return nil, err
			}
			return m.Relay(w, o, func(e watch.Event) watch.Event { return e }), nil
		},
	}
	m.SharedIndexInformer = cache.NewSharedIndexInformerWithOptions(listWatch, kind, cache.SharedIndexInformerOptions{Indexers: indexers})
	_ = m.SetTransform(func(o any) (any, error) { // it fails after the start
		if o, ok := o.(T); ok {
			o.SetManagedFields(nil)
			if trim != nil {
				trim(o)
			}
		}
		return o, nil
	})
	return m
}

func (m *informer) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(m.used, cancel)()
	m.RunWithContext(ctx)
}

func (m *informer) isLive() bool {
	live, _ := m.Live()
	return live && m.HasSynced()
}

// wasLive reports whether the cache was up to date a moment ago. No force detach is as fast
// as that (controller.State.grace).
func (m *informer) wasLive() bool {
	const moment = time.Minute
	live, since := m.Live()
	return live || time.Since(since) < moment
}

// isSettled reports whether the cache is up to date. A watch that has just been started may
// still replay what happened before.
func (m *informer) isSettled() bool {
	const replay = 15 * time.Second
	_, since := m.Live()
	return m.isLive() && time.Since(since) > replay
}

// attachments is the cache. Its objects belong to the informer.
func (m *informer) attachments() storagelisters.VolumeAttachmentLister {
	return storagelisters.NewVolumeAttachmentLister(m.GetIndexer())
}

// hasSeen reports whether the cache is as new as an object that the informer selects.
func (m *informer) hasSeen(o *storagev1.VolumeAttachment) bool {
	return m.selector.Matches(labels.Set(o.Labels)) && isAsNew(m.GetStore().LastStoreSyncResourceVersion(), o.ResourceVersion)
}

// isAsNew compares resource versions.
func isAsNew(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order >= 0
}

// A signal wakes all that wait for it.
type signal struct {
	mu     sync.Mutex
	waiter chan struct{}
}

// next returns a channel that the next broadcast closes.
func (s *signal) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiter == nil {
		s.waiter = make(chan struct{})
	}
	return s.waiter
}

func (s *signal) broadcast() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiter != nil {
		close(s.waiter)
		s.waiter = nil
	}
}

// keep runs a function from Run until its end, or from now on.
func (c *Cluster) keep(run func(context.Context)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ctx == nil:
		c.background = append(c.background, run)
	case !c.over:
		ctx := c.ctx
		c.running.Go(func() { run(ctx) })
	}
}
