package cluster

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/test/controlplane"
)

// attachGoal is what the project promises.
const attachGoal = 1.10

// BenchmarkAttach compares what it takes to attach a FlexVolume, from the
// callout to its Success, with what kube-controller-manager takes for a CSI
// volume, from the pod to the attachment in the node's status, which lets the
// kubelet go on. And with what a VolumeAttachment takes by itself, from its
// creation until it is attached. They take turns; what counts is the ratio within
// a round. make bench-cluster runs it.
func BenchmarkAttach(b *testing.B) {
	w := newWorld(b, start(b), options{object: &storagev1.CSIDriverSpec{}})
	n := w.nodes[0]
	ways := []func(round int) time.Duration{
		func(round int) time.Duration { return n.attachByCall(w.volume(fmt.Sprintf("flex-%d", round))) },
		func(round int) time.Duration { return n.attachByPod(w.csiVolume(fmt.Sprintf("csi-%d", round))) },
		func(round int) time.Duration { return n.attachAlone(w.csiVolume(fmt.Sprintf("alone-%d", round))) },
	}
	var took [3][]float64
	for round := 0; b.Loop(); round++ {
		for turn := range ways {
			way := (round + turn) % len(ways)
			took[way] = append(took[way], ways[way](round).Seconds())
		}
	}
	b.ReportMetric(0, "ns/op") // of a round, which means nothing
	report := func(reference int, name string) (low, middle, high float64) {
		b.ReportMetric(1000*quantile(took[reference], 0.5), name+"-ms")
		ratios := make([]float64, len(took[0]))
		for i := range ratios {
			ratios[i] = took[0][i] / took[reference][i]
		}
		low, middle, high = quantile(ratios, 0.25), quantile(ratios, 0.5), quantile(ratios, 0.75)
		b.ReportMetric(middle, "x-of-"+name)
		return low, middle, high
	}
	b.ReportMetric(1000*quantile(took[0], 0.5), "bridge-ms")
	low, middle, high := report(1, "kcm")
	result := map[bool]string{true: "met", false: "missed"}[middle <= attachGoal]
	b.Logf("%d rounds: over the bridge : by kube-controller-manager %.3fx (%.3f–%.3f), goal ≤ %.2f: %s", len(took[0]), middle, low, high, attachGoal, result)
	low, middle, high = report(2, "alone")
	b.Logf("over the bridge : a VolumeAttachment alone %.2fx (%.2f–%.2f)", middle, low, high)
}

func quantile(values []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[int(q*float64(len(sorted)-1)+0.5)]
}

// csiVolume makes a PersistentVolume of the CSI driver.
func (w *world) csiVolume(name string) *volume {
	w.t.Helper()
	v := w.newVolume(name, nil)
	w.PersistentVolume(v.name, w.csiSource(v))
	return v
}

func (n *node) attachByCall(v *volume) time.Duration {
	n.w.t.Helper()
	n.w.Pod(metav1.NamespaceDefault, v.name, n.name, "", v.name)
	start := time.Now()
	n.must("attach", n.argument(v, ""), n.name)
	return time.Since(start)
}

// attachByPod has kube-controller-manager attach a volume.
func (n *node) attachByPod(v *volume) time.Duration {
	n.w.t.Helper()
	nodes, err := n.w.Admin().CoreV1().Nodes().Watch(n.w.t.Context(), metav1.SingleObject(metav1.ObjectMeta{Name: n.name}))
	n.w.must(err)
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

// attachAlone makes a VolumeAttachment of no other component.
func (n *node) attachAlone(v *volume) time.Duration {
	n.w.t.Helper()
	all, name := n.w.Admin().StorageV1().VolumeAttachments(), "alone-"+v.name
	changes, err := all.Watch(n.w.t.Context(), metav1.SingleObject(metav1.ObjectMeta{Name: name}))
	n.w.must(err)
	defer changes.Stop()
	start := time.Now()
	_, err = all.Create(n.w.t.Context(), &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: n.w.driver, NodeName: n.name, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &v.name}},
	}, metav1.CreateOptions{})
	n.w.must(err)
	for deadline := time.After(patience); ; {
		select {
		case event := <-changes.ResultChan():
			if o, ok := event.Object.(*storagev1.VolumeAttachment); ok && o.Status.Attached {
				return time.Since(start)
			}
		case <-deadline:
			n.w.t.Fatalf("the attacher does not attach %s", v.name)
		}
	}
}

// BenchmarkAttachments attaches in clusters with more and more VolumeAttachments, half of
// them of the bridge, on another node, and says how much memory daemon and controller take.
func BenchmarkAttachments(b *testing.B) {
	w := newWorld(b, start(b), options{object: &storagev1.CSIDriverSpec{}})
	n := w.nodes[0]
	socket := w.path("controller.sock")
	controller := w.runController(socket)
	w.wait("the controller", func() bool { return exists(socket) })
	w.Node("elsewhere")
	there := 0
	for _, size := range []int{0, 5_000, 10_000} {
		w.fill(there, size)
		there = size
		b.Run(fmt.Sprintf("others=%d", size), func(b *testing.B) {
			var took []float64
			for round := 0; b.Loop(); round++ {
				took = append(took, n.attachByCall(w.volume(fmt.Sprintf("many-%d-%d", size, round))).Seconds())
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(1000*quantile(took, 0.5), "attach-ms")
			b.ReportMetric(w.resident(n.daemon), "daemon-MiB")
			b.ReportMetric(w.resident(controller), "controller-MiB")
		})
	}
}

// fill makes the VolumeAttachments with these numbers.
func (w *world) fill(from, to int) {
	w.t.Helper()
	eachOf(to-from, func(i int) {
		want := csivol.Attachment{FlexDriver: w.flexDriver, Driver: "elsewhere." + w.driver, Handle: fmt.Sprintf("vol-%d", from+i), Node: "elsewhere", AccessModes: []csivol.AccessMode{csivol.ReadWriteOnce}}
		o := objects.NewAttachment(&want, objects.AttachedByNode)
		if i%2 == 0 {
			o.Labels = nil // another component's
		}
		if _, err := w.Admin().StorageV1().VolumeAttachments().Create(w.t.Context(), o, metav1.CreateOptions{}); err != nil {
			w.t.Error(err)
		}
	})
}

// resident is the memory of a process, in MiB, after it has had time to settle.
func (w *world) resident(p *controlplane.Part) float64 {
	w.t.Helper()
	time.Sleep(5 * time.Second)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	w.must(err)
	var kib float64
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	_, err = fmt.Sscan(rest, &kib)
	w.must(err)
	return kib / 1024
}
