package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/distribution"
)

// migrateRestarts are migrations with pods that are restarted, or stopped.
func migrateRestarts() []scenario {
	return []scenario{
		{"migrate-rolling", "a StatefulSet of three and a Deployment, with no report of their volumes: one pod after the other is restarted, and finds all that it has written", migrateRolling},
		{"migrate-offline", "two pods on one claim: nothing is done until a person has stopped them, and the next ones find everything; back in the same way", migrateOffline},
	}
}

// silent has the daemons report nothing while something is done, as in a cluster without
// install/migrate.
func (t *T) silent(what func()) {
	t.Helper()
	again := sync.OnceFunc(func() {
		out, err := t.kubectl("apply", "-k", tells())
		t.check(withText(err, out))
		const again = 2 * time.Minute // at the latest a daemon tells again then
		t.check(retry(again+t.patience, func() error {
			maps, err := t.client.CoreV1().ConfigMaps("flex2csi-nodes").List(t.ctx(), metav1.ListOptions{LabelSelector: "flex2csi.io/node-volumes"})
			if err == nil && len(maps.Items) == 0 {
				err = errors.New("no daemon tells of its volumes")
			}
			return err
		}))
	})
	t.Cleanup(again)
	out, err := t.kubectl("delete", "-k", tells(), "--wait")
	t.must(withText(err, out))
	what()
	again()
}

func migrateRolling(t *T) {
	const set = "db"
	var volumes []*volume
	for i := range 3 {
		volumes = append(volumes, t.volume(disk(), fmt.Sprint(i), func(v *volume) { v.name = fmt.Sprintf("%s-%s-%d", t.Namespace, set, i) }))
	}
	single := t.volume(attached(), "single")
	t.silent(func() {
		s := t.createSet(set, volumes)
		t.Cleanup(t.endWorkloads) // before the scenario's end, which deletes pods
		t.wait("the StatefulSet", func() error { return t.setReady(set) })
		t.deployment("web", single)
		before := append(t.writersOf(s, volumes), t.writerOf("web", single))
		was := map[*volume]*corev1.PersistentVolume{}
		for _, w := range before {
			was[w.v] = t.persistentVolume(w.v)
			w.writes()
		}
		fewest, looks := len(volumes), 0
		stop := t.every(200*time.Millisecond, func(ctx context.Context) {
			if n, err := t.readyOf(ctx, set); err == nil {
				fewest, looks = min(fewest, n), looks+1
			}
		})
		began := time.Now()
		t.wantDone(t.migrate("apply", "--yes", "--rolling", "--namespace", t.Namespace, "--timeout", "3m"))
		took := time.Since(began)
		stop()
		t.note("%d volumes after %.0f s, at least %d of %d pods of the StatefulSet were ready in %d looks", len(before), took.Seconds(), fewest, len(volumes), looks)
		switch {
		case looks == 0:
			t.Error("how many pods of the StatefulSet were ready could never be seen")
		case fewest < len(volumes)-1:
			t.Errorf("only %d pods of the StatefulSet were ready at a time", fewest)
		}
		after := append(t.writersOf(s, volumes), t.writerOf("web", single))
		for i, w := range after {
			if w.pod.UID == before[i].pod.UID {
				t.Errorf("pod %s was not restarted", w.pod.Name)
			}
			if restarts(w.pod, "main") > 0 {
				t.Errorf("pod %s: %s", w.pod.Name, terminations(w.pod))
			}
			t.wantCSI(w.v, was[w.v])
			t.wantMounts(w.v, w.pod, false, true)
			w.writes()
			w.note()
		}
		t.endWorkloads()
	})
	for _, v := range append(volumes, single) {
		t.waitIdle(v)
		t.wantCalls(v, map[string]int{"NodeStageVolume": 2, "NodeUnstageVolume": 2, "ControllerUnpublishVolume": 2})
	}
}

// deployment makes one of a writer, and waits for its pod.
func (t *T) deployment(name string, v *volume) {
	t.Helper()
	_, err := t.client.AppsV1().Deployments(t.Namespace).Create(t.ctx(), t.newDeployment(name, 1, v.at("/data"), writing("/data/log")), metav1.CreateOptions{})
	t.must(err)
	t.must(t.rolledOut(t.ctx(), t.Namespace))
}

