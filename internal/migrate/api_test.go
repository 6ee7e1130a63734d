package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"

	"github.com/flex2csi/flex2csi/internal/objects"
)

// An api is client-go's fake of an API server with what the fake lacks and a migration depends
// on: UIDs, resourceVersions, preconditions, finalizers and dry runs. The volume controller, the
// kubelet and the bridge of the node act as soon as an object has changed.
type api struct {
	t    testing.TB
	fake *fake.FakeDynamicClient
	// object holds all objects, without the rules of the API server.
	object clienttesting.ObjectTracker

	versions, uids int
	// staged is how the bridge has the volume staged; empty: where the kubelet would.
	staged string
	// replicas is how many pods the StatefulSet has, where there is one.
	replicas int
	// stays: an evicted pod does not end.
	stays bool
	// vendor: a vendor's driver in kube-controller-manager attaches the FlexVolume.
	vendor bool
	// quiet: no controller acts.
	quiet    bool
	requests []string
	// before is asked before the effect of a request, after after it. What they return is the
	// answer; nil: the API server's own.
	before, after func(n int, request string) error
	// seen, if there is one, is told of each action before its effect.
	seen func(clienttesting.Action)
}

func newAPI(t testing.TB, all ...runtime.Object) *api {
	t.Helper()
	a := &api{t: t, fake: fake.NewSimpleDynamicClient(scheme.Scheme)}
	a.object = a.fake.Tracker()
	a.fake.PrependReactor("*", "*", a.react)
	for _, o := range all {
		a.add(o)
	}
	a.settle()
	return a
}

// client is a new way to it.
func (a *api) client() *objects.Client {
	return &objects.Client{Dynamic: a.fake, Raw: func(ctx context.Context, r schema.GroupVersionResource, namespace, name string) ([]byte, error) {
		o, err := a.fake.Resource(r).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return o.MarshalJSON()
	}}
}

