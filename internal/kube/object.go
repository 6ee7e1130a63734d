package kube

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// digest identifies a spec.
func digest(s *corev1.PersistentVolumeSpec) string {
	if s == nil || s.CSI == nil {
		return ""
	}
	parts := []any{s.CSI.FSType, s.CSI.ReadOnly, s.CSI.VolumeAttributes, s.CSI.ControllerPublishSecretRef, s.MountOptions, s.AccessModes}
	for i, empty := range []bool{2: len(s.CSI.VolumeAttributes) == 0, 4: len(s.MountOptions) == 0} {
		if empty {
			parts[i] = nil // empty and absent are the same
		}
	}
	text, err := json.Marshal(parts) // maps are sorted by key
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

// digestAnnotation is in the informer's cache only.
const digestAnnotation = "request"

// digestOf returns the digest of an object, also of one from an informer.
func digestOf(o *storagev1.VolumeAttachment) string {
	if spec := o.Spec.Source.InlineVolumeSpec; spec != nil && len(spec.AccessModes) > 0 { // which the API server requires
		return digest(spec)
	}
	return o.Annotations[digestAnnotation]
}

// trimAttachment keeps the fields that are needed, and a digest of the spec.
func trimAttachment(o *storagev1.VolumeAttachment) {
	spec := o.Spec.Source.InlineVolumeSpec
	if spec == nil || spec.CSI == nil || len(spec.AccessModes) == 0 { // trimmed before: client-go may ask twice
		return
	}
	if o.Annotations == nil {
		o.Annotations = map[string]string{}
	}
	o.Annotations[digestAnnotation] = digest(spec)
	o.Spec.Source.InlineVolumeSpec = &corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
		CSI: &corev1.CSIPersistentVolumeSource{Driver: spec.CSI.Driver, VolumeHandle: spec.CSI.VolumeHandle},
	}}
}
