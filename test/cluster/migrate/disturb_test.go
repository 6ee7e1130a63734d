package migrate_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/test/controlplane"
	"github.com/flex2csi/flex2csi/test/testenv"
)

func deleted(r controlplane.Request) bool {
	return r.Verb == "delete" && r.Resource == "persistentvolumes" && !r.DryRun
}

func patched(r controlplane.Request) bool {
	return r.Verb == "patch" && r.Resource == "persistentvolumes" && !r.DryRun
}

// TestDisturbed has others do what they do, at the worst moment.
func TestDisturbed(t *testing.T) {
	w := start(t)
	w.guard()
	for _, test := range []struct {
		name string
		run  func(*world)
	}{
		{"NoAnswer", testNoAnswer},
		{"APIAway", testAPIAway},
		{"AwayForLong", testAwayForLong},
		{"Twice", testTwice},
		{"Asleep", testAsleep},
		{"DirectoryLost", testDirectoryLost},
		{"ConfigMapLost", testConfigMapLost},
		{"JournalLost", testJournalLost},
		{"GitOps", testGitOps},
		{"NameTaken", testNameTaken},
		{"ClaimDeleted", testClaimDeleted},
		{"ClaimCreatedAgain", testClaimCreatedAgain},
		{"ForeignFinalizer", testForeignFinalizer},
		{"Edited", testEdited},
		{"HandleTaken", testHandleTaken},
		{"PodComes", testPodComes},
		{"DriverGone", testDriverGone},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(w.with(t)) })
	}
}

// testNoAnswer: each request that changes something has no answer once, be it
// done or not.
func testNoAnswer(w *world) {
	for n := 1; ; n++ {
		s := w.withPod(fmt.Sprintf("no-answer-%d", n))
		o := w.migrator(controlplane.Admin)
		met := false
		o.proxy.At(&controlplane.Moment{N: n, Fits: controlplane.Request.Changes, After: n%2 == 0, Then: func() { met = true }})
		r := o.begin("apply", s.name, "--accept", "reclaim-policy")
		r.wait()
		o.proxy.At(nil)
		if r.code() != 0 { // it may stop, and say so
			s.kept()
			o.do(0, "resume", s.name)
			w.t.Logf("no answer to %v: stopped, and went on with resume", o.last())
		}
		s.migrated()
		o.harmless()
		s.gone()
		o.proxy.Away()
		if w.t.Failed() {
			w.t.Fatalf("%d:\n%s", n, &r.out)
		}
		if !met {
			w.t.Logf("%d requests without an answer", n-1)
			break
		}
	}
}

// testAPIAway: the API server is away for some seconds, in the middle.
func testAPIAway(w *world) {
	for i, fits := range []func(controlplane.Request) bool{patched, deleted, created, nudged} {
		s := w.withPod(fmt.Sprintf("away-%d", i))
		o := w.migrator(controlplane.Admin)
		r := o.at(controlplane.Moment{N: 1, Fits: fits, After: i%2 == 0, Then: func() {
			go func() {
				o.proxy.Away()
				time.Sleep(5 * time.Second)
				o.proxy.Back()
			}()
		}}, "apply", s.name, "--accept", "reclaim-policy")
		if r.code() != 0 {
			w.t.Logf("%d: stopped:\n%s", i, &r.out)
			o.do(0, "resume", s.name)
		}
		s.migrated()
		o.harmless()
		s.gone()
	}
}

func nudged(r controlplane.Request) bool {
	return r.Verb == "patch" && r.Resource == "persistentvolumeclaims" && !r.DryRun
}

