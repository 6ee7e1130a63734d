package migrate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/flex2csi/flex2csi/internal/clusterview"
	"github.com/flex2csi/flex2csi/internal/kube"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/test/controlplane"
)

// *kube.Cluster is all that a migration wants.
var (
	_ migrate.Cluster = (*kube.Cluster)(nil)
	_ migrate.Lease   = (*kube.Lease)(nil)
	_ journal.API     = (*kube.Cluster)(nil)
	_ migrate.Lease   = (*kube.Lease)(nil)
)

// TestRequests: what is made of requests and their answers, on an API server by
// itself.
func TestRequests(t *testing.T) {
	w := &world{Plane: controlplane.Start(t), t: t}
	w.Namespace(migrate.Namespace)
	for _, test := range []struct {
		name string
		run  func(*world)
	}{
		{"Create", testCreate},
		{"Delete", testDelete},
		{"Patch", testPatch},
		{"Evict", testEvict},
		{"Answers", testAnswers},
		{"Watch", testWatch},
		{"JournalInCluster", testJournalInCluster},
		{"JournalTooBig", testJournalTooBig},
		{"JournalInBoth", testJournalInBoth},
		{"Lease", testLease},
		{"LeaseOfTheDead", testLeaseOfTheDead},
		{"LeaseLost", testLeaseLost},
		{"LeaseAway", testLeaseAway},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(w.with(t)) })
	}
}

func pvs() clusterview.Resource {
	return clusterview.Resource{Version: "v1", Name: "persistentvolumes"}
}
func maps() clusterview.Resource { return clusterview.Resource{Version: "v1", Name: "configmaps"} }

func volumeJSON(name string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":%q},"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"persistentVolumeReclaimPolicy":"Retain","csi":{"driver":"disk.csi.example.com","volumeHandle":"v"}}}`, name)
}

// made makes a volume, and returns what it is.
func (w *world) made(c *kube.Cluster, name string) (uid, version string) {
	w.t.Helper()
	stored, err := c.CreateObject(w.t.Context(), pvs(), "", volumeJSON(name))
	w.check(err)
	return w.identity(stored)
}

func (w *world) identity(object []byte) (uid, version string) {
	w.t.Helper()
	var o metav1.PartialObjectMetadata
	w.check(json.Unmarshal(object, &o))
	if o.UID == "" || o.ResourceVersion == "" {
		w.t.Fatalf("not a stored object: %s", object)
	}
	return string(o.UID), o.ResourceVersion
}

// is wants an error to be one of clusterview's, and no other.
func (w *world) is(err, want error) {
	w.t.Helper()
	for _, e := range []error{
		clusterview.ErrExists, clusterview.ErrGone, clusterview.ErrConflict, clusterview.ErrBudget, clusterview.ErrRefused, clusterview.ErrAway,
	} {
		if errors.Is(err, e) != (e == want) {
			w.t.Fatalf("%v: is it %q: %t", err, e, errors.Is(err, e))
		}
	}
}

func (w *world) admin() *kube.Cluster { return w.cluster(controlplane.Admin) }

func testCreate(w *world) {
	c, ctx := w.admin(), w.t.Context()
	w.made(c, "created")
	_, err := c.CreateObject(ctx, pvs(), "", volumeJSON("created"))
	w.is(err, clusterview.ErrExists)
	if !strings.Contains(err.Error(), "create persistentvolumes created: ") {
		w.t.Error(err)
	}
	for _, change := range []string{`"persistentVolumeReclaimPolicy":"Keep"`, `"noSuchField":1`} {
		_, err = c.CreateObject(ctx, pvs(), "", []byte(strings.Replace(string(volumeJSON("invalid")), `"persistentVolumeReclaimPolicy":"Retain"`, change, 1)))
		w.is(err, clusterview.ErrRefused)
	}
	_, err = c.CreateObject(ctx, maps(), "nowhere", []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}`))
	w.is(err, clusterview.ErrGone)
	w.ServiceAccount("default", "nobody")
	nobody := w.cluster(w.ServiceAccountToken(w.Pod("default", "nobody", "nowhere", "nobody")))
	_, err = nobody.CreateObject(ctx, pvs(), "", volumeJSON("forbidden"))
	w.is(err, clusterview.ErrRefused)
	_, err = nobody.GetObject(ctx, pvs(), "", "created")
	w.is(err, clusterview.ErrRefused)
	_, err = nobody.WatchObject(ctx, pvs(), "", "created")
	w.is(err, clusterview.ErrRefused)
}

