package e2e

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/test/node"
)

// measures are figures rather than checks: a busy machine is no reason to fail.
func measures() []scenario {
	return []scenario{
		{"start-time", "how long a pod takes to be ready with a bridged FlexVolume, against the same with a PersistentVolume of the CSI driver", startTime},
		{"many-pods", "so many pods with a volume each at once: started, and deleted", manyPods},
	}
}

// startTime lets both ways take turns. make bench-e2e does it for longer.
func startTime(t *T) {
	rounds := t.number("E2E_ROUNDS", 5)
	for _, kind := range []struct {
		name string
		driver
		goal float64
	}{{"directories, nothing attached", share(), 1.03}, {"disks, attached", disk(), 1}} {
		short := kind.driver.flex[len("example.com/"):]
		flex, csi := t.volume(kind.driver, short+"-flex"), t.volume(kind.driver, short+"-csi", native)
		var took [2][]float64
		for round := range rounds + 1 {
			for turn := range 2 {
				way := (round + turn) % 2
				seconds := t.timeToReady([]*volume{flex, csi}[way]).Seconds()
				if round > 0 { // the first one formats the disk
					took[way] = append(took[way], seconds)
				}
			}
		}
		ratio, text := comparison(took[0], took[1])
		result := map[bool]string{true: "met", false: "missed"}[ratio <= kind.goal]
		t.note("%s: %s, goal ≤ %.2f %s", kind.name, text, kind.goal, result)
	}
	if n := t.number("E2E_COLD", 0); n > 0 {
		t.coldStart(n)
	}
}

// number is one of the environment.
func (t *T) number(name string, without int) int {
	t.Helper()
	n, err := strconv.Atoi(env(name, strconv.Itoa(without)))
	t.must(err)
	return n
}

// timeToReady is how long a pod with the volume takes from its creation until its
// container is ready, as the API server tells it.
func (t *T) timeToReady(v *volume) time.Duration {
	t.Helper()
	pods := t.client.CoreV1().Pods(t.Namespace)
	changes, err := pods.Watch(t.ctx(), metav1.SingleObject(metav1.ObjectMeta{Name: "pod"}))
	t.must(err)
	defer changes.Stop()
	began := time.Now()
	pod := t.create(t.newPod("pod", v.at("/data")))
	for deadline := time.After(t.patience); ; {
		select {
		case event := <-changes.ResultChan():
			now, ok := event.Object.(*corev1.Pod)
			if !ok || notReady(now) != nil {
				continue
			}
			took := time.Since(began)
			t.delete(pod)
			return took
		case <-deadline:
			t.Fatalf("pod %s does not get ready%s", pod.Name, t.eventsOf(pod.Name))
		}
	}
}

// comparison says what a way costs against another one: the medians, their ratio,
// and the quartiles of the ratios within each round.
func comparison(got, reference []float64) (ratio float64, text string) {
	ratios := make([]float64, len(got))
	for i := range got {
		ratios[i] = got[i] / reference[i]
	}
	ratio = quantile(got, 0.5) / quantile(reference, 0.5)
	return ratio, fmt.Sprintf("%.2f s : %.2f s = %.3fx (within a round %.2f–%.2f, %d rounds)",
		quantile(got, 0.5), quantile(reference, 0.5), ratio, quantile(ratios, 0.25), quantile(ratios, 0.75), len(got))
}

func quantile(values []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

// coldStart has a kubelet start with n pods on its node, as after a power cut. Both ways
// take turns.
func (t *T) coldStart(n int) {
	rounds := t.number("E2E_COLD_ROUNDS", 1)
	var volumes [2][]*volume
	for i := range n {
		volumes[0] = append(volumes[0], t.volume(share(), fmt.Sprintf("flex-%d", i)))
		volumes[1] = append(volumes[1], t.volume(share(), fmt.Sprintf("csi-%d", i), native))
	}
	var took [2][]float64
	for round := range rounds {
		for turn := range 2 {
			way := (round + turn) % 2
			took[way] = append(took[way], t.timeToStart(volumes[way]).Seconds())
		}
	}
	_, text := comparison(took[0], took[1])
	t.note("%d pods with directories, all at once after a start of the kubelet: %s", n, text)
}

// timeToStart is how long a kubelet that starts takes until the last of its pods is ready.
func (t *T) timeToStart(volumes []*volume) time.Duration {
	t.Helper()
	t.node.Kubelet.Stop()
	for i, v := range volumes {
		pod := t.crowd(i, v)
		pod.Spec.NodeName = node.Name
		t.must(t.insist(func() error { return t.tryCreate(pod) }))
	}
	began := time.Now()
	t.must(t.node.Kubelet.Start())
	t.waitAll(len(volumes))
	took := time.Since(began)
	t.deletePods()
	return took
}