// testAwayForLong: it is away for longer than any wait lasts. While there is no
// volume the program goes on to try nevertheless; else it ends, and says what is
// to be done. That works.
func testAwayForLong(w *world) {
	for i, then := range []string{"resume", "rollback"} {
		s := w.idle(fmt.Sprintf("away-for-long-%d", i))
		o := w.migrator(controlplane.Admin)
		o.patience = 5 * time.Second
		o.proxy.At(&controlplane.Moment{N: 1, Fits: created, Then: func() { go o.proxy.Away() }})
		r := o.begin("apply", s.name)
		testenv.Eventually(w.t, "it finds no server", func() bool { return strings.Contains(r.out.String(), "connection refused") })
		time.Sleep(3 * o.patience)
		r.killedSaying("connection refused")
		o.proxy.Back()
		s.kept()
		o.patience = time.Minute
		o.do(0, then, s.name)
		s.is(then)
		s.gone()
	}
	s := w.idle("away-afterwards")
	o := w.migrator(controlplane.Admin)
	o.patience = 5 * time.Second
	r := o.at(controlplane.Moment{N: 1, Fits: nudged, Then: func() { go o.proxy.Away() }}, "apply", s.name)
	r.wants(1, "resume", s.name)
	o.proxy.Back()
	o.do(0, "resume", s.name)
	s.migrated()
	s.gone()
}

// is wants the volume to be what it is after a command.
func (s *subject) is(after string) {
	s.w.t.Helper()
	if after == "rollback" {
		s.untouched()
		return
	}
	s.migrated()
}

// testTwice: two operators at once. The second one waits, or says who is at it.
func testTwice(w *world) {
	s := w.idle("twice")
	one, two := w.migrator(controlplane.Admin), w.migrator(controlplane.Admin)
	one.proxy.Slow(100 * time.Millisecond)
	first := one.begin("apply", s.name)
	testenv.Eventually(w.t, "the first one is at it", func() bool { return one.onDisk(s.name) != nil })
	second := two.begin("apply", s.name)
	first.wait()
	first.wants(0)
	second.wait()
	w.t.Logf("the second one: exit code %d\n%s", second.code(), &second.out)
	s.migrated()
	if record := w.inCluster(s.name); record.Stage != "Finished" {
		w.t.Errorf("the second one has written into the journal: %s", record)
	}
	var changes int
	for _, r := range append(one.trace(), two.trace()...) {
		if deleted(r) || created(r) {
			changes++
		}
	}
	if changes != 2 {
		w.t.Errorf("%d times something was deleted and created, want 2", changes)
	}
	s.gone()
}

// testAsleep: a program that slept for longer than its lease holds finds that
// another process has continued, and changes nothing.
func testAsleep(w *world) {
	s := w.idle("asleep")
	one, two := w.migrator(controlplane.Admin), w.migrator(controlplane.Admin)
	var r *run
	ready := make(chan struct{})
	asleep := make(chan struct{})
	one.proxy.At(&controlplane.Moment{N: 1, Fits: deleted, Then: func() {
		<-ready
		w.check(r.command.Process.Signal(syscall.SIGSTOP))
		close(asleep)
	}})
	r = one.begin("apply", s.name)
	close(ready)
	<-asleep
	one.trace()
	other := two.begin("rollback", s.name)
	other.wait()
	w.t.Logf("the other: exit code %d\n%s", other.code(), &other.out)
	before := w.volume(s.name)
	w.check(r.command.Process.Signal(syscall.SIGCONT))
	r.wait()
	w.t.Logf("the first: exit code %d\n%s", r.code(), &r.out)
	if other.code() != 0 || r.code() != 1 {
		w.t.Errorf("exit codes %d and %d", other.code(), r.code())
	}
	if record := w.inCluster(s.name); record.Direction != "ToFlexVolume" || record.Stage != "Finished" {
		w.t.Errorf("the journal says %s", record)
	}
	for _, q := range one.trace() {
		if q.Changes() && q.Resource != "leases" && q.Resource != "configmaps" { // which is a conflict
			w.t.Errorf("after it had lost the lease it has asked for %s %s", q, q.Name)
		}
	}
	if after := w.volume(s.name); after.UID != before.UID || after.DeletionTimestamp != nil {
		w.t.Errorf("the volume was changed: %+v", after)
	}
	s.untouched()
	s.gone()
}

func testDirectoryLost(w *world) {
	for i, then := range []string{"resume", "rollback"} {
		s := w.withPod(fmt.Sprintf("directory-lost-%d", i))
		o := w.migrator(controlplane.Admin)
		killedAt(controlplane.Moment{N: 1, Fits: created})(o, s)
		other := w.migrator(controlplane.Admin) // another machine
		other.do(0, then, s.name)
		if then == "resume" {
			s.migrated()
			other.do(0, "rollback", s.name)
		}
		s.untouched()
		s.gone()
	}
}

