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

// An object is one of Kubernetes.
type object interface {
	metav1.Object
	runtime.Object
}

// lister is what a mirror wants of a client.
type lister[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// A mirror is a copy in memory of some objects, which a watch keeps up to date.
// While the API server is away it is what it was.
type mirror[T object] struct {
	store      cache.Store
	controller cache.Controller
	bells      bells
	// live is false while the watch cannot be begun: what is in the mirror may
	// be old, and nobody is told of news.
	live atomic.Bool
	// deaf is since when that is so, in Unix nanoseconds; 0: it is not.
	deaf atomic.Int64
}

// hears notes whether the watch is under way.
func (m *mirror[T]) hears(yes bool) {
	if m.live.Store(yes); yes {
		m.deaf.Store(0)
	} else {
		m.deaf.CompareAndSwap(0, time.Now().UnixNano())
	}
}

// lately reports whether what is in the mirror was so a moment ago. Nobody takes
// a volume off a node by force as fast as that (controller.Verdict.grace).
func (m *mirror[T]) lately() bool {
	const moment = time.Minute
	return m.live.Load() || time.Since(time.Unix(0, m.deaf.Load())) < moment
}

// newMirror makes the mirror of what the selectors find. Trim takes off what
// nobody looks at; changed, if it is there, is told of each change.
func newMirror[T object, L runtime.Object](client lister[L], selected metav1.ListOptions, kind T, trim func(T), changed func(o T, gone bool)) *mirror[T] {
	m := &mirror[T]{}
	with := func(o metav1.ListOptions) metav1.ListOptions {
		o.LabelSelector, o.FieldSelector = selected.LabelSelector, selected.FieldSelector
		return o
	}
	listWatch := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := client.List(ctx, with(o))
			if err != nil {
				m.hears(false)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := client.Watch(ctx, with(o))
			m.hears(err == nil)
			return w, err
		},
	}
	ring := func(o any, gone bool) {
		if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = last.Obj
		}
		if o, ok := o.(T); ok {
			m.bells.ring(o.GetName(), o.GetUID(), gone)
			if changed != nil {
				changed(o, gone)
			}
		}
	}
	m.store, m.controller = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: listWatch,
		ObjectType:    kind,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { ring(o, false) },
			UpdateFunc: func(_, o any) { ring(o, false) },
			DeleteFunc: func(o any) { ring(o, true) },
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

func (m *mirror[T]) run(ctx context.Context) { m.controller.RunWithContext(ctx) }

// synced reports whether all that there was has been seen once.
func (m *mirror[T]) synced() bool { return m.controller.HasSynced() }

// get returns an object that has no namespace. It belongs to the mirror.
func (m *mirror[T]) get(name string) (found T, ok bool) {
	o, ok, err := m.store.GetByKey(name)
	if err != nil || !ok {
		return found, false
	}
	found, ok = o.(T)
	return found, ok
}

// all returns every object. They belong to the mirror.
func (m *mirror[T]) all() []T {
	var all []T
	for _, o := range m.store.List() {
		if o, ok := o.(T); ok {
			all = append(all, o)
		}
	}
	return all
}

// bells wake those who wait for news of an object.
type bells struct {
	mu      sync.Mutex
	waiting map[string]map[*listener]bool
}

// A listener is woken by news of the objects of one name.
type listener struct {
	news chan struct{} // has room for one: there is something new

	mu   sync.Mutex
	gone map[types.UID]bool
}

func newListener() *listener {
	return &listener{news: make(chan struct{}, 1), gone: map[types.UID]bool{}}
}

// isGone reports whether an object was seen to vanish.
func (l *listener) isGone(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gone[uid]
}

func (l *listener) ring(uid types.UID, gone bool) {
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

// listen has l woken by news of the objects of a name, until stop.
func (b *bells) listen(name string, l *listener) (stop func()) {
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

func (b *bells) ring(name string, uid types.UID, gone bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for l := range b.waiting[name] {
		l.ring(uid, gone)
	}
}
