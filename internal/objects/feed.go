package objects

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const (
	// feedFor is after how long the API server ends a watch. The next one goes on from where that
	// was: so it shows each minute that it still answers, also of a resource that never changes,
	// and without bookmarks.
	feedFor = time.Minute
	// silence is how long a watch may say nothing.
	silence = 2 * feedFor
	// catchUp is how long Current waits for a watch. A resource that changes all the time is
	// there in milliseconds, another one with the next bookmark.
	catchUp = 2 * time.Second
)

// A Feed keeps the objects of a resource up to date with one list and a watch, by client-go's
// reflector. Of each object it keeps what read leaves of it.
//
// It may be behind the API server, which it says itself: Live, that its watch runs and was heard
// within two minutes, is enough where a later look decides or where a race with another client
// is there anyway. Current, that it has all that the API server had when it was asked, is what a
// decision wants that nothing repeats. Where the answer is no, the caller asks the API server.
type Feed[T any] struct {
	cache.Indexer

	client    *Client
	kind      Kind[T]
	namespace string
	read      func(*unstructured.Unstructured) (*T, error)
	reflector *cache.Reflector
	stop      context.CancelFunc
	first     context.Context // done when the first watch has begun, has failed, or takes too long
	begun     context.CancelFunc
	heard     atomic.Pointer[atomic.Int64] // when this watch was heard last, in Unix nanoseconds; 0: it does not run
}

// NewFeed starts a feed, which ends with ctx, or where the client has no right to list or watch.
// Namespace empty: objects of all namespaces.
func NewFeed[T any](ctx context.Context, c *Client, k Kind[T], namespace string, read func(*unstructured.Unstructured) (*T, error), indexers cache.Indexers) *Feed[T] {
	ctx, stop := context.WithCancel(klog.NewContext(ctx, logr.Discard())) // callers see for themselves
	f := &Feed[T]{
		Indexer: cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers),
		client:  c, kind: k, namespace: namespace, read: read, stop: stop,
	}
	f.heard.Store(new(atomic.Int64))
	f.first, f.begun = context.WithTimeout(ctx, RequestTimeout)
	f.reflector = cache.NewReflectorWithOptions(feeder[T]{f}, new(T), f.Indexer, cache.ReflectorOptions{Name: k.Resource.Resource})
	go f.reflector.RunWithContext(ctx)
	return f
}

// Live reports whether the feed may be used. It waits for the first list, but not for longer than
// for an answer of the API server: the caller may have a volume that is absent.
func (f *Feed[T]) Live(ctx context.Context) bool {
	select {
	case <-f.first.Done():
	case <-ctx.Done():
	}
	return f.reflector.LastSyncResourceVersion() != "" && time.Since(time.Unix(0, f.heard.Load().Load())) < silence
}

// Current reports whether the feed has all that the API server has now: a list of nothing, which
// is not answered from a cache, says how new that is. Objects of one namespace are asked about
// where namespace is not empty.
func (f *Feed[T]) Current(ctx context.Context, c *Client, namespace string) bool {
	if !f.Live(ctx) {
		return false
	}
	nothing, err := request(ctx, c, "list "+f.kind.Resource.Resource, func(ctx context.Context) (*unstructured.UnstructuredList, error) {
		return c.resource(f.kind.Resource, namespace).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, "flex2csi-none").String()})
	})
	if err != nil {
		return false
	}
	for until := time.Now().Add(catchUp); ; {
		newer, err := resourceversion.CompareResourceVersion(f.reflector.LastSyncResourceVersion(), nothing.GetResourceVersion())
		if err != nil || newer >= 0 {
			return err == nil && f.Live(ctx)
		}
		if ctx.Err() != nil || time.Now().After(until) {
			return false
		}
		time.Sleep(catchUp / 100)
	}
}

// Version returns a resourceVersion that the feed has come to.
func (f *Feed[T]) Version() string { return f.reflector.LastSyncResourceVersion() }

// All returns all objects. They belong to the feed.
func (f *Feed[T]) All() []*T { return typed[T](f.List()) }

// By returns the objects with a value of an index. They belong to the feed.
func (f *Feed[T]) By(index, value string) []*T {
	all, err := f.ByIndex(index, value)
	if err != nil {
		panic(err) // there is no such index
	}
	return typed[T](all)
}