func testConfigMapLost(w *world) {
	for i, then := range []string{"resume", "rollback"} {
		s := w.withPod(fmt.Sprintf("configmap-lost-%d", i))
		o := w.migrator(controlplane.Admin)
		killedAt(controlplane.Moment{N: 1, Fits: created})(o, s)
		w.journalLost()
		o.do(1, then, s.name) // nothing goes on by a copy
		w.journalRestored(o, s.name)
		o.do(0, then, s.name)
		if then == "resume" {
			s.migrated()
			w.journalLost()
			o.do(0, "rollback", s.name)
		}
		s.untouched()
		if r := w.inCluster(s.name); r == nil {
			w.t.Error("the cluster does not know of it any more")
		}
		s.gone()
	}
}

// journalLost deletes the journal in the cluster.
func (w *world) journalLost() {
	w.t.Helper()
	w.check(w.Admin().CoreV1().ConfigMaps(migrate.Namespace).DeleteCollection(w.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "flex2csi.io/migration"}))
}

// journalRestored creates the ConfigMap of a volume as kubectl create -f does with its copy.
func (w *world) journalRestored(o *migrator, volume string) {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(o.dir, volume+".json"))
	w.check(err)
	var m corev1.ConfigMap
	w.check(json.Unmarshal(text, &m))
	_, err = w.Admin().CoreV1().ConfigMaps(migrate.Namespace).Create(w.t.Context(), &m, metav1.CreateOptions{})
	w.check(err)
}

// testJournalLost: all that is left is the volume itself.
func testJournalLost(w *world) {
	s := w.withPod("journal-lost")
	applied(w.migrator(controlplane.Admin), s)
	w.journalLost()
	o := w.migrator(controlplane.Admin)
	o.do(0, "rollback", s.name)
	s.untouched()
	s.gone()
}

// testGitOps: a GitOps tool creates the old volume again while there is
// none.
func testGitOps(w *world) {
	for i, then := range []string{"resume", "rollback"} {
		s := w.idle(fmt.Sprintf("put-back-%d", i))
		o := w.migrator(controlplane.Admin)
		manifest := s.volume.DeepCopy()
		manifest.ObjectMeta = metav1.ObjectMeta{Name: s.name, Labels: manifest.Labels, Annotations: manifest.Annotations}
		manifest.Spec.ClaimRef.ResourceVersion = ""
		r := o.at(controlplane.Moment{N: 1, Fits: created, Then: func() {
			_, err := w.Admin().CoreV1().PersistentVolumes().Create(w.t.Context(), manifest, metav1.CreateOptions{})
			w.check(err)
		}}, "apply", s.name)
		r.wants(1, s.name)
		w.t.Logf("%s", &r.out)
		testenv.Eventually(w.t, "the claim is bound to it", func() bool { return w.claim(s.name).Status.Phase == corev1.ClaimBound })
		s.untouched()
		next := o.begin(then, s.name)
		next.wait()
		w.t.Logf("%s: %d\n%s", then, next.code(), &next.out)
		s.kept()
		if next.code() == 0 && then == "resume" {
			s.migrated()
		} else {
			s.untouched()
		}
		s.gone()
	}
}

// testNameTaken: another client creates another volume of that name.
func testNameTaken(w *world) {
	s := w.idle("name-taken")
	o := w.migrator(controlplane.Admin)
	other := s.volume.DeepCopy()
	other.ObjectMeta = metav1.ObjectMeta{Name: s.name}
	other.Spec.ClaimRef = nil
	other.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: csiDriver, VolumeHandle: "something-else"}}
	r := o.at(controlplane.Moment{N: 1, Fits: created, Then: func() {
		_, err := w.Admin().CoreV1().PersistentVolumes().Create(w.t.Context(), other, metav1.CreateOptions{})
		w.check(err)
	}}, "apply", s.name)
	r.wants(1, s.name)
	w.t.Logf("%s", &r.out)
	next := o.begin("rollback", s.name)
	next.wait()
	w.t.Logf("rollback: %d\n%s", next.code(), &next.out)
	if now := w.volume(s.name); now.Spec.CSI == nil || now.Spec.CSI.VolumeHandle != "something-else" || now.DeletionTimestamp != nil {
		w.t.Errorf("another client's object was changed: %+v", now)
	}
	if next.code() != 1 {
		w.t.Error("rollback is content")
	}
	// The person takes it away: then it can go on.
	w.takeAway(s.name)
	o.do(0, "rollback", s.name)
	s.untouched()
	s.gone()
}

