package migrate_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/test/controlplane"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// TestRun: migrations and rollbacks, on one control plane.
func TestRun(t *testing.T) {
	w := start(t)
	for _, test := range []struct {
		name string
		run  func(*world)
	}{
		{"Live", testLive},
		{"OldDocument", testOldDocument},
		{"Idle", testIdle},
		{"Unclaimed", testUnclaimed},
		{"Policy", testPolicy},
		{"PutBackByOthers", testPutBackByOthers},
		{"Foreign", testForeign},
		{"Refused", testRefusedInWindow},
		{"Finalizer", testFinalizer},
		{"Away", testAway},
		{"Changed", testChanged},
		{"Offline", testOffline},
		{"Comes", testComes},
		{"ComesElsewhere", testComesElsewhere},
		{"NoPodComes", testNoPodComes},
		{"Rolling", testRolling},
		{"RollingPutBack", testRollingPutBack},
		{"Batch", testBatch},
		{"Enough", testEnough},
		{"Rollback", testRollback},
		{"RollbackLive", testRollbackLive},
		{"RollbackRefused", testRollbackRefused},
		{"RollbackHalfWay", testRollbackHalfWay},
		{"RefusedHalfWay", testRefusedHalfWay},
		{"OfflineAfterLive", testOfflineAfterLive},
		{"NotServed", testNotServed},
		{"ClockBehind", testClockBehind},
		{"NoJournal", testNoJournal},
		{"Reattach", testReattach},
		{"WithoutFinalizer", testWithoutFinalizer},
		{"KubeletRestart", testKubeletRestart},
		{"AnotherCluster", testAnotherCluster},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(w.with(t)) })
	}
}

// testOldDocument: what a node has told before it was started does not say that a
// pod has nothing of the bridge.
func testOldDocument(w *world) {
	w.live("old-doc")
	claim := w.claim("old-doc").UID
	documents := w.Admin().CoreV1().ConfigMaps(bridgestatus.Namespace)
	put := func(text string) {
		o, err := documents.Get(context.Background(), "node-1", metav1.GetOptions{})
		w.check(err)
		o.Data[bridgestatus.Key] = text
		_, err = documents.Update(context.Background(), o, metav1.UpdateOptions{})
		w.check(err)
	}
	o, err := documents.Get(w.t.Context(), "node-1", metav1.GetOptions{})
	w.check(err)
	good := o.Data[bridgestatus.Key]
	p := w.operator(migrate.Options{Timeout: 5 * time.Second})
	p.when = func(e migrate.Event) {
		if e.What == migrate.Reached && e.Stage == journal.Attached {
			put(strings.ReplaceAll(strings.Replace(good, bootID, "another", 1), "old-doc", "gone"))
		}
	}
	w.came(p.apply("old-doc"), migrate.Unfinished, journal.Attached, "has not mounted the volume")
	put(good)
	p.when, p.Options.Timeout = w.kubelet("node-1"), 0
	w.came(p.resume("old-doc"), migrate.Done, journal.Finished, "")
	w.isCSI("old-doc", claim)
}

// testLive: the order of the requests is what data hangs on.
func testLive(w *world) {
	pod := w.live("live-run")
	claim, was := w.claim("live-run").UID, w.volume("live-run")
	p := w.operator(migrate.Options{})
	p.when = w.kubelet("node-1")
	r := w.came(p.apply("live-run"), migrate.Done, journal.Finished, "")
	w.isCSI("live-run", claim)
	if r.Lost <= 0 || r.TakenOver <= 0 || r.Requests < 20 {
		w.t.Errorf("%+v", r)
	}
	w.t.Logf("lost for %s, %d requests", r.Lost, r.Requests)
	trace := p.proxy.Trace()
	var changes []string
	for _, r := range trace {
		if r.Changes() {
			changes = append(changes, r.Verb+" "+r.Resource)
		}
	}
	if diff := cmp.Diff([]string{
		"create configmaps",            // BackedUp
		"patch configmaps",             // compared with what was written; nothing is changed
		"patch configmaps",             // Retained, which it was
		"patch configmaps",             // Accepted
		"patch configmaps",             // Deleting
		"delete persistentvolumes",     //
		"patch persistentvolumes",      // the finalizers: Lost from here
		"create persistentvolumes",     //
		"patch configmaps",             // Created
		"patch persistentvolumeclaims", // to be looked at
		"patch configmaps",             // Bound
		"patch configmaps",             // Attached
		"patch configmaps",             // TakenOver
		"patch persistentvolumeclaims", // the annotation goes
		"patch configmaps",             // Finished
	}, changes); diff != "" {
		w.t.Errorf("(-want +got):\n%s", diff)
	}
	w.between(trace)
	if now, err := w.Admin().CoreV1().Pods("default").Get(w.t.Context(), pod.Name, metav1.GetOptions{}); err != nil || now.UID != pod.UID || now.DeletionTimestamp != nil {
		w.t.Errorf("%+v %v", now, err)
	}
	w.written(p, "live-run", was)
}

// between wants nothing but looks at the volume, and one at the pods, between the
// requests of the swap, and the journal after it.
func (w *world) between(trace []controlplane.Request) {
	w.t.Helper()
	first := slices.IndexFunc(trace, func(r controlplane.Request) bool { return r.Verb == "delete" && !r.DryRun })
	last := slices.IndexFunc(trace, func(r controlplane.Request) bool {
		return r.Verb == "create" && r.Resource == "persistentvolumes" && !r.DryRun
	})
	var got []string
	for _, r := range trace[first-1 : last+2] {
		got = append(got, r.Verb+" "+r.Resource)
	}
	if diff := cmp.Diff([]string{
		"patch configmaps", "delete persistentvolumes", "get persistentvolumes", "patch persistentvolumes", "get persistentvolumes", "list pods", "create persistentvolumes", "patch configmaps",
	}, got); diff != "" {
		w.t.Errorf("(-want +got):\n%s", diff)
	}
}

