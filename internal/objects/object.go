package objects

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/csivol"
)

// NewAttachment returns the VolumeAttachment for a. By is AttachedByNode or
// AttachedByController. Its source is an inline volume spec: the external-attacher
// refuses one that names the FlexVolume's PersistentVolume, and
// kube-controller-manager deletes one that names a PersistentVolume that does not
// exist (pkg/controller/volume/attachdetach/attach_detach_controller.go,
// processVolumeAttachments, Kubernetes v1.37.1).
func NewAttachment(a *csivol.Attachment, by string) *storagev1.VolumeAttachment {
	labels := map[string]string{
		ManagedByLabel:  ManagedBy,
		AttachedByLabel: by,
		NodeLabel:       LabelValue(a.Node),
		VolumeLabel:     VolumeID(a.Driver, a.Handle),
	}
	annotations := map[string]string{FlexDriverAnnotation: a.FlexDriver}
	if a.Name != "" {
		labels[PersistentVolumeLabel] = LabelValue(a.Name)
		annotations[PersistentVolumeAnnotation] = a.Name
	}
	if a.Request != "" {
		annotations[RequestAnnotation] = a.Request
	}
	if a.Pod.Name != "" {
		annotations[PodAnnotation] = a.Pod.Namespace + "/" + a.Pod.Name
	}
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{
			Name:        AttachmentName(a.Handle, a.Driver, a.Node),
			Labels:      labels,
			Annotations: annotations,
		},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: a.Driver,
			NodeName: a.Node,
			Source:   storagev1.VolumeAttachmentSource{InlineVolumeSpec: AttachmentSpec(a)},
		},
	}
}

// AttachmentSpec returns the inline volume spec. Capacity, claimRef, nodeAffinity and
// storageClassName are not allowed in it
// (pkg/apis/core/validation/validation.go, ValidatePersistentVolumeSpec).
func AttachmentSpec(a *csivol.Attachment) *corev1.PersistentVolumeSpec {
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

// ManagedAttachment reports whether flex2csi has made a VolumeAttachment, on any node.
func ManagedAttachment(o *storagev1.VolumeAttachment) bool {
	return o.Labels[ManagedByLabel] == ManagedBy
}

// AttachedBy returns AttachedByNode or AttachedByController; empty if not known.
func AttachedBy(o *storagev1.VolumeAttachment) string { return o.Labels[AttachedByLabel] }

// AttachmentFlexDriver is vendor/name of the FlexVolume; empty if it is not told.
func AttachmentFlexDriver(o *storagev1.VolumeAttachment) string {
	return o.Annotations[FlexDriverAnnotation]
}

// AttachmentPod is namespace/name of the pod that asked first; may be empty.
func AttachmentPod(o *storagev1.VolumeAttachment) string { return o.Annotations[PodAnnotation] }

// AttachmentPersistentVolume is the name of the PersistentVolume that is attached: that of the
// annotation, or of spec.source. It is empty for an inline volume.
func AttachmentPersistentVolume(o *storagev1.VolumeAttachment) string {
	if name := o.Annotations[PersistentVolumeAnnotation]; name != "" || o.Spec.Source.PersistentVolumeName == nil {
		return name
	}
	return *o.Spec.Source.PersistentVolumeName
}

// AttachmentHandle is the volume handle of spec.source.inlineVolumeSpec; empty if there is none.
func AttachmentHandle(o *storagev1.VolumeAttachment) string {
	if spec := o.Spec.Source.InlineVolumeSpec; spec != nil && spec.CSI != nil {
		return spec.CSI.VolumeHandle
	}
	return ""
}

// AttachmentVolume is what a VolumeAttachment tells of the volume and of who wants it: enough to
// detach it, and without what only attaching needs.
func AttachmentVolume(o *storagev1.VolumeAttachment) *csivol.Attachment {
	namespace, name, _ := strings.Cut(AttachmentPod(o), "/")
	return &csivol.Attachment{
		Driver: o.Spec.Attacher, Handle: AttachmentHandle(o), Node: o.Spec.NodeName,
		FlexDriver: AttachmentFlexDriver(o), Name: AttachmentPersistentVolume(o), Request: o.Annotations[RequestAnnotation], Pod: csivol.Pod{Namespace: namespace, Name: name},
	}
}

// AttachmentErrorText is the CSI driver's own text, and its gRPC code if that is told apart and
// not in the text, where the external-attacher leaves it; empty for no error.
func AttachmentErrorText(e *storagev1.VolumeError) string {
	switch {
	case e == nil:
		return ""
	case e.ErrorCode != nil && !strings.Contains(e.Message, "code = "):
		return fmt.Sprintf("gRPC code %d, %s", *e.ErrorCode, e.Message)
	}
	return e.Message
}