// testClaimDeleted: the claim goes while there is no volume. What is stored must
// stay.
func testClaimDeleted(w *world) {
	s := w.idle("claim-deleted")
	w.annotate(s.name, "test/over", "true")
	o := w.migrator(controlplane.Admin)
	o.patience = 20 * time.Second
	r := o.at(controlplane.Moment{N: 1, Fits: created, Then: func() {
		w.deleteClaim(s.name)
	}}, "apply", s.name)
	r.wants(1, s.name)
	w.t.Logf("%s", &r.out)
	for range 2 {
		next := o.begin("resume", s.name)
		next.wait()
		w.t.Logf("resume: %d\n%s", next.code(), &next.out)
	}
	next := o.begin("rollback", s.name)
	next.wait()
	w.t.Logf("rollback: %d\n%s", next.code(), &next.out)
	pv, err := w.Admin().CoreV1().PersistentVolumes().Get(w.t.Context(), s.name, metav1.GetOptions{})
	if err != nil {
		w.t.Logf("there is no volume: %v", err)
		if r := o.onDisk(s.name); r == nil || len(r.Flex) == 0 {
			w.t.Error("and no journal")
		}
		return
	}
	if pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
		w.t.Errorf("policy %s", pv.Spec.PersistentVolumeReclaimPolicy)
	}
	if ref := pv.Spec.ClaimRef; ref == nil || ref.UID != s.claim.UID {
		w.t.Errorf("it is free for others: %+v", pv.Spec.ClaimRef)
	}
}

func (w *world) deleteClaim(name string) {
	w.t.Helper()
	claims := w.Admin().CoreV1().PersistentVolumeClaims("default")
	_, err := claims.Patch(w.t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	w.check(err)
	w.check(claims.Delete(w.t.Context(), name, metav1.DeleteOptions{}))
}

// testClaimCreatedAgain: another claim of the same name must not get the volume by
// accident.
func testClaimCreatedAgain(w *world) {
	s := w.idle("claim-again")
	w.annotate(s.name, "test/over", "true")
	o := w.migrator(controlplane.Admin)
	o.patience = 20 * time.Second
	r := o.at(controlplane.Moment{N: 1, Fits: created, Then: func() {
		w.deleteClaim(s.name)
		again := s.claim.DeepCopy()
		again.ObjectMeta = metav1.ObjectMeta{Name: s.name}
		_, err := w.Admin().CoreV1().PersistentVolumeClaims("default").Create(w.t.Context(), again, metav1.CreateOptions{})
		w.check(err)
	}}, "apply", s.name)
	r.wants(1, s.name)
	w.t.Logf("%s", &r.out)
	if c := w.claim(s.name); c.Status.Phase == corev1.ClaimBound {
		w.t.Errorf("the new claim is bound: %+v", c)
	}
	next := o.begin("rollback", s.name)
	next.wait()
	w.t.Logf("rollback: %d\n%s", next.code(), &next.out)
	s.gone()
}

// testForeignFinalizer: another client puts a finalizer on the volume after the plan,
// right before it is deleted.
func testForeignFinalizer(w *world) {
	s := w.idle("foreign-finalizer")
	o := w.migrator(controlplane.Admin)
	r := o.at(controlplane.Moment{N: 1, Fits: deleted, Then: func() {
		w.change(s.name, func(pv *corev1.PersistentVolume) { pv.Finalizers = append(pv.Finalizers, "example.com/keep") })
	}}, "apply", s.name)
	r.wants(1, s.name)
	w.t.Logf("%s", &r.out)
	if now := w.volume(s.name); now.DeletionTimestamp != nil || !strings.Contains(strings.Join(now.Finalizers, " "), "example.com/keep") {
		w.t.Errorf("it was deleted nevertheless: %+v", now.ObjectMeta)
	}
	next := o.begin("resume", s.name)
	next.wait()
	next.wants(1, "example.com/keep")
	w.change(s.name, func(pv *corev1.PersistentVolume) { pv.Finalizers = []string{"kubernetes.io/pv-protection"} })
	o.do(0, "resume", s.name)
	s.migrated()
	s.gone()
}

// testEdited: another client changes the volume between the plan and the deletion.
func testEdited(w *world) {
	s := w.idle("changed")
	o := w.migrator(controlplane.Admin)
	r := o.at(controlplane.Moment{N: 1, Fits: deleted, Then: func() {
		w.change(s.name, func(pv *corev1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
			pv.Labels["tier"] = "web"
		})
	}}, "apply", s.name)
	w.t.Logf("%d\n%s", r.code(), &r.out)
	// It may go on with the volume as it is now, or stop: never by what was before.
	if r.code() == 0 {
		s.migrated()
		if now := w.volume(s.name); now.Labels["tier"] != "web" {
			w.t.Errorf("the change is lost: %+v", now.Labels)
		}
		s.gone()
		return
	}
	if now := w.volume(s.name); now.DeletionTimestamp != nil || now.Spec.FlexVolume == nil {
		w.t.Errorf("%+v", now)
	}
	s.gone()
}

// testHandleTaken: another volume comes that is the same one.
func testHandleTaken(w *world) {
	s := w.idle("handle-taken")
	o := w.migrator(controlplane.Admin)
	journalled := func(r controlplane.Request) bool { return r.Resource == "configmaps" && r.Verb == "create" }
	r := o.at(controlplane.Moment{N: 1, Fits: journalled, After: true, Then: func() {
		w.PersistentVolume("handle-taker", corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: csiDriver, VolumeHandle: "vol-" + s.name}})
	}}, "apply", s.name)
	r.wants(1, "handle-taker")
	o.do(0, "rollback", s.name)
	s.untouched()
	s.gone()
}

