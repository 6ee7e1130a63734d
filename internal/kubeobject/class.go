package kubeobject

import (
	corev1 "k8s.io/api/core/v1"
)

// VolumeClass is the StorageClass of a PersistentVolume: the annotation of releases before 1.6
// counts before the field (k8s.io/component-helpers/storage/volume/helpers.go,
// GetPersistentVolumeClass, Kubernetes v1.37.1).
func VolumeClass(pv *corev1.PersistentVolume) string {
	if class, ok := pv.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return class
	}
	return pv.Spec.StorageClassName
}

// ClaimClass is that of a claim, by the same rule (GetPersistentVolumeClaimClass). A claim that
// names none, not even an empty one, gets the default class.
func ClaimClass(claim *corev1.PersistentVolumeClaim) (class string, named bool) {
	if class, ok := claim.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return class, true
	}
	if claim.Spec.StorageClassName == nil {
		return "", false
	}
	return *claim.Spec.StorageClassName, true
}
