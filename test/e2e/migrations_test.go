package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/flex2csi/flex2csi/test/csidriver"
	"github.com/flex2csi/flex2csi/test/csidriver/calls"
)

// migrations are FlexVolumes that become CSI volumes under their pods, and back.
func migrations() []scenario {
	of := func(d func() driver, f func(*T, *volume)) func(*T) {
		return func(t *T) {
			v := t.volume(d(), "data")
			t.follow(v)
			f(t, v)
		}
	}
	return []scenario{
		{"migrate-live", "a pod writes while its PersistentVolume becomes a CSI one: no line is lost, nothing is unstaged or detached but once", of(disk, migrateLive)},
		{"migrate-live-attached", "… with attach: true", of(attached, migrateLive)},
		{"migrate-live-share", "… without attaching", of(share, migrateLive)},
		{"migrate-live-nostage", "… without staging", of(nostage, migrateLive)},
		{"migrate-live-unattached", "… which the control plane attaches, and the bridge has not: there and back, as with ceph-csi's RBD", of(unattached, rollbackLive)},
		{"migrate-two-pods", "two pods on one claim, which go one after the other", of(disk, migrateTwo)},
		{"migrate-two-pods-attached", "… with attach: true", of(attached, migrateTwo)},
		{"migrate-statefulset", "a StatefulSet of three, migrated by its namespace and restarted later", migrateStatefulSet},
		{"migrate-rollback-live", "there and back under a pod: the volume is what it was", of(disk, rollbackLive)},
		{"migrate-rollback-live-attached", "… with attach: true", of(attached, rollbackLive)},
		{"migrate-rollback-later", "back under a pod that was started after the migration: its VolumeAttachment must not name the PersistentVolume any more", of(disk, rollbackLater)},
		{"migrate-rollback-later-attached", "… with attach: true", of(attached, rollbackLater)},
		{"migrate-rollback-later-share", "… without attaching", of(share, rollbackLater)},
		{"migrate-rollback-later-nostage", "… without staging", of(nostage, rollbackLater)},
		{"migrate-two-drivers", "one FlexVolume driver for two CSI drivers: a pod with a volume of each, there and back", migrateTwoDrivers},
		{"migrate-gce", "the GCE PD driver's code: there, back, and there again under a pod", migrateGCE},
	}
}

// wantUndoneOnce checks that a volume was unstaged and detached once, however
// often it was staged at the same path: both the bridge and the kubelet's CSI
// plugin do that, and each of them may do it again.
func (t *T) wantUndoneOnce(v *volume) {
	t.Helper()
	want := map[string]int{}
	if v.driver != nostage() {
		want["NodeUnstageVolume"] = 1
	}
	if v.csi == disk().csi {
		want["ControllerUnpublishVolume"] = 1
	}
	t.wantCalls(v, want)
}

// backOff is how long the kubelet waits at most until it tries again what was
// refused (pkg/util/goroutinemap/exponentialbackoff, Kubernetes v1.37.1).
const backOff = 2*time.Minute + 2*time.Second

// waitIdle waits until nothing on the node or in the cluster has the volume. The
// kubelet does not unstage what the bridge has mounted as well, tries again after
// its back-off, and only then kube-controller-manager detaches.
func (t *T) waitIdle(v *volume) {
	t.Helper()
	err := retry(backOff+t.patience, func() error {
		views, err := csidriver.Inspect(v.storage())
		if err != nil {
			return err
		}
		if view := views[v.handle]; !view.Idle() {
			return fmt.Errorf("attached to %v, on nodes %v", view.AttachedTo, view.Nodes)
		}
		if a := t.attachmentOf(v); a != nil {
			return fmt.Errorf("there is VolumeAttachment %s", a.Name)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("the end of the volume's use: %v", err)
	}
}

// stays watches a pod for longer than the control plane takes until it detaches
// what it believes to be out of use: its desired state of the world is gone
// through once a minute (pkg/controller/volume/attachdetach, Kubernetes v1.37.1), and
// a detach that it takes for unfinished is repeated after two minutes more
// (pkg/volume/csi/csi_attacher.go, waitForVolumeDetachmentWithLister).
func (t *T) stays(w *writer) {
	t.Helper()
	for began := time.Now(); time.Since(began) < 195*time.Second; {
		time.Sleep(5 * time.Second)
		w.writes()
	}
	list, err := w.v.calls()
	t.must(err)
	for _, c := range detachesUnder(list, w.pod) {
		t.Errorf("the control plane tried to detach %s under pod %s: %s", w.v.handle, w.pod.Name, c.Message)
	}
}

// detachesUnder are the detaches while the volume was published for the pod. A pod that
// comes while the control plane detaches is not counted for what it had not yet: its mount
// unpublishes again, and waits for the end of the detach.
func detachesUnder(list []calls.Call, pod *corev1.Pod) (under []calls.Call) {
	published := false
	for _, c := range list {
		its := strings.Contains(c.Path, string(pod.UID))
		switch {
		case its && c.Method == "NodePublishVolume":
			published = true
		case its && c.Method == "NodeUnpublishVolume":
			published = false
		case published && c.Method == "ControllerUnpublishVolume":
			under = append(under, c)
		}
	}
	return under
}

// TestDetachesUnder has the calls of a pod that came during a detach, and then of one
// that loses its volume.
func TestDetachesUnder(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "uid"}}
	call := func(method, path string) calls.Call { return calls.Call{Method: method, Path: path} }
	list := []calls.Call{
		call("NodePublishVolume", "pods/other"),
		call("ControllerUnpublishVolume", ""),
		call("NodePublishVolume", "pods/uid"),
		call("NodeUnpublishVolume", "pods/uid"),
		call("ControllerUnpublishVolume", ""),
		call("NodePublishVolume", "pods/uid"),
	}
	if got := detachesUnder(list, pod); len(got) > 0 {
		t.Errorf("before the pod had the volume: %+v", got)
	}
	list = append(list, call("NodeUnpublishVolume", "pods/other"), call("ControllerUnpublishVolume", ""))
	if got := detachesUnder(list, pod); len(got) != 1 {
		t.Errorf("under the pod: %+v, want one", got)
	}
}

