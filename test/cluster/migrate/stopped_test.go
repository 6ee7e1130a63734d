package migrate_test

import (
	"context"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
)

// end ends a pod at once.
func (w *world) end(pod string) {
	w.check(w.Admin().CoreV1().Pods("default").Delete(context.Background(), pod, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
}

// nothing has the bridge of a node forget a disk.
func (w *world) forget(node, volume string) {
	maps := w.Admin().CoreV1().ConfigMaps(bridgestatus.Namespace)
	o, err := maps.Get(context.Background(), node, metav1.GetOptions{})
	w.check(err)
	d, err := bridgestatus.DecodeNodeVolumes(o.Data[bridgestatus.Key])
	w.check(err)
	var rest []bridgestatus.NodeVolume
	for _, v := range d.Volumes {
		if v.PersistentVolume != volume {
			rest = append(rest, v)
		}
	}
	d.Volumes = rest
	text, err := d.Encode()
	w.check(err)
	o.Data[bridgestatus.Key] = text
	_, err = maps.Update(context.Background(), o, metav1.UpdateOptions{})
	w.check(err)
}

// testOffline: the run waits until a person has stopped the pods, then for the bridge.
func testOffline(w *world) {
	w.disk("offline-run")
	pod := w.pod("offline-run", "node-1", "offline-run")
	other := w.pod("offline-run-2", "node-1", "offline-run")
	w.bridge("node-1", has("offline-run", pod, other))
	w.document("node-1", "offline-run", func(v *bridgestatus.NodeVolume) { v.Staged = bridgestatus.StagedElsewhere })
	claim := w.claim("offline-run").UID
	p := w.operator(migrate.Options{Mode: journal.Rolling})
	plan := w.plan(migrate.Selection{Names: []string{"offline-run"}})
	if tasks, left := migrate.Choose(plan, p.Options); len(tasks) > 0 || !strings.Contains(left[0].Why, "--offline") {
		w.t.Errorf("%+v %+v", tasks, left)
	}
	p.Options.Mode = journal.Offline
	var waited []string
	p.when = func(e migrate.Event) {
		if e.What != migrate.Waiting {
			return
		}
		waited = append(waited, e.Text)
		switch {
		case strings.Contains(e.Text, "pod default/offline-run, pod default/offline-run-2 uses it"):
			w.end("offline-run")
		case strings.Contains(e.Text, "pod default/offline-run-2 uses it"):
			w.end("offline-run-2")
		case strings.Contains(e.Text, "the bridge of node node-1 still has it"):
			w.forget("node-1", "offline-run")
		}
	}
	w.came(p.apply("offline-run"), migrate.Done, journal.Finished, "")
	w.isCSI("offline-run", claim)
	if len(waited) < 3 {
		w.t.Errorf("%q", waited)
	}
	w.disk("offline-never")
	w.pod("offline-never", "node-1", "offline-never")
	p.Options.Timeout = time.Second
	w.came(p.apply("offline-never"), migrate.Unfinished, journal.Retained, "pod default/offline-never uses it: stop it")
	w.end("offline-never")
	p.Options.Timeout = 30 * time.Second
	w.came(p.resume("offline-never"), migrate.Done, journal.Finished, "")
}

// testComes: a pod comes to a node while an idle volume is replaced. It may have
// seen the old one.
func testComes(w *world) {
	w.disk("comes")
	claim, was := w.claim("comes").UID, w.volume("comes")
	p := w.operator(migrate.Options{})
	p.moment("delete", "persistentvolumes", true, func() { w.pod("comes", "node-2", "comes") })
	w.came(p.apply("comes"), migrate.PutBack, journal.Finished, "pod default/comes has come meanwhile, on node node-2")
	w.isFlex(was, claim)
	w.end("comes")
	w.came(p.apply("comes"), migrate.Done, journal.Finished, "")
	w.isCSI("comes", claim)
}

// testComesElsewhere: the same with a volume that a pod has, on a node that was
// observed; of the other it is not known what would mount it there.
func testComesElsewhere(w *world) {
	w.live("elsewhere")
	claim, was := w.claim("elsewhere").UID, w.volume("elsewhere")
	p := w.operator(migrate.Options{})
	p.moment("delete", "persistentvolumes", true, func() {
		w.pod("elsewhere-same", "node-1", "elsewhere")
		w.pod("elsewhere-2", "node-2", "elsewhere")
	})
	w.came(p.apply("elsewhere"), migrate.PutBack, journal.Finished, "pod default/elsewhere-2 has come meanwhile, on node node-2")
	w.isFlex(was, claim)
}

// testNoPodComes: a pod was evicted, and its controller creates none: that is
// not done, unless none is wanted.
func testNoPodComes(w *world) {
	w.disk("childless")
	w.member("childless")
	w.budget("childless", 1)
	sets, labels := w.Admin().AppsV1().StatefulSets("default"), map[string]string{"app": "childless"}
	set, err := sets.Create(w.t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "childless"},
		Spec: appsv1.StatefulSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
		},
	}, metav1.CreateOptions{})
	w.check(err)
	p := w.operator(migrate.Options{Mode: journal.Rolling, Timeout: 2 * time.Second})
	w.came(p.apply("childless"), migrate.Unfinished, journal.Bound, "it does not exist yet")
	set.Spec.Replicas = new(int32)
	_, err = sets.Update(w.t.Context(), set, metav1.UpdateOptions{})
	w.check(err)
	w.came(p.resume("childless"), migrate.Done, journal.Finished, "")
}

