package kube

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// An object is a Kubernetes object.
type object interface {
	metav1.Object
	runtime.Object
}

// lister is a client of an informer.
type lister[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// An informer caches some objects, and keeps them up to date with a watch. While the
// API server is unavailable it keeps its last state.
type informer[T object] struct {
	store      cache.Store
	controller cache.Controller
	notifier   notifier
	// live is false while no watch runs: the cache may be stale, and listeners are not
	// notified.
	live atomic.Bool
	// staleSince is when live became false, in Unix nanoseconds; 0: it is true.
	staleSince atomic.Int64
	// watchedSince is when the watch was started last, in Unix nanoseconds.
	watchedSince atomic.Int64
}

// watching notes whether the watch runs.
func (m *informer[T]) watching(yes bool) {
	if m.live.Store(yes); yes {
		m.staleSince.Store(0)
		m.watchedSince.Store(time.Now().UnixNano())
	} else {
		m.staleSince.CompareAndSwap(0, time.Now().UnixNano())
	}
}

// lately reports whether the cache was up to date a moment ago. No force detach is as
// fast as that (controller.State.grace).
func (m *informer[T]) lately() bool {
	const moment = time.Minute
	return m.live.Load() || time.Since(time.Unix(0, m.staleSince.Load())) < moment
}

// upToDate reports whether a watch keeps the cache up to date.
func (m *informer[T]) upToDate() bool { return m.synced() && m.live.Load() }

// settled reports whether the cache is up to date. A watch that has just been started may
// still replay what happened before.
func (m *informer[T]) settled() bool {
	const replay = 15 * time.Second
	return m.upToDate() && time.Since(time.Unix(0, m.watchedSince.Load())) > replay
}

// newInformer returns the informer of the selected objects. Trim removes fields that
// are not needed; changed, if set, is called for each change.
func newInformer[T object, L runtime.Object](client lister[L], selected metav1.ListOptions, kind T, trim func(T), changed func(o T, gone bool)) *informer[T] {
	m := &informer[T]{}
	with := func(o metav1.ListOptions) metav1.ListOptions {
		o.LabelSelector, o.FieldSelector = selected.LabelSelector, selected.FieldSelector
		return o
	}
	listWatch := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := client.List(ctx, with(o))
			if err != nil {
				m.watching(false)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := client.Watch(ctx, with(o))
			m.watching(err == nil)
			if err != nil {
				return nil, err
			}
			return m.relay(w), nil
		},
	}
	notify := func(o any, gone bool) {
		if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = last.Obj
		}
		if o, ok := o.(T); ok {
			m.notifier.notify(o.GetName(), o.GetUID(), gone)
			if changed != nil {
				changed(o, gone)
			}
		}
	}
	m.store, m.controller = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: listWatch,
		ObjectType:    kind,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { notify(o, false) },
			UpdateFunc: func(_, o any) { notify(o, false) },
			DeleteFunc: func(o any) { notify(o, true) },
		},
		Transform: func(o any) (any, error) {
			if o, ok := o.(T); ok {
				o.SetManagedFields(nil)
				trim(o)
			}
			return o, nil
		},
	})
	return m
}

// relay passes on what a watch says, and notes its end before the reflector hears of it, which
// then waits a second and more before it starts the next one.
func (m *informer[T]) relay(from watch.Interface) watch.Interface {
	events := make(chan watch.Event)
	to := watch.NewProxyWatcher(events)
	go func() {
		defer close(events)
		defer from.Stop()
		for {
			select {
			case e, ok := <-from.ResultChan():
				if !ok || e.Type == watch.Error {
					m.watching(false)
				}
				if !ok {
					return
				}
				select {
				case events <- e:
				case <-to.StopChan():
					return
				}
			case <-to.StopChan():
				return
			}
		}
	}()
	return to
}

func (m *informer[T]) run(ctx context.Context) { m.controller.RunWithContext(ctx) }

// synced reports whether the first list is complete.
func (m *informer[T]) synced() bool { return m.controller.HasSynced() }

// get returns a cluster-scoped object. It belongs to the informer.
func (m *informer[T]) get(name string) (found T, ok bool) {
	o, ok, err := m.store.GetByKey(name)
	if err != nil || !ok {
		return found, false
	}
	found, ok = o.(T)
	return found, ok
}

// all returns all objects. They belong to the informer.
func (m *informer[T]) all() []T {
	var all []T
	for _, o := range m.store.List() {
		if o, ok := o.(T); ok {
			all = append(all, o)
		}
	}
	return all
}

// A notifier wakes the listeners of an object.
type notifier struct {
	mu      sync.Mutex
	waiting map[string]map[*listener]bool
}

// A listener is woken by changes of the objects of one name.
type listener struct {
	news chan struct{} // capacity 1: something has changed

	mu   sync.Mutex
	gone map[types.UID]bool
}

func newListener() *listener {
	return &listener{news: make(chan struct{}, 1), gone: map[types.UID]bool{}}
}

// isGone reports whether the deletion of an object was seen.
func (l *listener) isGone(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gone[uid]
}

func (l *listener) notify(uid types.UID, gone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if gone {
		l.gone[uid] = true
	}
	select {
	case l.news <- struct{}{}:
	default:
	}
}

// listen wakes l at changes of the objects of a name, until stop.
func (b *notifier) listen(name string, l *listener) (stop func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting == nil {
		b.waiting = map[string]map[*listener]bool{}
	}
	if b.waiting[name] == nil {
		b.waiting[name] = map[*listener]bool{}
	}
	b.waiting[name][l] = true
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.waiting[name], l)
		if len(b.waiting[name]) == 0 {
			delete(b.waiting, name)
		}
	}
}

func (b *notifier) notify(name string, uid types.UID, gone bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for l := range b.waiting[name] {
		l.notify(uid, gone)
	}
}

// starter is an informer of any kind.
type starter interface{ run(ctx context.Context) }

// keep runs an informer as long as Run.
func (c *Cluster) keep(m starter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ctx == nil:
		c.informers = append(c.informers, m)
	case !c.over:
		ctx := c.ctx
		c.running.Go(func() { m.run(ctx) })
	}
}
