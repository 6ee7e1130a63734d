package objects_test

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/flex2csi/flex2csi/internal/objects"
)

// TestLiveness: while a watch sends its initial events, in place of a list, the cache has what
// was there before its predecessor ended. What is late from that says nothing of its successor.
func TestLiveness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l objects.Liveness
		wants := func(live bool) {
			t.Helper()
			synctest.Wait()
			if is, _ := l.Live(); is != live {
				t.Errorf("live: %t", is)
			}
		}
		start := func(o metav1.ListOptions) (*watch.FakeWatcher, watch.Interface) {
			from := watch.NewFake()
			to := l.Relay(from, o, func(e watch.Event) watch.Event { return e })
			go func() {
				for range to.ResultChan() { // as a reflector reads
				}
			}()
			return from, to
		}
		wants(false)
		from, first := start(metav1.ListOptions{SendInitialEvents: new(true)})
		from.Add(&corev1.Node{})
		from.Action(watch.Bookmark, &corev1.Node{})
		wants(false)
		from.Action(watch.Bookmark, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}})
		wants(true)
		second, _ := start(metav1.ListOptions{})
		first.Stop()
		wants(true)
		time.Sleep(3 * time.Minute)
		if live, since := l.Live(); live || time.Since(since) != time.Minute {
			t.Errorf("live: %t, for %s", live, time.Since(since))
		}
		second.Action(watch.Bookmark, &corev1.Node{})
		wants(true)
		second.Stop()
		wants(false)
		l.Fail()
		if _, since := l.Live(); since != time.Now() {
			t.Errorf("since %s", since)
		}
	})
}
