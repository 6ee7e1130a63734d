package objects_test

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
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
			if is := f.Current(t.Context(), c, ""); is != current || len(f.All()) != nodes {
				t.Errorf("current: %t, with %d nodes", is, len(f.All()))
			}
		}
		wants(true, true, 1)
		version = "9" // something has changed, and no watch says so yet
		wants(true, false, 1)
		events.Add(named("b", "8"))
		synctest.Wait()
		wants(true, false, 2)
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
