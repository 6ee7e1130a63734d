package assess

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Input has the objects to assess, of a cluster or of manifests.
type Input struct {
	// Source names where the objects are from.
	Source string
	// ServerVersion is that of the API server; empty: not known.
	ServerVersion string

	PersistentVolumes []*corev1.PersistentVolume
	Claims            []*corev1.PersistentVolumeClaim
	Pods              []*corev1.Pod
	Nodes             []*corev1.Node
	StorageClasses    []*storagev1.StorageClass
	Workloads         []workload
	// CSIDrivers are the names of the CSIDriver objects; nil: they were not read.
	CSIDrivers []string
	// Unread is what could not be read, with the reason. The result is incomplete then.
	Unread []string

	seen map[string]bool
}

// A workload has a template of pods.
type workload struct {
	Kind           string
	Object         metav1.Object
	Template       *corev1.PodSpec
	ClaimTemplates []corev1.PersistentVolumeClaim
}

// Add takes an object of a kind that matters. An object that is there already is skipped:
// a directory may have it twice.
func (in *Input) Add(object metav1.Object) {
	switch o := object.(type) {
	case *corev1.PersistentVolume:
		add(in, "PersistentVolume", o, &in.PersistentVolumes)
	case *corev1.PersistentVolumeClaim:
		add(in, "PersistentVolumeClaim", o, &in.Claims)
	case *corev1.Pod:
		add(in, "Pod", o, &in.Pods)
	case *corev1.Node:
		add(in, "Node", o, &in.Nodes)
	case *storagev1.StorageClass:
		add(in, "StorageClass", o, &in.StorageClasses)
	case *storagev1.CSIDriver:
		in.CSIDrivers = append(in.CSIDrivers, o.Name)
	case *appsv1.Deployment:
		in.workload("Deployment", o, &o.Spec.Template.Spec)
	case *appsv1.DaemonSet:
		in.workload("DaemonSet", o, &o.Spec.Template.Spec)
	case *appsv1.ReplicaSet:
		in.workload("ReplicaSet", o, &o.Spec.Template.Spec)
	case *appsv1.StatefulSet:
		in.workload("StatefulSet", o, &o.Spec.Template.Spec, o.Spec.VolumeClaimTemplates...)
	case *batchv1.Job:
		in.workload("Job", o, &o.Spec.Template.Spec)
	case *batchv1.CronJob:
		in.workload("CronJob", o, &o.Spec.JobTemplate.Spec.Template.Spec)
	case *corev1.ReplicationController:
		if o.Spec.Template != nil {
			in.workload("ReplicationController", o, &o.Spec.Template.Spec)
		}
	}
}

// workload takes one, but no revision or run of another workload: that has the template.
func (in *Input) workload(kind string, o metav1.Object, template *corev1.PodSpec, claims ...corev1.PersistentVolumeClaim) {
	if metav1.GetControllerOf(o) != nil && slices.Contains([]string{"ReplicaSet", "ReplicationController", "Job"}, kind) {
		return
	}
	if in.first(kind, o) {
		in.Workloads = append(in.Workloads, workload{kind, o, template, claims})
	}
}

func add[T metav1.Object](in *Input, kind string, o T, all *[]T) {
	if in.first(kind, o) {
		if kind != "StorageClass" { // there they say who applies it
			o.SetManagedFields(nil) // the larger part of many objects
		}
		*all = append(*all, o)
	}
}

func (in *Input) first(kind string, o metav1.Object) bool {
	if in.seen == nil {
		in.seen = map[string]bool{}
	}
	key := strings.Join([]string{kind, o.GetNamespace(), o.GetName()}, "/")
	if in.seen[key] {
		return false
	}
	in.seen[key] = true
	return true
}