// add creates an object as it is.
func (a *api) add(o runtime.Object) {
	a.t.Helper()
	gvk := o.GetObjectKind().GroupVersionKind()
	if gvk.Empty() {
		kinds, _, err := scheme.Scheme.ObjectKinds(o)
		if err != nil {
			a.t.Fatal(err)
		}
		gvk = kinds[0]
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		a.t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(gvk)
	gvr, _ := meta.UnsafeGuessKindToResource(gvk)
	a.stamp(u)
	if err := a.object.Create(gvr, u, u.GetNamespace()); err != nil {
		a.t.Fatal(err)
	}
}

// stamp gives an object what the API server alone gives.
func (a *api) stamp(u *unstructured.Unstructured) {
	a.versions++
	u.SetResourceVersion(fmt.Sprint(a.versions))
	if u.GetUID() == "" {
		a.uids++
		u.SetUID(types.UID(fmt.Sprintf("uid-%d", a.uids)))
	}
	if u.GetKind() == "PersistentVolume" && u.GetDeletionTimestamp() == nil && len(u.GetFinalizers()) == 0 {
		u.SetFinalizers([]string{"kubernetes.io/pv-protection"})
	}
}

// read returns an object as a type; nil if there is none.
func read[T any](a *api, k objects.Kind[T], namespace, name string) *T {
	a.t.Helper()
	o, err := a.object.Get(k.Resource, namespace, name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	u, ok := o.(*unstructured.Unstructured)
	if err != nil || !ok {
		a.t.Fatal(err)
	}
	typed, err := objects.As[T](u)
	if err != nil {
		a.t.Fatal(err)
	}
	return typed
}

// modify changes an object, as other programs do.
func modify[T any](a *api, k objects.Kind[T], namespace, name string, change func(*T)) {
	a.t.Helper()
	old, err := a.object.Get(k.Resource, namespace, name)
	if err != nil {
		a.t.Fatal(err)
	}
	u := old.(*unstructured.Unstructured)
	typed, err := objects.As[T](u)
	if err != nil {
		a.t.Fatal(err)
	}
	change(typed)
	changed, err := objects.ToUnstructured(typed)
	if err != nil {
		a.t.Fatal(err)
	}
	changed.SetGroupVersionKind(u.GroupVersionKind())
	a.versions++
	changed.SetResourceVersion(fmt.Sprint(a.versions))
	if err := a.object.Update(k.Resource, changed, namespace); err != nil {
		a.t.Fatal(err)
	}
}

// react answers a request.
func (a *api) react(action clienttesting.Action) (bool, runtime.Object, error) {
	text := action.GetVerb() + " " + action.GetResource().Resource
	if s := action.GetSubresource(); s != "" {
		text += "/" + s
	}
	if dryRun(action) {
		text += " (dry run)"
	}
	a.requests = append(a.requests, text)
	n := len(a.requests)
	if a.before != nil {
		if err := a.before(n, text); err != nil {
			return true, nil, err
		}
	}
	if a.seen != nil {
		a.seen(action)
	}
	o, err := a.answer(action)
	if changes(text) && action.GetResource() != objects.ConfigMaps().Resource { // no controller looks at the journal
		a.settle()
	}
	if a.after != nil {
		if instead := a.after(n, text); instead != nil {
			return true, nil, instead
		}
	}
	return true, o, err
}

func dryRun(action clienttesting.Action) bool {
	switch action := action.(type) {
	case clienttesting.CreateActionImpl:
		return len(action.CreateOptions.DryRun) > 0
	case clienttesting.DeleteActionImpl:
		return len(action.DeleteOptions.DryRun) > 0
	case clienttesting.PatchActionImpl:
		return len(action.PatchOptions.DryRun) > 0
	}
	return false
}

func (a *api) answer(action clienttesting.Action) (runtime.Object, error) {
	switch action := action.(type) {
	case clienttesting.CreateActionImpl:
		return a.create(action)
	case clienttesting.UpdateActionImpl:
		u := action.Object.(*unstructured.Unstructured)
		old, err := a.get(action, u.GetName())
		if err != nil {
			return nil, err
		}
		if u.GetResourceVersion() != old.GetResourceVersion() {
			return nil, conflict(action, u.GetName())
		}
		return a.store(action, u)
	case clienttesting.DeleteActionImpl:
		return nil, a.remove(action)
	case clienttesting.PatchActionImpl:
		return a.patch(action)
	}
	_, o, err := clienttesting.ObjectReaction(a.object)(action)
	return o, err
}

func (a *api) get(action clienttesting.Action, name string) (*unstructured.Unstructured, error) {
	o, err := a.object.Get(action.GetResource(), action.GetNamespace(), name)
	if err != nil {
		return nil, err
	}
	return o.(*unstructured.Unstructured).DeepCopy(), nil
}

func (a *api) create(action clienttesting.CreateActionImpl) (runtime.Object, error) {
	u := action.Object.(*unstructured.Unstructured).DeepCopy()
	switch action.GetSubresource() + u.GetKind() {
	case "evictionEviction":
		pod, err := a.get(action, u.GetName())
		if err != nil || dryRun(action) {
			return nil, err
		}
		uid, _, _ := unstructured.NestedString(u.Object, "deleteOptions", "preconditions", "uid")
		if uid != string(pod.GetUID()) {
			return nil, conflict(action, u.GetName())
		}
		if a.stays {
			return u, nil
		}
		return u, a.object.Delete(action.GetResource(), pod.GetNamespace(), pod.GetName())
	case "SelfSubjectAccessReview":
		return u, unstructured.SetNestedField(u.Object, true, "status", "allowed")
	}
	if _, err := a.get(action, u.GetName()); err == nil {
		return nil, apierrors.NewAlreadyExists(action.GetResource().GroupResource(), u.GetName())
	}
	u.SetUID("")
	a.stamp(u)
	if u.GetKind() == "PersistentVolume" {
		_ = unstructured.SetNestedField(u.Object, "Available", "status", "phase")
	}
	if dryRun(action) {
		return u, nil
	}
	return u, a.object.Create(action.GetResource(), u, action.GetNamespace())
}

func (a *api) store(action clienttesting.Action, u *unstructured.Unstructured) (runtime.Object, error) {
	a.versions++
	u.SetResourceVersion(fmt.Sprint(a.versions))
	return u, a.object.Update(action.GetResource(), u, action.GetNamespace())
}

func conflict(action clienttesting.Action, name string) error {
	return apierrors.NewConflict(action.GetResource().GroupResource(), name, errors.New("it is another one"))
}

// remove deletes an object, or marks it for that as long as it has finalizers.
func (a *api) remove(action clienttesting.DeleteActionImpl) error {
	u, err := a.get(action, action.Name)
	if err != nil {
		return err
	}
	if p := action.DeleteOptions.Preconditions; p != nil {
		if p.UID != nil && *p.UID != u.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != u.GetResourceVersion() {
			return conflict(action, action.Name)
		}
	}
	switch {
	case dryRun(action):
		return nil
	case len(u.GetFinalizers()) == 0:
		return a.object.Delete(action.GetResource(), action.GetNamespace(), action.Name)
	}
	if u.GetDeletionTimestamp() == nil {
		u.SetDeletionTimestamp(new(metav1.Now()))
		_, err = a.store(action, u)
	}
	return err
}

// patch is that of client-go's fake, with what the API server looks at before.
func (a *api) patch(action clienttesting.PatchActionImpl) (runtime.Object, error) {
	old, err := a.get(action, action.Name)
	if err != nil {
		return nil, err
	}
	u := old.DeepCopy()
	if action.PatchType == types.MergePatchType {
		asked := &unstructured.Unstructured{}
		if err := utiljson.Unmarshal(action.Patch, &asked.Object); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if uid, version := asked.GetUID(), asked.GetResourceVersion(); uid != "" && uid != old.GetUID() || version != "" && version != old.GetResourceVersion() {
			return nil, conflict(action, action.Name)
		}
		merge(u.Object, asked.Object) // client-go's is slow, and the journal is written often
	} else {
		_, o, err := clienttesting.ObjectReaction(a.object)(action)
		if err != nil { // a test of a JSON patch has failed
			return nil, &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: err.Error()}}
		}
		u = o.(*unstructured.Unstructured).DeepCopy()
		if dryRun(action) { // the reaction has stored it
			return u, a.object.Update(action.GetResource(), old, action.GetNamespace())
		}
	}
	if dryRun(action) {
		return u, nil
	}
	if u.GetDeletionTimestamp() != nil && len(u.GetFinalizers()) == 0 {
		return u, a.object.Delete(action.GetResource(), action.GetNamespace(), action.Name)
	}
	return a.store(action, u)
}

