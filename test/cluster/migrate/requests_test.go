package migrate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/test/controlplane"
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
		{"JournalCopied", testJournalCopied},
		{"Lease", testLease},
		{"LeaseOfTheDead", testLeaseOfTheDead},
		{"LeaseLost", testLeaseLost},
		{"LeaseAway", testLeaseAway},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(w.with(t)) })
	}
}

func pvs() schema.GroupVersionResource { return objects.PersistentVolumes().Resource }

// aVolume is one that can be created; change changes a text in its JSON.
func aVolume(name string, change ...string) *unstructured.Unstructured {
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":%q},"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"persistentVolumeReclaimPolicy":"Retain","csi":{"driver":"disk.csi.example.com","volumeHandle":"v"}}}`, name)
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON([]byte(strings.NewReplacer(change...).Replace(text))); err != nil {
		panic(err)
	}
	return o
}

// made makes a volume, and returns what it is.
func (w *world) made(c *objects.Client, name string) (uid, version string) {
	w.t.Helper()
	stored, err := c.Create(w.t.Context(), pvs(), aVolume(name))
	w.check(err)
	return string(stored.GetUID()), stored.GetResourceVersion()
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

// is wants the error of a request to have an outcome.
func (w *world) is(err error, want objects.Outcome) {
	w.t.Helper()
	if is := objects.OutcomeOf(err); is != want {
		w.t.Fatalf("%v: its outcome is %d, not %d", err, is, want)
	}
}

func (w *world) admin() *objects.Client { return w.cluster(controlplane.Admin) }

func testCreate(w *world) {
	c, ctx := w.admin(), w.t.Context()
	w.made(c, "created")
	_, err := c.Create(ctx, pvs(), aVolume("created"))
	w.is(err, objects.Exists)
	if !strings.Contains(err.Error(), "create persistentvolumes created: ") {
		w.t.Error(err)
	}
	for _, change := range []string{`"persistentVolumeReclaimPolicy":"Keep"`, `"noSuchField":1`} {
		_, err = c.Create(ctx, pvs(), aVolume("invalid", `"persistentVolumeReclaimPolicy":"Retain"`, change))
		w.is(err, objects.Refused)
	}
	nowhere := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "nowhere", "name": "x"}}}
	_, err = c.Create(ctx, objects.ConfigMaps().Resource, nowhere)
	w.is(err, objects.Gone)
	w.ServiceAccount("default", "powerless")
	powerless := w.cluster(w.ServiceAccountToken(w.Pod("default", "powerless", "nowhere", "powerless")))
	_, err = powerless.Create(ctx, pvs(), aVolume("forbidden"))
	w.is(err, objects.Refused)
	_, err = powerless.GetRaw(ctx, pvs(), "", "created")
	w.is(err, objects.Refused)
	_, err = powerless.Watch(ctx, pvs(), "", "created", "")
	w.is(err, objects.Refused)
}

// testDelete: the wrong object is not deleted, and a patch with tests that do not fit
// lets go of none.
func testDelete(w *world) {
	c, ctx := w.admin(), w.t.Context()
	uid, version := w.made(c, "deleted")
	preconditions := func(uid, version string) (p metav1.Preconditions) {
		if uid != "" {
			p.UID = new(types.UID(uid))
		}
		if version != "" {
			p.ResourceVersion = &version
		}
		return p
	}
	for _, p := range [][2]string{{"another", ""}, {"", "1"}, {uid, "1"}, {"another", version}} {
		w.is(c.Delete(ctx, pvs(), "", "deleted", preconditions(p[0], p[1])), objects.Conflict)
	}
	object, err := c.GetRaw(ctx, pvs(), "", "deleted")
	w.check(err)
	if strings.Contains(string(object), "deletionTimestamp") {
		w.t.Fatalf("it is being deleted: %s", object)
	}
	w.check(c.Delete(ctx, pvs(), "", "deleted", preconditions(uid, version)))
	object, err = c.GetRaw(ctx, pvs(), "", "deleted")
	w.check(err)
	if !strings.Contains(string(object), "deletionTimestamp") || !strings.Contains(string(object), "kubernetes.io/pv-protection") {
		w.t.Fatalf("it is not being deleted: %s", object)
	}
	_, version = w.identity(object)
	letGo := func(uid, version, finalizer string) error {
		_, err := c.Patch(ctx, pvs(), "", "deleted", types.JSONPatchType, fmt.Appendf(nil,
			`[{"op":"test","path":"/metadata/uid","value":%q},{"op":"test","path":"/metadata/resourceVersion","value":%q},{"op":"test","path":"/metadata/finalizers","value":[%q]},{"op":"remove","path":"/metadata/finalizers"}]`,
			uid, version, finalizer))
		return err
	}
	const protection = "kubernetes.io/pv-protection"
	w.is(letGo("another", version, protection), objects.Conflict)
	w.is(letGo(uid, "1", protection), objects.Conflict)
	w.is(letGo(uid, version, "example.com/mine"), objects.Conflict)
	w.check(letGo(uid, version, protection))
	object, err = c.GetRaw(ctx, pvs(), "", "deleted")
	if object != nil || err != nil {
		w.t.Fatalf("it is still there: %s, %v", object, err)
	}
	w.is(letGo(uid, version, protection), objects.Gone)
	w.is(c.Delete(ctx, pvs(), "", "deleted", preconditions(uid, "")), objects.Gone)
}

func testPatch(w *world) {
	c, ctx := w.admin(), w.t.Context()
	_, version := w.made(c, "patched")
	merge := func(text string) error {
		_, err := c.Patch(ctx, pvs(), "", "patched", types.MergePatchType, []byte(text))
		return err
	}
	w.check(merge(`{"metadata":{"annotations":{"a":"1"},"resourceVersion":"` + version + `"}}`))
	w.is(merge(`{"metadata":{"annotations":{"a":"2"},"resourceVersion":"`+version+`"}}`), objects.Conflict)
	w.is(merge(`{"metadata":{"uid":"another","annotations":{"a":"3"}}}`), objects.Conflict)
	w.is(merge(`{"spec":{"csi":{"driver":"another.example.com"}}}`), objects.Refused)
	w.is(merge(`{"spec":{"noSuchField":1}}`), objects.Refused)
	_, err := c.Patch(ctx, pvs(), "", "patched", types.JSONPatchType, []byte(`[{"op":"remove","path":"/spec/flexVolume"}]`))
	w.is(err, objects.Conflict)
	_, err = c.Patch(ctx, pvs(), "", "patched", types.JSONPatchType, []byte(`[{"op":"replace","path":"/spec/persistentVolumeReclaimPolicy","value":"Keep"}]`))
	w.is(err, objects.Refused)
	_, err = c.Patch(ctx, pvs(), "", "patched", types.JSONPatchType, []byte(`[{"op":"test","path":"/status/phase","value":"Bound"},{"op":"add","path":"/metadata/annotations/b","value":"3"}]`))
	w.is(err, objects.Conflict)
	stored, err := c.Patch(ctx, pvs(), "", "patched", types.JSONPatchType, []byte(`[{"op":"test","path":"/status/phase","value":"Pending"},{"op":"test","path":"/metadata/annotations/a","value":"1"},{"op":"add","path":"/metadata/annotations/b","value":"<2>"}]`))
	if err != nil || stored.GetAnnotations()["b"] != "<2>" {
		w.t.Fatalf("%s, %v", stored, err)
	}
}

// testEvict: a dry run evicts no pod, and a budget is a budget however the API
// server says it.
func testEvict(w *world) {
	x := w.Proxy()
	c := w.clusterAt(x)
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
		err := c.Evict(ctx, "default", "guarded", guarded.UID, dryRun)
		w.is(err, objects.Refused)
		if !objects.IsBudget(err) {
			w.t.Error(err)
		}
		if d := time.Since(begun); d > 5*time.Second {
			w.t.Errorf("it took %v: a request was repeated", d)
		}
		w.is(c.Evict(ctx, "default", "twice", twice.UID, dryRun), objects.Refused)
		w.is(c.Evict(ctx, "default", "free", "another", dryRun), objects.Conflict)
		w.is(c.Evict(ctx, "default", "no-such-pod", "", dryRun), objects.Gone)
	}
	w.check(c.Evict(ctx, "default", "free", free.UID, true))
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
	w.check(c.Evict(ctx, "default", "free", free.UID, false))
	if !deleting("free") {
		w.t.Error("the pod was not evicted")
	}
}

// testAnswers: what is not known to be refused may have been done, and no layer
// asks twice.
func testAnswers(w *world) {
	x := w.Proxy()
	c := w.clusterAt(x)
	for i, test := range []struct {
		fault controlplane.Fault
		want  objects.Outcome
		there bool
	}{
		{controlplane.Fault{}, objects.Unknown, false},
		{controlplane.Fault{After: true}, objects.Unknown, true},
		{controlplane.Fault{Code: http.StatusInternalServerError}, objects.Unknown, false},
		{controlplane.Fault{Code: http.StatusServiceUnavailable, After: true}, objects.Unknown, true},
		{controlplane.Fault{Code: http.StatusTooManyRequests}, objects.Unknown, false},
		{controlplane.Fault{Code: http.StatusUnauthorized}, objects.Unknown, false},
		{controlplane.Fault{Code: http.StatusForbidden}, objects.Refused, false},
		{controlplane.Fault{Code: http.StatusConflict}, objects.Conflict, false},
	} {
		name := fmt.Sprintf("answer-%d", i)
		test.fault.Verb = "create"
		x.Fail(test.fault)
		_, err := c.Create(w.t.Context(), pvs(), aVolume(name))
		w.is(err, test.want)
		x.Heal()
		if n := x.Requests()["create persistentvolumes"]; n != 1 {
			w.t.Errorf("%+v: %d requests", test.fault, n)
		}
		object, err := c.GetRaw(w.t.Context(), pvs(), "", name)
		w.check(err)
		if (object != nil) != test.there {
			w.t.Errorf("%+v: there is %s", test.fault, object)
		}
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	cancel()
	_, err := c.Create(ctx, pvs(), aVolume("canceled"))
	w.is(err, objects.Canceled)
	x.Away()
	_, err = c.GetRaw(w.t.Context(), pvs(), "", "answer-0")
	w.is(err, objects.Unknown)
	_, err = c.Watch(w.t.Context(), pvs(), "", "answer-0", "")
	w.is(err, objects.Unknown)
}

// next is the next event of a watch.
func (w *world) next(events <-chan watch.Event) (e watch.Event, more bool) {
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
	c := w.clusterAt(x)
	ctx, end := context.WithCancel(w.t.Context())
	defer end()
	w.made(c, "other")
	uid, _ := w.made(c, "watched")
	events, err := c.Watch(ctx, pvs(), "", "watched", "")
	w.check(err)
	says := func(want string) {
		w.t.Helper()
		e, more := w.next(events)
		text, err := json.Marshal(e.Object)
		w.check(err)
		if !more || e.Type == watch.Deleted || !strings.Contains(string(text), want) || !strings.Contains(string(text), `"uid":"`+uid) {
			w.t.Fatalf("%t, %s, want %s", more, text, want)
		}
	}
	says(`"name":"watched"`)
	change := func(name, text string) {
		w.t.Helper()
		_, err := c.Patch(ctx, pvs(), "", name, types.MergePatchType, []byte(text))
		w.check(err)
	}
	change("other", `{"metadata":{"annotations":{"a":"of the other one"}}}`)
	change("watched", `{"metadata":{"annotations":{"a":"changed"}}}`)
	says(`"a":"changed"`)
	w.check(c.Delete(ctx, pvs(), "", "watched", metav1.Preconditions{}))
	says(`"deletionTimestamp"`)
	change("watched", `{"metadata":{"finalizers":null}}`)
	if e, more := w.next(events); !more || e.Type != watch.Deleted {
		w.t.Fatalf("%t, %s", more, e.Type)
	}
	uid, _ = w.made(c, "watched")
	says(`"name":"watched"`)
	x.CutWatches()
	w.ends(events)

	events, err = c.Watch(ctx, pvs(), "", "missing", "")
	w.check(err)
	end()
	w.ends(events)
}

// ends: there is no event any more but that of the error.
func (w *world) ends(events <-chan watch.Event) {
	w.t.Helper()
	e, more := w.next(events)
	if more && e.Type == watch.Error {
		e, more = w.next(events)
	}
	if more {
		w.t.Fatalf("after the end: %s", e.Type)
	}
}
