package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// costRounds is how often each way of attaching is measured, in turn.
	costRounds = 11
	// costLimit is what the project promises.
	costLimit = 1.10
)

// testCost compares what it takes to attach a FlexVolume, from the callout to
// its Success, with what kube-controller-manager takes for a CSI volume, from
// the pod to the attachment in the node's status, which lets the kubelet go on.
func testCost(t *testing.T, c *cluster) {
	w := newWorld(t, c, options{object: &storagev1.CSIDriverSpec{}})
	n := w.nodes[0]
	var bridge, kcm []time.Duration
	for round := range costRounds {
		flex := w.volume(fmt.Sprintf("flex-%d", round))
		start := time.Now()
		n.must("attach", n.argument(flex, ""), n.name)
		bridge = append(bridge, time.Since(start))
		kcm = append(kcm, n.attachByPod(w.csiVolume(fmt.Sprintf("csi-%d", round))))
	}
	slices.Sort(bridge)
	slices.Sort(kcm)
	got, want := bridge[costRounds/2], kcm[costRounds/2]
	t.Logf("attach: median of %d over the bridge %v, by kube-controller-manager %v: %.2fx", costRounds, got, want, float64(got)/float64(want))
	if float64(got) > costLimit*float64(want) {
		t.Errorf("attaching over the bridge takes %v, kube-controller-manager %v: more than %.2fx", got, want, costLimit)
	}
}

// csiVolume makes a PersistentVolume of the CSI driver.
func (w *world) csiVolume(name string) *volume {
	w.t.Helper()
	v := w.newVolume(name, nil)
	w.PersistentVolume(v.name, w.csiSource(v))
	return v
}

func (w *world) csiSource(v *volume) corev1.PersistentVolumeSource {
	return corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: w.driver, VolumeHandle: v.handle, FSType: "ext4"}}
}

// attachByPod has kube-controller-manager attach a volume, and says how long
// that took.
func (n *node) attachByPod(v *volume) time.Duration {
	n.w.t.Helper()
	nodes, err := n.w.Admin().CoreV1().Nodes().Watch(n.w.t.Context(), metav1.SingleObject(metav1.ObjectMeta{Name: n.name}))
	if err != nil {
		n.w.t.Fatal(err)
	}
	defer nodes.Stop()
	start := time.Now()
	n.w.Pod(metav1.NamespaceDefault, v.name, n.name, "", v.name)
	for deadline := time.After(patience); ; {
		select {
		case event := <-nodes.ResultChan():
			if node, ok := event.Object.(*corev1.Node); ok && hasAttached(node, n.w.driver, v) {
				return time.Since(start)
			}
		case <-deadline:
			n.w.t.Fatalf("kube-controller-manager does not attach %s", v.name)
		}
	}
}

// hasAttached reports whether kube-controller-manager says that it has attached
// a CSI volume.
func hasAttached(node *corev1.Node, driver string, v *volume) bool {
	unique := corev1.UniqueVolumeName("kubernetes.io/csi/" + driver + "^" + v.handle)
	return slices.ContainsFunc(node.Status.VolumesAttached, func(a corev1.AttachedVolume) bool { return a.Name == unique })
}
