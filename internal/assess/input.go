package assess

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/flex2csi/flex2csi/internal/objects"
)

// Input has the objects to assess, of a cluster or of manifests.
type Input struct {
	// Source names where the objects are from.
	Source string
	// ServerVersion is that of the API server; empty: not known.
	ServerVersion string
	// Configuration is the text of the bridge's configuration; empty: none is given.
	Configuration string

	PersistentVolumes []*corev1.PersistentVolume
	Claims            []*corev1.PersistentVolumeClaim
	Pods              []*corev1.Pod
	Nodes             []*corev1.Node
	StorageClasses    []*storagev1.StorageClass
	Workloads         []workload
	// CSIDrivers are the names of the CSIDriver objects; nil: they were not read.
	CSIDrivers []string
	// attachless are those of them that say that they do not attach.
	attachless []string
	// Unread is what could not be read, with the reason. The result is incomplete then.
	Unread []string

	found   objects.FlexFinder
	objects int // of manifests
}

// A workload has a template of pods.
type workload struct {
	Kind           string
	Object         metav1.Object
	Template       *corev1.PodSpec
	ClaimTemplates []corev1.PersistentVolumeClaim
}

// object takes one of any kind. An object that is there already is skipped: a directory may
// have it twice. An error is one of its fields; what it has of FlexVolumes counts even so.
func (in *Input) object(raw map[string]any) error {
	u := &unstructured.Unstructured{Object: raw}
	o := newObject(u.GroupVersionKind().GroupKind())
	if o == nil {
		in.found.Add(raw)
		return nil
	}
	u.SetManagedFields(in.managers(u)) // the larger part of many objects
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, o); err != nil {
		in.found.Add(raw)
		return fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
	}
	_, isVolume := o.(*corev1.PersistentVolume)
	_, isPod := o.(*corev1.Pod)
	if isVolume || isPod { // their FlexVolumes are those of the typed objects
		raw = map[string]any{"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "metadata": raw["metadata"]}
	}
	if !in.found.Add(raw) {
		in.add(u.GetKind(), o)
	}
	return nil
}

// managers are kept where they say who applies a class.
func (in *Input) managers(u *unstructured.Unstructured) []metav1.ManagedFieldsEntry {
	if u.GetKind() == "StorageClass" {
		return u.GetManagedFields()
	}
	return nil
}

func (in *Input) add(kind string, object metav1.Object) {
	switch o := object.(type) {
	case *corev1.PersistentVolume:
		in.PersistentVolumes = append(in.PersistentVolumes, o)
	case *corev1.PersistentVolumeClaim:
		in.Claims = append(in.Claims, o)
	case *corev1.Pod:
		in.Pods = append(in.Pods, o)
	case *corev1.Node:
		in.Nodes = append(in.Nodes, o)
	case *storagev1.StorageClass:
		in.StorageClasses = append(in.StorageClasses, o)
	case *storagev1.CSIDriver:
		in.CSIDrivers = append(in.CSIDrivers, o.Name)
		if !ptr.Deref(o.Spec.AttachRequired, true) {
			in.attachless = append(in.attachless, o.Name)
		}
	case *appsv1.Deployment:
		in.workload(kind, o, &o.Spec.Template.Spec)
	case *appsv1.DaemonSet:
		in.workload(kind, o, &o.Spec.Template.Spec)
	case *appsv1.ReplicaSet:
		in.workload(kind, o, &o.Spec.Template.Spec)
	case *appsv1.StatefulSet:
		in.workload(kind, o, &o.Spec.Template.Spec, o.Spec.VolumeClaimTemplates...)
	case *batchv1.Job:
		in.workload(kind, o, &o.Spec.Template.Spec)
	case *batchv1.CronJob:
		in.workload(kind, o, &o.Spec.JobTemplate.Spec.Template.Spec)
	case *corev1.ReplicationController:
		if o.Spec.Template != nil {
			in.workload(kind, o, &o.Spec.Template.Spec)
		}
	}
}

// workload takes one, but no revision or run of another workload: that has the template.
func (in *Input) workload(kind string, o metav1.Object, template *corev1.PodSpec, claims ...corev1.PersistentVolumeClaim) {
	if metav1.GetControllerOf(o) == nil || !slices.Contains([]string{"ReplicaSet", "ReplicationController", "Job"}, kind) {
		in.Workloads = append(in.Workloads, workload{kind, o, template, claims})
	}
}

// newObject returns nil for a kind of which nothing but its FlexVolumes matters. Of
// StorageClasses, CronJobs and workloads the beta versions have the same fields here.
func newObject(kind schema.GroupKind) metav1.Object {
	switch kind.Group + "/" + kind.Kind {
	case "/PersistentVolume":
		return &corev1.PersistentVolume{}
	case "/PersistentVolumeClaim":
		return &corev1.PersistentVolumeClaim{}
	case "/Pod":
		return &corev1.Pod{}
	case "/Node":
		return &corev1.Node{}
	case "/ReplicationController":
		return &corev1.ReplicationController{}
	case "storage.k8s.io/StorageClass":
		return &storagev1.StorageClass{}
	case "storage.k8s.io/CSIDriver":
		return &storagev1.CSIDriver{}
	case "apps/Deployment", "extensions/Deployment":
		return &appsv1.Deployment{}
	case "apps/StatefulSet":
		return &appsv1.StatefulSet{}
	case "apps/DaemonSet", "extensions/DaemonSet":
		return &appsv1.DaemonSet{}
	case "apps/ReplicaSet", "extensions/ReplicaSet":
		return &appsv1.ReplicaSet{}
	case "batch/Job":
		return &batchv1.Job{}
	case "batch/CronJob":
		return &batchv1.CronJob{}
	}
	return nil
}
