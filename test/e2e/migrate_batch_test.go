package e2e

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// migrateMeasures are many at once.
func migrateMeasures() []scenario {
	return []scenario{
		{"migrate-batch", "a hundred volumes under running pods in one batch, with time and requests for each", migrateBatch},
	}
}

// perPod is how many volumes a pod has.
const perPod = 10

func migrateBatch(t *T) {
	n := t.number("E2E_VOLUMES", 100)
	volumes := make([]*volume, n)
	for i := range volumes {
		volumes[i] = t.volume(share(), strconv.Itoa(i))
	}
	var pods []*corev1.Pod
	for i := 0; i < n; i += perPod {
		pod := t.newPod("pod-" + strconv.Itoa(i))
		script := ""
		for j, v := range volumes[i:min(n, i+perPod)] {
			v.at(fmt.Sprint("/v", j))(pod)
			script += fmt.Sprintf("echo %s > /v%d/who; ", v.name, j)
		}
		pod.Spec.Containers[0].Command[2] = script + idle
		pods = append(pods, t.create(pod))
	}
	t.waitAll(len(pods))
	width := env("E2E_WIDTH", "10")
	began := time.Now()
	t.waitTold()
	told := time.Since(began)
	began = time.Now()
	results, err := t.migrate("apply", "--yes", "--namespace", t.Namespace, "--width", width, "--timeout", "5m")
	took := time.Since(began)
	t.must(err)
	t.figures(results, took, "width "+width)
	if len(results) != n {
		t.Errorf("%d volumes were migrated, want %d", len(results), n)
	}
	for i, pod := range pods {
		for j, v := range volumes[i*perPod : min(n, (i+1)*perPod)] {
			t.wantSh(pod, fmt.Sprintf("cat /v%d/who", j), v.name)
			t.wantMounts(v, pod, true, true)
		}
		now, err := t.client.CoreV1().Pods(t.Namespace).Get(t.ctx(), pod.Name, metav1.GetOptions{})
		t.must(err)
		if now.UID != pod.UID || restarts(now, "main") > 0 {
			t.Errorf("pod %s was restarted", pod.Name)
		}
	}
	t.deletePods()
	began = time.Now()
	results, err = t.migrate(append([]string{"rollback", "--yes", "--width", width}, names(volumes)...)...)
	t.must(err)
	t.figures(results, time.Since(began), "back, without pods")
	t.note("the daemon had told of all pods after %.0f s", told.Seconds())
}

func names(volumes []*volume) (all []string) {
	for _, v := range volumes {
		all = append(all, v.name)
	}
	return all
}

// figures notes what a batch has cost.
func (t *T) figures(results []result, took time.Duration, what string) {
	t.Helper()
	var lost, taken, requests []float64
	for _, r := range results {
		if r.Stage != "Finished" {
			t.Errorf("%s: %s at %s: %s", r.Name, r.Outcome, r.Stage, r.Why)
		}
		lost, taken, requests = append(lost, r.LostSeconds), append(taken, r.TakenOverSeconds), append(requests, float64(r.Requests))
	}
	t.note("%d volumes (%s) in %.0f s; Lost %s s, taken over after %s s, %s requests each", len(results), what, took.Seconds(), spread(lost), spread(taken), spread(requests))
}

// spread is the middle one and the greatest.
func spread(all []float64) string {
	if len(all) == 0 {
		return "-"
	}
	slices.Sort(all)
	return fmt.Sprintf("%.2f (at most %.2f)", all[len(all)/2], all[len(all)-1])
}
