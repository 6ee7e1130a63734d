package objects

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

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
	list, err := l.f.list(ctx)
	if err != nil {
		l.f.fail(err)
		return nil, err
	}
	return list, nil
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

func (l feeder[T]) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(context.Background(), o)
}

// WatchWithContext is also the first to know that there is no right to watch.
func (l feeder[T]) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.TimeoutSeconds = new(int64(feedFor.Seconds()))
	w, end, err := l.f.client.watch(ctx, l.f.kind.Resource, l.f.namespace, o)
	if err != nil {
		l.f.unwatched.Store(apierrors.IsForbidden(err))
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