// A claimWatch sees for how long a claim is Lost.
type claimWatch struct {
	t     *T
	watch watch.Interface
	done  chan struct{}
	lost  time.Duration
	times int
}

func (t *T) watchClaim(v *volume) *claimWatch {
	t.Helper()
	changes, err := t.client.CoreV1().PersistentVolumeClaims(t.Namespace).Watch(t.ctx(), metav1.SingleObject(metav1.ObjectMeta{Name: v.name}))
	t.must(err)
	c := &claimWatch{t: t, watch: changes, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		var since time.Time
		for event := range changes.ResultChan() {
			claim, ok := event.Object.(*corev1.PersistentVolumeClaim)
			switch {
			case !ok:
			case claim.Status.Phase == corev1.ClaimLost && since.IsZero():
				since = time.Now()
				c.times++
			case claim.Status.Phase == corev1.ClaimBound && !since.IsZero():
				c.lost += time.Since(since)
				since = time.Time{}
			}
		}
	}()
	return c
}

// note ends it.
func (c *claimWatch) note() {
	c.watch.Stop()
	<-c.done
	c.t.note("the claim was seen Lost for %.2f s", c.lost.Seconds())
	if c.times > 1 {
		c.t.Errorf("the claim was Lost %d times", c.times)
	}
}

func migrateLive(t *T, v *volume) {
	w := t.writer("pod", v)
	was := t.persistentVolume(v)
	lost := t.watchClaim(v)
	t.toCSI(v.name)
	lost.note()
	t.wantCSI(v, was)
	t.wantMounts(v, w.pod, true, true)
	w.writes()
	w.note()
	t.delete(w.pod)
	t.waitIdle(v)
	t.wantUndoneOnce(v)

	next := w.next("next")
	next.writes()
	t.wantMounts(v, next.pod, false, true)
	t.delete(next.pod)
}

func migrateTwo(t *T, v *volume) {
	a, b := t.writer("a", v), t.writer("b", v)
	was := t.persistentVolume(v)
	t.toCSI(v.name)
	t.wantCSI(v, was)
	for _, w := range []*writer{a, b} {
		t.wantMounts(v, w.pod, true, true)
		w.writes()
		w.note()
	}
	t.delete(a.pod)
	b.writes()
	c := a.next("c") // while b still has both mounts
	t.wantMounts(v, c.pod, false, true)
	t.delete(b.pod)
	c.writes()
	t.delete(c.pod)
	t.waitIdle(v)
	t.wantUndoneOnce(v)
}

// migrateTwoDrivers: each volume becomes one of its own CSI driver.
func migrateTwoDrivers(t *T) {
	disk, share := t.bothVolumes()
	a, b := t.writer("a", disk), t.writer("b", share)
	wasDisk, wasShare := t.persistentVolume(disk), t.persistentVolume(share)
	t.toCSI("--namespace", t.Namespace, "--width", "2")
	t.wantCSI(disk, wasDisk)
	t.wantCSI(share, wasShare)
	for _, w := range []*writer{a, b} {
		t.wantMounts(w.v, w.pod, true, true)
	}
	t.toFlex(disk.name, share.name)
	t.wantFlex(disk, wasDisk)
	t.wantFlex(share, wasShare)
	for _, w := range []*writer{a, b} {
		w.writes()
		w.note()
		t.delete(w.pod)
		t.waitIdle(w.v)
	}
}