// testDelete: the wrong object is not deleted, and a patch whose tests do not fit
// lets go of none.
func testDelete(w *world) {
	c, ctx := w.admin(), w.t.Context()
	uid, version := w.made(c, "deleted")
	for _, p := range []clusterview.Preconditions{{UID: "another"}, {ResourceVersion: "1"}, {UID: uid, ResourceVersion: "1"}, {UID: "another", ResourceVersion: version}} {
		w.is(c.DeleteObject(ctx, pvs(), "", "deleted", p), clusterview.ErrConflict)
	}
	object, err := c.GetObject(ctx, pvs(), "", "deleted")
	w.check(err)
	if strings.Contains(string(object), "deletionTimestamp") {
		w.t.Fatalf("it is being deleted: %s", object)
	}
	w.check(c.DeleteObject(ctx, pvs(), "", "deleted", clusterview.Preconditions{UID: uid, ResourceVersion: version}))
	object, err = c.GetObject(ctx, pvs(), "", "deleted")
	w.check(err)
	if !strings.Contains(string(object), "deletionTimestamp") || !strings.Contains(string(object), "kubernetes.io/pv-protection") {
		w.t.Fatalf("it is not being deleted: %s", object)
	}
	_, version = w.identity(object)
	letGo := func(uid, version, finalizer string) error {
		_, err := c.PatchObject(ctx, pvs(), "", "deleted", clusterview.JSONPatch, fmt.Appendf(nil,
			`[{"op":"test","path":"/metadata/uid","value":%q},{"op":"test","path":"/metadata/resourceVersion","value":%q},{"op":"test","path":"/metadata/finalizers","value":[%q]},{"op":"remove","path":"/metadata/finalizers"}]`,
			uid, version, finalizer))
		return err
	}
	const protection = "kubernetes.io/pv-protection"
	w.is(letGo("another", version, protection), clusterview.ErrConflict)
	w.is(letGo(uid, "1", protection), clusterview.ErrConflict)
	w.is(letGo(uid, version, "example.com/mine"), clusterview.ErrConflict)
	w.check(letGo(uid, version, protection))
	object, err = c.GetObject(ctx, pvs(), "", "deleted")
	if object != nil || err != nil {
		w.t.Fatalf("it is still there: %s, %v", object, err)
	}
	w.is(letGo(uid, version, protection), clusterview.ErrGone)
	w.is(c.DeleteObject(ctx, pvs(), "", "deleted", clusterview.Preconditions{UID: uid}), clusterview.ErrGone)
}

func testPatch(w *world) {
	c, ctx := w.admin(), w.t.Context()
	_, version := w.made(c, "patched")
	merge := func(text string) error {
		_, err := c.PatchObject(ctx, pvs(), "", "patched", clusterview.MergePatch, []byte(text))
		return err
	}
	w.check(merge(`{"metadata":{"annotations":{"a":"1"},"resourceVersion":"` + version + `"}}`))
	w.is(merge(`{"metadata":{"annotations":{"a":"2"},"resourceVersion":"`+version+`"}}`), clusterview.ErrConflict)
	w.is(merge(`{"metadata":{"uid":"another","annotations":{"a":"3"}}}`), clusterview.ErrConflict)
	w.is(merge(`{"spec":{"csi":{"driver":"another.example.com"}}}`), clusterview.ErrRefused)
	w.is(merge(`{"spec":{"noSuchField":1}}`), clusterview.ErrRefused)
	_, err := c.PatchObject(ctx, pvs(), "", "patched", clusterview.JSONPatch, []byte(`[{"op":"remove","path":"/spec/flexVolume"}]`))
	w.is(err, clusterview.ErrConflict)
	_, err = c.PatchObject(ctx, pvs(), "", "patched", clusterview.JSONPatch, []byte(`[{"op":"replace","path":"/spec/persistentVolumeReclaimPolicy","value":"Keep"}]`))
	w.is(err, clusterview.ErrRefused)
	_, err = c.PatchObject(ctx, pvs(), "", "patched", clusterview.JSONPatch, []byte(`[{"op":"test","path":"/status/phase","value":"Bound"},{"op":"add","path":"/metadata/annotations/b","value":"3"}]`))
	w.is(err, clusterview.ErrConflict)
	stored, err := c.PatchObject(ctx, pvs(), "", "patched", clusterview.JSONPatch, []byte(`[{"op":"test","path":"/status/phase","value":"Pending"},{"op":"test","path":"/metadata/annotations/a","value":"1"},{"op":"add","path":"/metadata/annotations/b","value":"<2>"}]`))
	if err != nil || !strings.Contains(string(stored), `"b":"`) {
		w.t.Fatalf("%s, %v", stored, err)
	}
}

