package cluster

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// testTwoNodes: a volume for one node is refused to another, which is told where
// it is, and comes when it is free.
func testTwoNodes(t *testing.T, c *cluster) {
	w := newWorld(t, c, options{nodes: 2})
	one, two := w.nodes[0], w.nodes[1]
	for _, mode := range []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadWriteOncePod} {
		v := w.volume("disk-"+map[bool]string{true: "pod", false: "node"}[mode == corev1.ReadWriteOncePod], mode)
		one.mount(v, "pod-a")
		two.timeout = short
		two.mustFail(two.tryMount(v, "pod-b"), one.name)
		if o := two.attachment(v); o != nil {
			t.Errorf("a refused mount left %+v", o)
		}
		w.wantEvent("FailedAttachVolume", "pod-b", one.name)
		one.unmount(v, "pod-a")
		two.timeout = patience
		two.retryMount(v, "pod-b")
		two.unmount(v, "pod-b")
		one.wantNothing()
		two.wantNothing()
		w.wantAttached(v.handle, 2)
	}
}

// testRace: two nodes that want a volume at the same moment: one gets it.
func testRace(t *testing.T, c *cluster) {
	const rounds = 10
	w := newWorld(t, c, options{nodes: 2})
	for round := range rounds {
		v := w.volume(fmt.Sprintf("disk-%d", round))
		var got [2]bool
		var both sync.WaitGroup
		for i, n := range w.nodes {
			n.timeout = 2 * short
			both.Go(func() {
				s := n.tryMount(v, "pod")
				// The attacher takes the loser's attachment away meanwhile, and the CSI
				// driver does one thing at a time with a volume: a kubelet asks again.
				for range 10 {
					if success(s) || !strings.Contains(s.Message, "aborted") {
						break
					}
					time.Sleep(100 * time.Millisecond)
					s = n.tryMount(v, "pod")
				}
				got[i] = success(s)
			})
		}
		both.Wait()
		if got[0] == got[1] {
			t.Errorf("round %d: the nodes got the volume: %v, want one of them", round, got)
		}
		for i, n := range w.nodes {
			if o := n.attachment(v); !got[i] && o != nil {
				t.Errorf("round %d: who lost has %+v", round, o)
			}
			n.unmount(v, "pod")
		}
		w.nodes[0].wantNothing()
		w.nodes[1].wantNothing()
	}
	w.wantBalance()
}

// wantEvent checks that a person is told of something that has to do with a pod.
func (w *world) wantEvent(reason, pod, word string) {
	w.t.Helper()
	var last []corev1.Event
	w.eventually(func() bool {
		list, err := w.Admin().CoreV1().Events(metav1.NamespaceDefault).List(w.t.Context(), metav1.ListOptions{})
		w.must(err)
		last = list.Items
		return slices.ContainsFunc(last, func(e corev1.Event) bool {
			return e.Reason == reason && e.InvolvedObject.Name == pod && strings.Contains(e.Message, word)
		})
	}, func() { w.t.Errorf("no event %s of pod %s that names %s, but %+v", reason, pod, word, last) })
}
