package objects_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"

	"github.com/flex2csi/flex2csi/internal/objects"
)

// TestFeed: a watch that says nothing for long is not believed, and one that is behind is not
// current; with its next bookmark it is both.
func TestFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		version, events := "7", watch.NewFake()
		named := func(name, version string) *unstructured.Unstructured {
			return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": name, "resourceVersion": version}}}
		}
		api := fake.NewSimpleDynamicClient(scheme.Scheme)
		api.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "NodeList"}, Items: []unstructured.Unstructured{*named("a", "5")}}
			list.SetResourceVersion(version)
			return true, list, nil
		})
		api.PrependWatchReactor("nodes", clienttesting.DefaultWatchReactor(events, nil))
		c := &objects.Client{Dynamic: api}
		read := func(u *unstructured.Unstructured) (*corev1.Node, error) { return objects.As[corev1.Node](u) }
		f := objects.NewFeed(t.Context(), c, objects.Nodes(), "", read, nil)
		wants := func(live, current bool, nodes int) {
			t.Helper()
			if is := f.Live(t.Context()); is != live {
				t.Errorf("live: %t", is)
			}
			if is := f.Current(t.Context(), c, "", time.Second); is != current || len(f.All()) != nodes {
				t.Errorf("current: %t, with %d nodes", is, len(f.All()))
			}
		}
		wants(true, true, 1)
		version = "9" // something has changed, and no watch says so yet
		wants(true, false, 1)
		events.Add(named("b", "8"))
		synctest.Wait()
		wants(true, false, 2)
		// In a quiet cluster a claim was Lost for two seconds more.
		if begin := time.Now(); f.Current(t.Context(), c, "", 500*time.Millisecond) || time.Since(begin) > time.Second {
			t.Errorf("current, or after %s", time.Since(begin))
		}
		events.Action(watch.Bookmark, named("", "9"))
		synctest.Wait()
		wants(true, true, 2)
		time.Sleep(3 * time.Minute)
		wants(false, false, 2)
		events.Delete(named("a", "10"))
		synctest.Wait()
		wants(true, true, 1)
	})
}

// opener is an API server of which a test opens the watches.
type opener struct {
	dynamic.NamespaceableResourceInterface
	open func(context.Context) (watch.Interface, error)
}

func (o opener) Resource(schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return o
}

func (o opener) List(context.Context, metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "NodeList"}}
	list.SetResourceVersion("7")
	return list, nil
}

func (o opener) Watch(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
	return o.open(ctx)
}

// TestFeedOpens: a watch that is not opened holds its callers up for as long as another request,
// and is tried again; one that has ended, or said an error, is not live before the next is open.
func TestFeedOpens(t *testing.T) {
	for name, end := range map[string]func(*watch.FakeWatcher){
		"ended":      func(w *watch.FakeWatcher) { w.Stop() },
		"error":      func(w *watch.FakeWatcher) { w.Error(&metav1.Status{Status: metav1.StatusFailure, Code: 410}) },
		"unreadable": func(w *watch.FakeWatcher) { w.Add(&unstructured.Unstructured{Object: map[string]any{"spec": "none"}}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opened := make(chan watch.Interface)
				f := objects.NewFeed(t.Context(), &objects.Client{Dynamic: opener{open: func(ctx context.Context) (watch.Interface, error) {
					select {
					case w := <-opened:
						return w, nil
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				}}}, objects.Nodes(), "", func(u *unstructured.Unstructured) (*corev1.Node, error) { return objects.As[corev1.Node](u) }, nil)
				begin := time.Now()
				if f.Live(t.Context()) || time.Since(begin) > objects.RequestTimeout {
					t.Errorf("live, or after %s", time.Since(begin))
				}
				time.Sleep(time.Minute)
				if f.Live(t.Context()) {
					t.Error("live without a watch")
				}
				for range 2 {
					w := watch.NewFake()
					opened <- w
					synctest.Wait()
					if !f.Live(t.Context()) {
						t.Error("not live with a watch")
					}
					end(w)
					synctest.Wait()
					if f.Live(t.Context()) {
						t.Error("live after the end of its watch")
					}
				}
			})
		})
	}
}
