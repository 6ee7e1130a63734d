package objects

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

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
	return f.liveness.Relay(w, f.readEvent), nil
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