func migrateStatefulSet(t *T) {
	const set = "web"
	var volumes []*volume
	for i := range 3 {
		volumes = append(volumes, t.volume(disk(), fmt.Sprint(i), func(v *volume) { v.name = fmt.Sprintf("%s-%s-%d", t.Namespace, set, i) }))
	}
	s := t.createSet(set, volumes)
	t.Cleanup(func() { t.check(t.endSet(set)) })
	t.wait("the StatefulSet", func() error { return t.setReady(set) })
	before := t.writersOf(s, volumes)
	results := t.toCSI("--namespace", t.Namespace, "--width", "3")
	if len(results) != len(volumes) {
		t.Errorf("%d volumes were migrated", len(results))
	}
	for _, w := range before {
		w.writes()
		w.note()
	}
	out, err := t.kubectl("rollout", "restart", "--namespace", t.Namespace, "statefulset/"+set)
	t.must(withText(err, out))
	// One pod after the other.
	t.must(retry(3*t.patience, func() error { return t.setReady(set) }))
	for i, w := range t.writersOf(s, volumes) {
		if w.pod.UID == before[i].pod.UID {
			t.Errorf("pod %s is the one that it was", w.pod.Name)
		}
		w.writes()
		t.wantMounts(volumes[i], w.pod, false, true)
	}
}

// endSet deletes a StatefulSet, which would re-create its pods.
func (t *T) endSet(name string) error {
	return t.client.AppsV1().StatefulSets(t.Namespace).Delete(t.ctx(), name, metav1.DeleteOptions{})
}

// createSet makes a StatefulSet of writers with existing claims.
func (t *T) createSet(name string, volumes []*volume, change ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	t.Helper()
	replicas := int32(len(volumes))
	pod := t.newPod("", writing("/data/log"))
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: t.Namespace, MountPath: "/data"}}
	labels := map[string]string{"set": name}
	class := "grows"
	s := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{
			ServiceName: name, Replicas: &replicas, PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: t.Namespace},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class,
					Resources: corev1.VolumeResourceRequirements{Requests: volumes[0].capacity()},
				},
			}},
		},
	}
	for _, f := range change {
		f(s)
	}
	s, err := t.client.AppsV1().StatefulSets(t.Namespace).Create(t.ctx(), s, metav1.CreateOptions{})
	t.must(err)
	return s
}

func (t *T) setReady(name string) error {
	s, err := t.client.AppsV1().StatefulSets(t.Namespace).Get(t.ctx(), name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	now := s.Status
	if now.ObservedGeneration != s.Generation || now.ReadyReplicas != *s.Spec.Replicas || now.UpdatedReplicas != *s.Spec.Replicas {
		return fmt.Errorf("of %d pods %d are ready and %d up to date", *s.Spec.Replicas, now.ReadyReplicas, now.UpdatedReplicas)
	}
	return nil
}

// writersOf are the pods of a StatefulSet, in the order of its volumes.
func (t *T) writersOf(s *appsv1.StatefulSet, volumes []*volume) []*writer {
	t.Helper()
	var writers []*writer
	for i, v := range volumes {
		pod, err := t.client.CoreV1().Pods(t.Namespace).Get(t.ctx(), fmt.Sprintf("%s-%d", s.Name, i), metav1.GetOptions{})
		t.must(err)
		t.mu.Lock()
		t.pods[pod.UID] = pod.Name
		t.mu.Unlock()
		writers = append(writers, &writer{t: t, pod: pod, v: v, log: "/data/log"})
	}
	return writers
}

func rollbackLive(t *T, v *volume) {
	w := t.writer("pod", v)
	was := t.persistentVolume(v)
	t.toCSI(v.name)
	t.wantCSI(v, was)
	t.toFlex(v.name)
	t.wantFlex(v, was)
	w.writes()
	w.note()
	other := t.writer("other", v)
	t.wantMounts(v, other.pod, true, false)
	t.delete(w.pod)
	other.writes()
	next := w.next("next")
	next.writes()
	t.delete(other.pod)
	next.writes()
	t.delete(next.pod)
	t.waitIdle(v)
	t.wantUndoneOnce(v)
}

func rollbackLater(t *T, v *volume) {
	w := t.writer("pod", v)
	was := t.persistentVolume(v)
	t.toCSI(v.name)
	t.delete(w.pod)
	t.waitIdle(v)
	later := w.next("later")
	if v.driver == nostage() { // a person knows that it binds
		t.toFlex("--accept", "kubelet-restart", v.name)
	} else {
		t.toFlex(v.name)
	}
	t.wantFlex(v, was)
	t.wantMounts(v, later.pod, true, true)
	later.writes()
	later.note()
	t.delete(later.pod)
	// At once: the control plane believes for up to a minute that later has the CSI
	// volume, and deletes the VolumeAttachment only then.
	next := later.pending("next")
	if v.driver == attached() {
		// Up to a minute more until it sees that the FlexVolume is not attached either
		// (--attach-detach-reconcile-sync-period).
		t.waitReadyAfter(time.Minute, next.pod)
	} else {
		t.waitReady(next.pod)
	}
	if v.csi == disk().csi {
		t.stays(next)
	}
	next.writes()
	t.wantMounts(v, next.pod, true, false)
	t.delete(next.pod)
	t.waitIdle(v)
}
