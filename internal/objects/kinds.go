package objects

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A Kind is a resource, and the type as which its objects are read.
type Kind[T any] struct{ Resource schema.GroupVersionResource }

// Get returns an object; nil if there is none.
func (k Kind[T]) Get(ctx context.Context, c *Client, namespace, name string) (*T, error) {
	o, err := c.Get(ctx, k.Resource, namespace, name)
	if o == nil || err != nil {
		return nil, err
	}
	return As[T](o)
}

// GetRaw returns an object, and the bytes that the API server has sent; nil if there is none.
func (k Kind[T]) GetRaw(ctx context.Context, c *Client, namespace, name string) (*T, []byte, error) {
	raw, err := c.GetRaw(ctx, k.Resource, namespace, name)
	if raw == nil || err != nil {
		return nil, nil, err
	}
	var o T
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, nil, fmt.Errorf("read %s %s: %w", k.Resource.Resource, name, err)
	}
	return &o, raw, nil
}

// List returns the objects that are selected.
func (k Kind[T]) List(ctx context.Context, c *Client, namespace string, o metav1.ListOptions) ([]*T, error) {
	all := []*T{}
	err := c.Each(ctx, k.Resource, namespace, o, func(u *unstructured.Unstructured) error {
		o, err := As[T](u)
		all = append(all, o)
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// As reads an object as a type. Fields that the type does not have are left out.
func As[T any](u *unstructured.Unstructured) (*T, error) {
	var o T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &o); err != nil {
		return nil, fmt.Errorf("read %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return &o, nil
}

// ToUnstructured is the way back.
func ToUnstructured(o any) (*unstructured.Unstructured, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	return &unstructured.Unstructured{Object: object}, err
}

func kind[T any](v schema.GroupVersion, resource string) Kind[T] {
	return Kind[T]{v.WithResource(resource)}
}

// Objects of the API, as they are read.

// PersistentVolumes are those of corev1.
func PersistentVolumes() Kind[corev1.PersistentVolume] {
	return kind[corev1.PersistentVolume](corev1.SchemeGroupVersion, "persistentvolumes")
}

// Claims are those of corev1.
func Claims() Kind[corev1.PersistentVolumeClaim] {
	return kind[corev1.PersistentVolumeClaim](corev1.SchemeGroupVersion, "persistentvolumeclaims")
}

// Pods are those of corev1.
func Pods() Kind[corev1.Pod] { return kind[corev1.Pod](corev1.SchemeGroupVersion, "pods") }

// Nodes are those of corev1.
func Nodes() Kind[corev1.Node] { return kind[corev1.Node](corev1.SchemeGroupVersion, "nodes") }

// Namespaces are those of corev1.
func Namespaces() Kind[corev1.Namespace] {
	return kind[corev1.Namespace](corev1.SchemeGroupVersion, "namespaces")
}

// Secrets are those of corev1.
func Secrets() Kind[corev1.Secret] { return kind[corev1.Secret](corev1.SchemeGroupVersion, "secrets") }

// ConfigMaps are those of corev1.
func ConfigMaps() Kind[corev1.ConfigMap] {
	return kind[corev1.ConfigMap](corev1.SchemeGroupVersion, "configmaps")
}

// ReplicationControllers are those of corev1.
func ReplicationControllers() Kind[corev1.ReplicationController] {
	return kind[corev1.ReplicationController](corev1.SchemeGroupVersion, "replicationcontrollers")
}

// CSIDrivers are those of storagev1.
func CSIDrivers() Kind[storagev1.CSIDriver] {
	return kind[storagev1.CSIDriver](storagev1.SchemeGroupVersion, "csidrivers")
}

// CSINodes are those of storagev1.
func CSINodes() Kind[storagev1.CSINode] {
	return kind[storagev1.CSINode](storagev1.SchemeGroupVersion, "csinodes")
}

// VolumeAttachments are those of storagev1.
func VolumeAttachments() Kind[storagev1.VolumeAttachment] {
	return kind[storagev1.VolumeAttachment](storagev1.SchemeGroupVersion, "volumeattachments")
}

// StorageClasses are those of storagev1.
func StorageClasses() Kind[storagev1.StorageClass] {
	return kind[storagev1.StorageClass](storagev1.SchemeGroupVersion, "storageclasses")
}

// StatefulSets are those of appsv1.
func StatefulSets() Kind[appsv1.StatefulSet] {
	return kind[appsv1.StatefulSet](appsv1.SchemeGroupVersion, "statefulsets")
}

// ReplicaSets are those of appsv1.
func ReplicaSets() Kind[appsv1.ReplicaSet] {
	return kind[appsv1.ReplicaSet](appsv1.SchemeGroupVersion, "replicasets")
}

// DaemonSets are those of appsv1.
func DaemonSets() Kind[appsv1.DaemonSet] {
	return kind[appsv1.DaemonSet](appsv1.SchemeGroupVersion, "daemonsets")
}

// Deployments are those of appsv1.
func Deployments() Kind[appsv1.Deployment] {
	return kind[appsv1.Deployment](appsv1.SchemeGroupVersion, "deployments")
}

// CronJobs are those of batchv1.
func CronJobs() Kind[batchv1.CronJob] {
	return kind[batchv1.CronJob](batchv1.SchemeGroupVersion, "cronjobs")
}

// Jobs are those of batchv1.
func Jobs() Kind[batchv1.Job] { return kind[batchv1.Job](batchv1.SchemeGroupVersion, "jobs") }

// Leases are those of coordinationv1.
func Leases() Kind[coordinationv1.Lease] {
	return kind[coordinationv1.Lease](coordinationv1.SchemeGroupVersion, "leases")
}