// written wants the journal and its copy to have the volume as it was.
func (w *world) written(p *operator, name string, was *corev1.PersistentVolume) {
	w.t.Helper()
	inCluster, err := journal.New(w.cluster(controlplane.Admin), migrate.Namespace, "").Load(w.t.Context(), name)
	w.check(err)
	text, err := os.ReadFile(filepath.Join(p.dir, name+".json"))
	w.check(err)
	var m corev1.ConfigMap
	w.check(json.Unmarshal(text, &m))
	copied := &journal.Record{}
	w.check(json.Unmarshal([]byte(m.Data["record.json"]), copied))
	for _, rec := range []*journal.Record{inCluster, copied} {
		text := string(rec.Flex)
		if rec.Stage != journal.Finished || !strings.Contains(text, string(was.UID)) || !strings.Contains(text, `"resourceVersion":"`+was.ResourceVersion+`"`) {
			w.t.Errorf("%+v", rec)
		}
	}
}

func testIdle(w *world) {
	w.disk("idle-run")
	claim, was := w.claim("idle-run").UID, w.volume("idle-run")
	p := w.operator(migrate.Options{})
	w.came(p.apply("idle-run"), migrate.Done, journal.Finished, "")
	w.isCSI("idle-run", claim)
	w.came(p.rollback("idle-run"), migrate.Done, journal.Finished, "")
	w.isFlex(was, claim)
	w.came(p.apply("idle-run"), migrate.Done, journal.Finished, "") // and once more
	w.isCSI("idle-run", claim)
}

// testUnclaimed: a volume of which the claim is gone stays as it is.
func testUnclaimed(w *world) {
	w.disk("released", func(pv *corev1.PersistentVolume) {
		pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": flexDriver} // else it would be Failed
		pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	})
	w.unclaim("released")
	testenv.Eventually(w.t, "the volume is Released", func() bool { return w.volume("released").Status.Phase == corev1.VolumeReleased })
	pv := w.volume("released")
	p := w.operator(migrate.Options{RestoreReclaimPolicy: true})
	w.came(p.apply("released"), migrate.Done, journal.Finished, "")
	now := w.volume("released")
	if now.Spec.CSI == nil || now.Spec.ClaimRef.UID != pv.Spec.ClaimRef.UID || now.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
		w.t.Errorf("%+v", now)
	}
}

// unclaim deletes the claim of a disk; no controller here removes its finalizer.
func (w *world) unclaim(name string) {
	w.t.Helper()
	claims := w.Admin().CoreV1().PersistentVolumeClaims("default")
	w.check(claims.Delete(w.t.Context(), name, metav1.DeleteOptions{}))
	_, err := claims.Patch(w.t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	w.check(err)
}

// testPolicy: Delete is decided by a person, and given back only to a volume that
// is bound.
func testPolicy(w *world) {
	for _, name := range []string{"policy-kept", "policy-back", "policy-orphan"} {
		w.disk(name, func(pv *corev1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
			pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": flexDriver}
		})
	}
	p := w.operator(migrate.Options{})
	plan := w.plan(migrate.Selection{Names: []string{"policy-kept"}})
	if tasks, left := migrate.Choose(plan, p.Options); len(tasks) > 0 || len(left) != 1 || !strings.Contains(left[0].Why, "--accept") {
		w.t.Errorf("%+v %+v", tasks, left)
	}
	p.Options.Accept = []string{"reclaim-policy"}
	w.came(p.apply("policy-kept"), migrate.Done, journal.Finished, "")
	w.isCSI("policy-kept", w.claim("policy-kept").UID)
	if changes := p.changes(); !slices.Contains(changes[:slices.Index(changes, "delete persistentvolumes")], "patch persistentvolumes") {
		w.t.Errorf("Retain was not set before: %q", changes)
	}

	was := w.volume("policy-back")
	p.Options = migrate.Options{RestoreReclaimPolicy: true, Timeout: p.Options.Timeout}
	w.came(p.apply("policy-back"), migrate.Done, journal.Finished, "")
	if now := w.volume("policy-back"); now.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete || now.Annotations["pv.kubernetes.io/provisioned-by"] != csiDriver {
		w.t.Errorf("%+v", now)
	}
	w.came(p.rollback("policy-back"), migrate.Done, journal.Finished, "")
	w.isFlex(was, w.claim("policy-back").UID)

	// The claim begins to go while the volume is replaced.
	claims := w.Admin().CoreV1().PersistentVolumeClaims("default")
	_, err := claims.Patch(w.t.Context(), "policy-orphan", types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.com/keep"]}}`), metav1.PatchOptions{})
	w.check(err)
	p.when = func(e migrate.Event) {
		if e.Stage == journal.Created && e.What == migrate.Reached {
			w.check(claims.Delete(context.Background(), "policy-orphan", metav1.DeleteOptions{}))
		}
	}
	w.came(p.apply("policy-orphan"), migrate.Done, journal.Finished, "")
	if now := w.volume("policy-orphan"); now.Spec.CSI == nil || now.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
		w.t.Errorf("%+v", now)
	}
	_, err = claims.Patch(w.t.Context(), "policy-orphan", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	w.check(err)
}
