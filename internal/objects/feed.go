package objects

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
	// relist is how old a list may get that takes the place of a watch.
	relist = 5 * time.Minute
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
	listing   sync.Mutex
	listed    time.Time   // when all were listed
	unwatched atomic.Bool // no client may watch
	liveness  Liveness
}

// NewFeed starts a feed, which ends with ctx, or where the client has no right to list or watch.
// Namespace empty: objects of all namespaces.
func NewFeed[T any](ctx context.Context, c *Client, k Kind[T], namespace string, read func(*unstructured.Unstructured) (*T, error), indexers cache.Indexers) *Feed[T] {
	ctx, stop := context.WithCancel(klog.NewContext(ctx, logr.Discard())) // callers see for themselves
	f := &Feed[T]{
		Indexer: cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers),
		client:  c, kind: k, namespace: namespace, read: read, stop: stop,
	}
	f.first, f.begun = context.WithTimeout(ctx, RequestTimeout)
	f.reflector = cache.NewReflectorWithOptions(f.listWatch(), new(T), f.Indexer, cache.ReflectorOptions{Name: k.Resource.Resource})
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
	live, _ := f.liveness.Live()
	return live && f.Version() != ""
}

// Recent reports whether the feed is live or, where the client has no right to watch, has a list
// that is a few minutes old at most. It lists for that.
func (f *Feed[T]) Recent(ctx context.Context) bool {
	if f.Live(ctx) || !f.unwatched.Load() {
		return f.Live(ctx)
	}
	f.listing.Lock()
	defer f.listing.Unlock()
	if time.Since(f.listed) < relist {
		return true
	}
	list, err := f.list(ctx)
	if err == nil {
		all := make([]any, len(list.Items))
		for i := range all {
			all[i] = list.Items[i]
		}
		err = f.Replace(all, list.ResourceVersion)
	}
	if err == nil {
		f.listed = time.Now()
	}
	return err == nil
}

// Current reports whether the feed has all that the API server has now: a list of nothing, which
// is not answered from a cache, says how new that is. Objects of one namespace are asked about
// where namespace is not empty. It waits so long for the watch: a resource that changes all the
// time is there in milliseconds, another one with the next bookmark.
func (f *Feed[T]) Current(ctx context.Context, c *Client, namespace string, wait time.Duration) bool {
	if !f.Live(ctx) {
		return false
	}
	nothing, err := request(ctx, c, "list "+f.kind.Resource.Resource, func(ctx context.Context) (*unstructured.UnstructuredList, error) {
		return c.resource(f.kind.Resource, namespace).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, "flex2csi-none").String()})
	})
	if err != nil {
		return false
	}
	for until := time.Now().Add(wait); ; {
		newer, err := resourceversion.CompareResourceVersion(f.Version(), nothing.GetResourceVersion())
		if err != nil || newer >= 0 {
			return err == nil && f.Live(ctx)
		}
		if ctx.Err() != nil || time.Now().After(until) {
			return false
		}
		time.Sleep(20 * time.Millisecond)
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

// VersionOf returns the resourceVersion of an object; empty if the feed has none.
func (f *Feed[T]) VersionOf(namespace, name string) string {
	if known := f.Find(namespace, name); known != nil {
		return versionOf(known)
	}
	return ""
}

func versionOf(o any) string {
	object, ok := o.(metav1.Object)
	if !ok {
		return ""
	}
	return object.GetResourceVersion()
}

// Get returns an object as the API server has it now; nil if there is none. Where the feed has
// that already, it is asked for the metadata alone: a Node is mostly status.
func (f *Feed[T]) Get(ctx context.Context, c *Client, namespace, name string) (*T, error) {
	if known := f.Find(namespace, name); known != nil {
		now, err := c.Get(Short(ctx), f.kind.Resource, namespace, name)
		if now == nil || err != nil {
			return nil, err
		}
		if versionOf(known) == now.GetResourceVersion() {
			return known, nil
		}
	}
	return f.kind.Get(ctx, c, namespace, name)
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

// paged has the reflector list. A stream in place of the list (sendInitialEvents) would save
// nothing here, and API servers before 1.27 never end it.
type paged struct{}

func (paged) IsWatchListSemanticsUnSupported() bool { return true }

// listWatch is what the reflector reads from: pages of a list, of which only one is in memory
// with all its fields, and a watch from there on.
func (f *Feed[T]) listWatch() cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		// It lists what is there now, whichever version is asked for.
		ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			list, err := f.list(ctx)
			if err != nil {
				f.fail(err)
				return nil, err
			}
			return list, nil
		},
		WatchFuncWithContext: f.watch,
	}, paged{})
}

func (f *Feed[T]) list(ctx context.Context) (*metainternal.List, error) {
	list := &metainternal.List{}
	version, err := f.client.each(ctx, f.kind.Resource, f.namespace, metav1.ListOptions{}, func(u *unstructured.Unstructured) error {
		o, err := f.object(u)
		list.Items = append(list.Items, o)
		return err
	})
	if err == nil && version == "" {
		err = errNoVersion
	}
	list.ResourceVersion = version
	return list, err
}

// watch is also the first to know that there is no right to watch.
func (f *Feed[T]) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.TimeoutSeconds = new(int64(feedFor.Seconds()))
	w, err := f.client.watch(ctx, f.kind.Resource, f.namespace, o)
	if err != nil {
		f.unwatched.Store(apierrors.IsForbidden(err))
		f.fail(err)
		return nil, err
	}
	defer f.begun()
	return f.liveness.Relay(w, o, f.readEvent), nil
}

// readEvent reads an event. An error, and an object that cannot be read, end the watch.
func (f *Feed[T]) readEvent(e watch.Event) watch.Event {
	u, ok := e.Object.(*unstructured.Unstructured)
	if !ok || e.Type == watch.Error {
		return e
	}
	o, err := f.object(u)
	if err != nil {
		return watch.Event{Type: watch.Error, Object: &metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}}
	}
	return watch.Event{Type: e.Type, Object: o}
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
	f.liveness.Fail()
	f.begun()
	if apierrors.IsForbidden(err) || errors.Is(err, errNoVersion) { // the next try would end as this one
		f.stop()
	}
}
