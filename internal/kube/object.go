package kube

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/attachment"
	"github.com/flex2csi/flex2csi/internal/csivol"
)

// newObject is the VolumeAttachment for a. Its source is a PersistentVolume that
// is nowhere else: one that named the FlexVolume's would be refused by the
// external-attacher, one that named a made-up CSI twin would be deleted by
// kube-controller-manager (pkg/controller/volume/attachdetach/
// attach_detach_controller.go, processVolumeAttachments, Kubernetes v1.37.1).
func newObject(a *csivol.Attachment, owner string) *storagev1.VolumeAttachment {
	labels := map[string]string{
		attachment.ManagedByLabel:  attachment.ManagedBy,
		attachment.AttachedByLabel: owner,
		attachment.NodeLabel:       attachment.LabelValue(a.Node),
		attachment.VolumeLabel:     attachment.VolumeID(a.Driver, a.Handle),
	}
	annotations := map[string]string{attachment.FlexDriverAnnotation: a.FlexDriver}
	if a.Name != "" {
		labels[attachment.PersistentVolumeLabel] = attachment.LabelValue(a.Name)
		annotations[attachment.PersistentVolumeAnnotation] = a.Name
	}
	if a.Pod.Name != "" {
		annotations[attachment.PodAnnotation] = a.Pod.Namespace + "/" + a.Pod.Name
	}
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{
			Name:        attachment.Name(a.Handle, a.Driver, a.Node),
			Labels:      labels,
			Annotations: annotations,
		},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: a.Driver,
			NodeName: a.Node,
			Source:   storagev1.VolumeAttachmentSource{InlineVolumeSpec: inlineSpec(a)},
		},
	}
}

// inlineSpec says of the volume what a CSI PersistentVolume would. Capacity,
// claimRef, nodeAffinity and storageClassName are not allowed here
// (pkg/apis/core/validation/validation.go, ValidatePersistentVolumeSpec).
func inlineSpec(a *csivol.Attachment) *corev1.PersistentVolumeSpec {
	source := &corev1.CSIPersistentVolumeSource{
		Driver:           a.Driver,
		VolumeHandle:     a.Handle,
		FSType:           a.FSType,
		ReadOnly:         a.ReadOnly,
		VolumeAttributes: maps.Clone(a.Context),
	}
	if a.Secret != nil {
		source.ControllerPublishSecretRef = &corev1.SecretReference{Namespace: a.Secret.Namespace, Name: a.Secret.Name}
	}
	filesystem := corev1.PersistentVolumeFilesystem
	spec := &corev1.PersistentVolumeSpec{
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: source},
		MountOptions:           slices.Clone(a.MountFlags),
		VolumeMode:             &filesystem,
	}
	for _, mode := range a.AccessModes {
		spec.AccessModes = append(spec.AccessModes, corev1.PersistentVolumeAccessMode(mode))
	}
	return spec
}

// digest tells two requests apart.
func digest(s *corev1.PersistentVolumeSpec) string {
	if s == nil || s.CSI == nil {
		return ""
	}
	parts := []any{s.CSI.FSType, s.CSI.ReadOnly, s.CSI.VolumeAttributes, s.CSI.ControllerPublishSecretRef, s.MountOptions, s.AccessModes}
	for i, empty := range []bool{2: len(s.CSI.VolumeAttributes) == 0, 4: len(s.MountOptions) == 0} {
		if empty {
			parts[i] = nil // whether it was there and empty is not told
		}
	}
	text, err := json.Marshal(parts) // maps in the order of their keys
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

// digestAnnotation is in the mirror only.
const digestAnnotation = "request"

// digestOf is that of an object, whether or not it is from the mirror.
func digestOf(o *storagev1.VolumeAttachment) string {
	if spec := o.Spec.Source.InlineVolumeSpec; spec != nil && len(spec.AccessModes) > 0 { // which the API server wants
		return digest(spec)
	}
	return o.Annotations[digestAnnotation]
}

// trimAttachment leaves what is looked at again and again; of what was asked for
// a digest.
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