// testEvict: a dry run evicts nobody, and a budget is a budget however the API
// server says it.
func testEvict(w *world) {
	x := w.Proxy()
	c, err := kube.Connect(kube.Options{Kubeconfig: x.Kubeconfig(controlplane.Admin)})
	w.check(err)
	ctx := w.t.Context()
	pod := func(name string) *corev1.Pod {
		w.t.Helper()
		p, err := w.Admin().CoreV1().Pods("default").Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}, NodeName: "nowhere", AutomountServiceAccountToken: new(bool)},
		}, metav1.CreateOptions{})
		w.check(err)
		return p
	}
	w.ServiceAccount("default", "default")
	budget := func(name, app string) {
		w.t.Helper()
		_, err := w.Admin().PolicyV1().PodDisruptionBudgets("default").Create(ctx, &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromInt32(0)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
		}, metav1.CreateOptions{})
		w.check(err)
	}
	free, guarded, twice := pod("free"), pod("guarded"), pod("twice")
	for _, p := range []*corev1.Pod{free, guarded, twice} { // one that does not run is in no budget
		p.Status.Phase = corev1.PodRunning
		_, err := w.Admin().CoreV1().Pods("default").UpdateStatus(ctx, p, metav1.UpdateOptions{})
		w.check(err)
	}
	budget("one", "guarded")
	budget("two", "twice")
	budget("three", "twice")
	x.Requests()
	for _, dryRun := range []bool{true, false} {
		begun := time.Now()
		w.is(c.EvictPod(ctx, "default", "guarded", string(guarded.UID), dryRun), clusterview.ErrBudget)
		if d := time.Since(begun); d > 5*time.Second {
			w.t.Errorf("it took %v: somebody has tried again", d)
		}
		w.is(c.EvictPod(ctx, "default", "twice", string(twice.UID), dryRun), clusterview.ErrRefused)
		w.is(c.EvictPod(ctx, "default", "free", "another", dryRun), clusterview.ErrConflict)
		w.is(c.EvictPod(ctx, "default", "no-such-pod", "", dryRun), clusterview.ErrGone)
	}
	w.check(c.EvictPod(ctx, "default", "free", string(free.UID), true))
	if n := x.Requests()["create pods/eviction"]; n != 9 {
		w.t.Errorf("%d requests", n)
	}
	deleting := func(name string) bool {
		w.t.Helper()
		p, err := w.Admin().CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		w.check(err)
		return p.DeletionTimestamp != nil
	}
	if deleting("free") || deleting("guarded") || deleting("twice") {
		w.t.Fatal("a pod was evicted")
	}
	w.check(c.EvictPod(ctx, "default", "free", string(free.UID), false))
	if !deleting("free") {
		w.t.Error("the pod was not evicted")
	}
}