// merge applies a merge patch (RFC 7386).
func merge(to, patch map[string]any) {
	for key, value := range patch {
		into, is := to[key].(map[string]any)
		from, object := value.(map[string]any)
		switch {
		case value == nil:
			delete(to, key)
		case is && object:
			merge(into, from)
		case object:
			fresh := map[string]any{}
			merge(fresh, from)
			to[key] = fresh
		default:
			to[key] = value
		}
	}
}

// objects are all of a kind.
func (a *api) objects(r schema.GroupVersionResource, kind string) (all []*unstructured.Unstructured) {
	a.t.Helper()
	list, err := a.object.List(r, r.GroupVersion().WithKind(kind), "")
	if err != nil {
		a.t.Fatal(err)
	}
	_ = meta.EachListItem(list, func(o runtime.Object) error {
		all = append(all, o.(*unstructured.Unstructured))
		return nil
	})
	return all
}

// kinds are those of a migration.
func kinds() map[schema.GroupVersionResource]string {
	return map[schema.GroupVersionResource]string{
		objects.PersistentVolumes().Resource: "PersistentVolume", objects.Claims().Resource: "PersistentVolumeClaim", objects.Pods().Resource: "Pod",
		objects.Nodes().Resource: "Node", objects.Namespaces().Resource: "Namespace", objects.Secrets().Resource: "Secret",
		objects.ConfigMaps().Resource: "ConfigMap", objects.ReplicationControllers().Resource: "ReplicationController",
		objects.CSIDrivers().Resource: "CSIDriver", objects.CSINodes().Resource: "CSINode", objects.VolumeAttachments().Resource: "VolumeAttachment",
		objects.StorageClasses().Resource: "StorageClass", objects.StatefulSets().Resource: "StatefulSet", objects.ReplicaSets().Resource: "ReplicaSet",
		objects.DaemonSets().Resource: "DaemonSet", objects.Deployments().Resource: "Deployment", objects.CronJobs().Resource: "CronJob", objects.Jobs().Resource: "Job",
	}
}

// clone is the same cluster for another test, with the kinds of a migration alone: to know all
// takes longer than a migration.
func (a *api) clone(t testing.TB) *api {
	t.Helper()
	lists := map[schema.GroupVersionResource]string{}
	for r, kind := range kinds() {
		lists[r] = kind + "List"
	}
	b := &api{t: t, fake: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists), versions: a.versions, uids: a.uids, staged: a.staged, replicas: a.replicas, vendor: a.vendor}
	b.object = b.fake.Tracker()
	b.fake.PrependReactor("*", "*", b.react)
	for r, kind := range kinds() {
		for _, o := range a.objects(r, kind) {
			if err := b.object.Create(r, o.DeepCopy(), o.GetNamespace()); err != nil {
				t.Fatal(err)
			}
		}
	}
	return b
}

// requested reports whether there was such a request.
func (a *api) requested(this string) bool { return slices.Contains(a.requests, this) }