// Find returns an object; nil if the feed has none. It belongs to the feed.
func (f *Feed[T]) Find(namespace, name string) *T {
	o, _, _ := f.GetByKey(cache.ObjectName{Namespace: namespace, Name: name}.String())
	found, _ := o.(*T)
	return found
}

func typed[T any](objects []any) []*T {
	all := make([]*T, 0, len(objects))
	for _, o := range objects {
		if o, ok := o.(*T); ok {
			all = append(all, o)
		}
	}
	return all
}

// feeder is what the reflector reads from: pages of a list, of which only one is in memory with
// all its fields, and a watch from there on. A stream in place of the list (sendInitialEvents)
// would save nothing here, and API servers before 1.27 never end it.
type feeder[T any] struct{ f *Feed[T] }

// IsWatchListSemanticsUnSupported has the reflector list.
func (feeder[T]) IsWatchListSemanticsUnSupported() bool { return true }

func (l feeder[T]) List(o metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(context.Background(), o)
}

// ListWithContext lists what is there now, whichever version is asked for.
func (l feeder[T]) ListWithContext(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	list := &metainternal.List{}
	version, err := l.f.client.each(ctx, l.f.kind.Resource, l.f.namespace, metav1.ListOptions{}, func(u *unstructured.Unstructured) error {
		o, err := l.f.object(u)
		list.Items = append(list.Items, o)
		return err
	})
	if err == nil && version == "" {
		err = errNoVersion
	}
	if err != nil {
		l.f.fail(err)
		return nil, err
	}
	list.ResourceVersion = version
	return list, nil
}

func (l feeder[T]) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(context.Background(), o)
}

// WatchWithContext is also the first to know that there is no right to watch.
func (l feeder[T]) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.TimeoutSeconds = new(int64(feedFor.Seconds()))
	w, end, err := l.f.client.watch(ctx, l.f.kind.Resource, l.f.namespace, o)
	if err != nil {
		l.f.fail(err)
		return nil, err
	}
	heard := new(atomic.Int64)
	heard.Store(time.Now().UnixNano())
	l.f.heard.Store(heard)
	l.f.begun()
	events := make(chan watch.Event)
	relay := watch.NewProxyWatcher(events)
	go func() {
		defer close(events)
		defer heard.Store(0) // before the reflector learns that it has ended
		defer end(nil)
		l.f.relay(w, relay, events, heard)
	}()
	return relay, nil
}

// relay passes on what a watch says until that ends, or the reflector stops it.
func (f *Feed[T]) relay(from watch.Interface, to *watch.ProxyWatcher, events chan<- watch.Event, heard *atomic.Int64) {
	for {
		select {
		case e, ok := <-from.ResultChan():
			if !ok {
				return
			}
			select {
			case events <- f.hear(e, heard):
			case <-to.StopChan():
				return
			}
		case <-to.StopChan():
			return
		}
	}
}

// hear reads an event. An error, and an object that cannot be read, end the watch.
func (f *Feed[T]) hear(e watch.Event, heard *atomic.Int64) watch.Event {
	if u, ok := e.Object.(*unstructured.Unstructured); ok && e.Type != watch.Error {
		o, err := f.object(u)
		if err != nil {
			e = watch.Event{Type: watch.Error, Object: &metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}}
		} else {
			e.Object = o
		}
	}
	if e.Type == watch.Error {
		heard.Store(0)
	} else {
		heard.Store(time.Now().UnixNano())
	}
	return e
}

// object is what is kept.
func (f *Feed[T]) object(u *unstructured.Unstructured) (runtime.Object, error) {
	u.SetManagedFields(nil)
	o, err := f.read(u)
	if err != nil {
		return nil, err
	}
	object, ok := any(o).(runtime.Object)
	if !ok {
		return nil, fmt.Errorf("read %s: %T is no object", f.kind.Resource.Resource, o)
	}
	return object, nil
}

// errNoVersion: a watch could not go on from such a list.
var errNoVersion = errors.New("the list has no resourceVersion")

// fail notes that there is no watch: callers ask the API server until there is one.
func (f *Feed[T]) fail(err error) {
	f.heard.Store(new(atomic.Int64))
	f.begun()
	if apierrors.IsForbidden(err) || errors.Is(err, errNoVersion) { // the next try would end as this one
		f.stop()
	}
}
