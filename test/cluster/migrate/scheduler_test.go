package migrate_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/test/testenv"
)

// TestLostHolds: the scheduler places no pod with a claim that has lost its volume, not
// even in the moment before the claim is Lost, and places it when there is a
// volume again (pkg/scheduler/framework/plugins/volumebinding, PreFilter and
// FindPodVolumes, Kubernetes v1.37.1). Migrations after a pod restart rest on it.
func TestLostHolds(t *testing.T) {
	w := start(t)
	w.StartScheduler()
	w.room("node-1")
	w.disk("before")
	w.unplaced("before")
	begun := time.Now()
	testenv.Eventually(t, "a pod with a Bound claim is placed", func() bool { return w.placed("before") })
	usual := time.Since(begun)

	for _, name := range []string{"lost", "not-yet-lost"} {
		w.disk(name)
		with := replacement(t, w.one(name))
		w.takeAway(name)
		if name == "lost" {
			testenv.Eventually(t, "the claim is Lost", func() bool { return w.claim(name).Status.Phase == corev1.ClaimLost })
		}
		w.unplaced(name)
		time.Sleep(5*time.Second + 2*usual)
		if w.placed(name) {
			t.Errorf("%s was placed while its volume is gone", name)
		}
		_, err := w.Admin().CoreV1().PersistentVolumes().Create(t.Context(), with, metav1.CreateOptions{})
		w.check(err)
		begun := time.Now()
		w.annotate(name, "example.com/look", begun.String())
		testenv.Eventually(t, "the claim is Bound", func() bool { return w.claim(name).Status.Phase == corev1.ClaimBound })
		testenv.Eventually(t, "the pod is placed", func() bool { return w.placed(name) })
		t.Logf("%s: placed %s after there was a volume again; %s usually", name, time.Since(begun).Round(time.Millisecond), usual.Round(time.Millisecond))
	}
}

// takeAway deletes a volume, and its finalizers.
func (w *world) takeAway(volume string) {
	w.t.Helper()
	volumes := w.Admin().CoreV1().PersistentVolumes()
	w.check(volumes.Delete(w.t.Context(), volume, metav1.DeleteOptions{}))
	_, err := volumes.Patch(w.t.Context(), volume, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	w.check(err)
}

func (w *world) claim(name string) *corev1.PersistentVolumeClaim {
	w.t.Helper()
	c, err := w.Admin().CoreV1().PersistentVolumeClaims("default").Get(w.t.Context(), name, metav1.GetOptions{})
	w.check(err)
	return c
}

func (w *world) annotate(claim, name, value string) {
	w.t.Helper()
	patch := []byte(`{"metadata":{"annotations":{"` + name + `":"` + value + `"}}}`)
	_, err := w.Admin().CoreV1().PersistentVolumeClaims("default").Patch(w.t.Context(), claim, types.MergePatchType, patch, metav1.PatchOptions{})
	w.check(err)
}

// room lets pods be placed on a node. The taint of a new one is what no controller here
// takes away.
func (w *world) room(node string) {
	w.t.Helper()
	api, room := w.Admin().CoreV1().Nodes(), `{"cpu":"4","memory":"8Gi","pods":"100"}`
	_, err := api.Patch(w.t.Context(), node, types.MergePatchType, []byte(`{"status":{"allocatable":`+room+`,"capacity":`+room+`}}`), metav1.PatchOptions{}, "status")
	w.check(err)
	_, err = api.Patch(w.t.Context(), node, types.MergePatchType, []byte(`{"spec":{"taints":null}}`), metav1.PatchOptions{})
	w.check(err)
}

// unplaced makes a pod of a claim's name that wants a node.
func (w *world) unplaced(claim string) { w.Pod("default", claim, "", "default", claim) }

func (w *world) placed(pod string) bool {
	w.t.Helper()
	p, err := w.Admin().CoreV1().Pods("default").Get(w.t.Context(), pod, metav1.GetOptions{})
	w.check(err)
	return p.Spec.NodeName != ""
}