// testPodComes: a pod begins to use an idle volume, which no pod has any more.
func testPodComes(w *world) {
	for i, fits := range []func(controlplane.Request) bool{deleted, created} {
		s := w.idle(fmt.Sprintf("pod-comes-%d", i))
		o := w.migrator(controlplane.Admin)
		o.patience = 20 * time.Second
		r := o.at(controlplane.Moment{N: 1, Fits: fits, Then: func() { s.pod = w.pod(s.name, "node-2", s.name) }}, "apply", s.name)
		r.wants(1, "put back")
		s.untouched()
		s.gone()
	}
}

// testDriverGone: the CSI driver goes from the node after the plan.
func testDriverGone(w *world) {
	s := w.withPod("driver-gone")
	o := w.migrator(controlplane.Admin)
	journalled := func(r controlplane.Request) bool { return r.Resource == "configmaps" && r.Verb == "create" }
	r := o.at(controlplane.Moment{N: 1, Fits: journalled, After: true, Then: func() { w.unregister("node-1") }}, "apply", s.name, "--accept", "reclaim-policy")
	r.wants(1, "is not registered with the kubelet of node node-1")
	w.register("node-1")
	s.kept()
	if w.volume(s.name).Spec.FlexVolume == nil {
		w.t.Error("it was replaced")
	}
	o.do(0, "rollback", s.name)
	s.untouched()
	s.gone()
}

func (w *world) unregister(node string) {
	w.t.Helper()
	_, err := w.Admin().StorageV1().CSINodes().Patch(w.t.Context(), node, types.MergePatchType, []byte(`{"spec":{"drivers":[]}}`), metav1.PatchOptions{})
	w.check(err)
}

func (w *world) register(node string) {
	w.t.Helper()
	_, err := w.Admin().StorageV1().CSINodes().Patch(w.t.Context(), node, types.MergePatchType, []byte(`{"spec":{"drivers":[{"name":"`+csiDriver+`","nodeID":"id"}]}}`), metav1.PatchOptions{})
	w.check(err)
}

// trace is all that was asked for since the last time.
func (o *migrator) trace() []controlplane.Request {
	trace := o.proxy.Trace()
	o.seen = append(o.seen, trace...)
	return trace
}