// newDeployment describes one that ends all of its pods before it starts others.
func (t *T) newDeployment(name string, replicas int32, options ...podOption) *appsv1.Deployment {
	pod := t.newPod("", options...)
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	labels := map[string]string{"deployment": name}
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(labels)}, Spec: pod.Spec},
		},
	}
}

// writerOf is the pod of a Deployment.
func (t *T) writerOf(name string, v *volume) *writer {
	t.Helper()
	pod, err := t.podOf(t.Namespace, "deployment="+name)
	t.must(err)
	t.waitReady(pod)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pods[pod.UID] = pod.Name
	return &writer{t: t, pod: pod, v: v, log: "/data/log"}
}

// endWorkloads deletes the owners of pods, and waits for the end of the pods.
func (t *T) endWorkloads() {
	foreground := metav1.DeletePropagationForeground
	options := metav1.DeleteOptions{PropagationPolicy: &foreground}
	t.check(t.client.AppsV1().StatefulSets(t.Namespace).DeleteCollection(t.ctx(), options, metav1.ListOptions{}))
	t.check(t.client.AppsV1().Deployments(t.Namespace).DeleteCollection(t.ctx(), options, metav1.ListOptions{}))
	t.check(retry(t.patience, func() error {
		list, err := t.client.CoreV1().Pods(t.Namespace).List(t.ctx(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		return stillThere(list.Items)
	}))
}

// readyOf is how many pods of a StatefulSet are ready.
func (t *T) readyOf(ctx context.Context, set string) (int, error) {
	list, err := t.client.CoreV1().Pods(t.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "set=" + set})
	if err != nil {
		return 0, err
	}
	return len(slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return notReady(&p) != nil })), nil
}

// every looks at something all the time, until the function that it returns is
// called.
func (t *T) every(pause time.Duration, look func(context.Context)) (end func()) {
	ctx, stop := context.WithCancel(t.ctx())
	var looking sync.WaitGroup
	looking.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(pause) {
			look(ctx)
		}
	})
	return func() {
		stop()
		looking.Wait()
	}
}

func migrateOffline(t *T) {
	v := t.volume(disk(), "data")
	t.silent(func() {
		a, b := t.writer("a", v), t.writer("b", v)
		was := t.persistentVolume(v)
		if _, err := t.migrate("apply", "--yes", v.name); err == nil || !strings.Contains(err.Error(), "--offline") {
			t.Errorf("without --offline: %v", err)
		}
		t.whileWaiting(v, was, "apply", a, b)
		next := b.next("next")
		t.wantCSI(v, was)
		t.wantMounts(v, next.pod, false, true)
		next.writes()
		next.note()
		if rebuilds := distribution.Reconstruction(); !minor().Has(rebuilds) {
			if _, err := t.migrate("rollback", "--yes", v.name); err == nil || !strings.Contains(err.Error(), rebuilds.Without) {
				t.Errorf("rollback under a pod: %v, want %q", err, rebuilds.Without)
			}
			t.wantCSI(v, was)
		}
		t.whileWaiting(v, nil, "rollback", next)
		t.wantFlex(v, was)
		last := next.next("last")
		t.wantMounts(v, last.pod, true, false)
		last.writes()
		t.delete(last.pod)
	})
	t.waitIdle(v)
}

// whileWaiting begins something that has to wait until pods are stopped, and
// stops them one by one.
func (t *T) whileWaiting(v *volume, was *corev1.PersistentVolume, command string, writers ...*writer) {
	t.Helper()
	waits := make(chan struct{})
	waiting := sync.OnceFunc(func() { close(waits) })
	var all sync.WaitGroup
	var results []result
	var err error
	all.Go(func() {
		results, err = t.migrateAt(func(_ *migration, line string) {
			if strings.Contains(line, "stop it, by whatever makes it") {
				waiting()
			}
		}, command, "--yes", "--offline", "--timeout", "4m", v.name)
		waiting()
	})
	<-waits
	for _, w := range writers {
		time.Sleep(3 * time.Second)
		w.writes()
		if is := t.persistentVolume(v); is.DeletionTimestamp != nil || was != nil && is.UID != was.UID {
			t.Errorf("while pod %s has it the volume is %+v", w.pod.Name, is)
		}
		t.delete(w.pod)
	}
	all.Wait()
	t.wantDone(results, err)
}