// testAnswers: what is not known to be refused may have been done, and nobody
// asks twice.
func testAnswers(w *world) {
	x := w.Proxy()
	c, err := kube.Connect(kube.Options{Kubeconfig: x.Kubeconfig(controlplane.Admin)})
	w.check(err)
	for i, test := range []struct {
		fault controlplane.Fault
		want  error
		there bool
	}{
		{controlplane.Fault{}, clusterview.ErrAway, false},
		{controlplane.Fault{After: true}, clusterview.ErrAway, true},
		{controlplane.Fault{Code: http.StatusInternalServerError}, clusterview.ErrAway, false},
		{controlplane.Fault{Code: http.StatusServiceUnavailable, After: true}, clusterview.ErrAway, true},
		{controlplane.Fault{Code: http.StatusTooManyRequests}, clusterview.ErrAway, false},
		{controlplane.Fault{Code: http.StatusUnauthorized}, clusterview.ErrAway, false},
		{controlplane.Fault{Code: http.StatusForbidden}, clusterview.ErrRefused, false},
		{controlplane.Fault{Code: http.StatusConflict}, clusterview.ErrConflict, false},
	} {
		name := fmt.Sprintf("answer-%d", i)
		test.fault.Verb = "create"
		x.Fail(test.fault)
		_, err := c.CreateObject(w.t.Context(), pvs(), "", volumeJSON(name))
		w.is(err, test.want)
		x.Heal()
		if n := x.Requests()["create persistentvolumes"]; n != 1 {
			w.t.Errorf("%+v: %d requests", test.fault, n)
		}
		object, err := c.GetObject(w.t.Context(), pvs(), "", name)
		w.check(err)
		if (object != nil) != test.there {
			w.t.Errorf("%+v: there is %s", test.fault, object)
		}
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	cancel()
	_, err = c.CreateObject(ctx, pvs(), "", volumeJSON("canceled"))
	w.is(err, nil)
	if !errors.Is(err, context.Canceled) {
		w.t.Error(err)
	}
	x.Away()
	_, err = c.GetObject(w.t.Context(), pvs(), "", "answer-0")
	w.is(err, clusterview.ErrAway)
	_, err = c.WatchObject(w.t.Context(), pvs(), "", "answer-0")
	w.is(err, clusterview.ErrAway)
}

// next is the next event of a watch.
func (w *world) next(events <-chan clusterview.Event) (e clusterview.Event, more bool) {
	w.t.Helper()
	select {
	case e, more = <-events:
		return e, more
	case <-time.After(30 * time.Second):
		w.t.Fatal("the watch says nothing")
		return e, false
	}
}

func testWatch(w *world) {
	x := w.Proxy()
	c, err := kube.Connect(kube.Options{Kubeconfig: x.Kubeconfig(controlplane.Admin)})
	w.check(err)
	ctx, end := context.WithCancel(w.t.Context())
	defer end()
	w.made(c, "beside")
	uid, _ := w.made(c, "watched")
	events, err := c.WatchObject(ctx, pvs(), "", "watched")
	w.check(err)
	says := func(want string) {
		w.t.Helper()
		e, more := w.next(events)
		if !more || !strings.Contains(string(e.Object), want) || !strings.Contains(string(e.Object), `"uid":"`+uid) {
			w.t.Fatalf("%t, %s, want %s", more, e.Object, want)
		}
	}
	says(`"name":"watched"`)
	change := func(name, text string) {
		w.t.Helper()
		_, err := c.PatchObject(ctx, pvs(), "", name, clusterview.MergePatch, []byte(text))
		w.check(err)
	}
	change("beside", `{"metadata":{"annotations":{"a":"of the other one"}}}`)
	change("watched", `{"metadata":{"annotations":{"a":"changed"}}}`)
	says(`"a":"changed"`)
	w.check(c.DeleteObject(ctx, pvs(), "", "watched", clusterview.Preconditions{}))
	says(`"deletionTimestamp"`)
	change("watched", `{"metadata":{"finalizers":null}}`)
	if e, more := w.next(events); !more || e.Object != nil {
		w.t.Fatalf("%t, %s", more, e.Object)
	}
	uid, _ = w.made(c, "watched")
	says(`"name":"watched"`)
	x.CutWatches()
	if e, more := w.next(events); more {
		w.t.Fatalf("after the end: %s", e.Object)
	}

	events, err = c.WatchObject(ctx, pvs(), "", "nobody")
	w.check(err)
	end()
	if e, more := w.next(events); more {
		w.t.Fatalf("of nobody: %s", e.Object)
	}
}