// budget is a PodDisruptionBudget of which the tests say what it allows.
func (w *world) budget(name string, allows int32) {
	budgets := w.Admin().PolicyV1().PodDisruptionBudgets("default")
	one := intstr.FromInt32(1)
	b, err := budgets.Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		b, err = budgets.Create(context.Background(), &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}},
		}, metav1.CreateOptions{})
		w.check(err)
	}
	b.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: b.Generation, DisruptionsAllowed: allows, ExpectedPods: 2, CurrentHealthy: 2, DesiredHealthy: 1}
	_, err = budgets.UpdateStatus(context.Background(), b, metav1.UpdateOptions{})
	w.check(err)
}

// member makes the running pod of a set, which has a budget.
func (w *world) member(name string) *corev1.Pod {
	w.t.Helper()
	pod := w.pod(name, "node-1", name, ownedBy("StatefulSet", name), func(p *corev1.Pod) { p.Labels = map[string]string{"app": name} })
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	pod, err := w.Admin().CoreV1().Pods("default").UpdateStatus(w.t.Context(), pod, metav1.UpdateOptions{})
	w.check(err)
	return pod
}

// successor makes the pod that comes after, and has it Ready.
func (w *world) successor(name string) {
	w.t.Helper()
	pod := w.Pod("default", name, "node-2", "default", name)
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	_, err := w.Admin().CoreV1().Pods("default").UpdateStatus(context.Background(), pod, metav1.UpdateOptions{})
	w.check(err)
}

// testRolling: the budget is asked before anything is deleted; the pod goes while
// there is no volume, and its successor comes when there is the new one.
func testRolling(w *world) {
	w.disk("rolling")
	w.member("rolling")
	w.budget("rolling", 0)
	claim := w.claim("rolling").UID
	p := w.operator(migrate.Options{Mode: journal.Rolling})
	var asked, stopped bool
	p.when = func(e migrate.Event) {
		switch {
		case strings.Contains(e.Text, "does not allow to evict"):
			asked = w.volume("rolling").DeletionTimestamp == nil
			w.budget("rolling", 1)
		case e.Stage == journal.Stopped && e.What == migrate.Reached:
			_, err := w.Admin().CoreV1().Pods("default").Get(context.Background(), "rolling", metav1.GetOptions{})
			stopped = err != nil
		case strings.Contains(e.Text, "it does not exist yet"):
			w.successor("rolling")
		}
	}
	w.came(p.apply("rolling"), migrate.Done, journal.Finished, "")
	w.isCSI("rolling", claim)
	if !asked || !stopped {
		w.t.Error(asked, stopped)
	}
}

// testRollingPutBack: a pod that does not end has its volume back.
func testRollingPutBack(w *world) {
	w.disk("stays")
	claim, was := w.claim("stays").UID, w.volume("stays")
	pod := w.member("stays")
	pod.Finalizers = []string{"example.com/keep"}
	_, err := w.Admin().CoreV1().Pods("default").Update(w.t.Context(), pod, metav1.UpdateOptions{})
	w.check(err)
	p := w.operator(migrate.Options{Mode: journal.Rolling, Timeout: 2 * time.Second})
	w.came(p.apply("stays"), migrate.PutBack, journal.Finished, "pod default/stays: it has not ended yet")
	w.isFlex(was, claim)
	w.disk("guarded")
	w.member("guarded")
	w.budget("guarded", 0)
	was = w.volume("guarded")
	w.came(p.apply("guarded"), migrate.Unfinished, journal.Retained, "it does not allow to evict pod default/guarded")
	if now := w.volume("guarded"); now.UID != was.UID || now.DeletionTimestamp != nil {
		w.t.Errorf("%+v", now)
	}
	w.came(p.rollback("guarded"), migrate.Done, journal.Finished, "")
}

// testBatch: at the first surprise no further volume is begun.
func testBatch(w *world) {
	names := []string{"batch-1", "batch-2", "batch-3", "batch-4", "batch-5", "batch-6"}
	for _, name := range names {
		w.disk(name)
	}
	p := w.operator(migrate.Options{Width: 2})
	tasks := p.tasks(names...)
	w.change("batch-2", func(pv *corev1.PersistentVolume) { pv.Finalizers = append(pv.Finalizers, "example.com/keep") })
	results, err := p.Apply(w.t.Context(), tasks)
	w.check(err)
	count := map[migrate.Outcome]int{}
	for i, r := range results {
		count[r.Outcome]++
		if r.Volume != names[i] {
			w.t.Errorf("%+v", r)
		}
	}
	if results[1].Outcome != migrate.Unfinished || results[0].Outcome != migrate.Done || count[migrate.Left] < 2 {
		w.t.Errorf("%+v", results)
	}
	w.change("batch-2", func(pv *corev1.PersistentVolume) { pv.Finalizers = nil })
	w.came(p.resume("batch-2"), migrate.Done, journal.Finished, "")
	rest := names[2:]
	if count[migrate.Done] > 1 {
		rest = names[1+count[migrate.Done]:]
	}
	p.Options.Width = 10
	for _, r := range p.apply(rest...) {
		if r.Outcome != migrate.Done {
			w.t.Errorf("%+v", r)
		}
	}
	for _, name := range names {
		w.isCSI(name, w.claim(name).UID)
	}
}

// testEnough: a person interrupts during the wait for a kubelet.
func testEnough(w *world) {
	w.live("enough")
	claim := w.claim("enough").UID
	p := w.operator(migrate.Options{})
	enough := make(chan struct{})
	p.Enough = enough
	p.when = func(e migrate.Event) {
		if strings.Contains(e.Text, "has not mounted the volume") {
			close(enough)
			p.when = nil
		}
	}
	w.came(p.apply("enough"), migrate.Interrupted, journal.Attached, "")
	p.Enough, p.when = nil, w.kubelet("node-1")
	w.came(p.resume("enough"), migrate.Done, journal.Finished, "")
	w.isCSI("enough", claim)
}
