package attachment

import (
	"fmt"
	"strings"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/csivol"
)

// Managed reports whether flex2csi has made a VolumeAttachment, on whichever node.
func Managed(o *storagev1.VolumeAttachment) bool { return o.Labels[ManagedByLabel] == ManagedBy }

// AttachedBy is AttachedByNode or AttachedByController; empty if it is not told.
func AttachedBy(o *storagev1.VolumeAttachment) string { return o.Labels[AttachedByLabel] }

// FlexDriver is vendor/name of the FlexVolume; empty if it is not told.
func FlexDriver(o *storagev1.VolumeAttachment) string { return o.Annotations[FlexDriverAnnotation] }

// Pod is namespace/name of the pod that asked first; may be empty.
func Pod(o *storagev1.VolumeAttachment) string { return o.Annotations[PodAnnotation] }

// PersistentVolume is the name of the PersistentVolume that is attached: that of the
// annotation, or of spec.source. It is empty for an inline volume.
func PersistentVolume(o *storagev1.VolumeAttachment) string {
	if name := o.Annotations[PersistentVolumeAnnotation]; name != "" || o.Spec.Source.PersistentVolumeName == nil {
		return name
	}
	return *o.Spec.Source.PersistentVolumeName
}

// Handle is the volume handle of spec.source.inlineVolumeSpec; empty if there is none.
func Handle(o *storagev1.VolumeAttachment) string {
	if spec := o.Spec.Source.InlineVolumeSpec; spec != nil && spec.CSI != nil {
		return spec.CSI.VolumeHandle
	}
	return ""
}

// Volume is what a VolumeAttachment tells of the volume and of who wants it: enough to
// detach it, and without what only attaching needs.
func Volume(o *storagev1.VolumeAttachment) *csivol.Attachment {
	namespace, name, _ := strings.Cut(Pod(o), "/")
	return &csivol.Attachment{
		Driver: o.Spec.Attacher, Handle: Handle(o), Node: o.Spec.NodeName,
		FlexDriver: FlexDriver(o), Name: PersistentVolume(o), Pod: csivol.Pod{Namespace: namespace, Name: name},
	}
}

// ErrorText is the CSI driver's own text, and its gRPC code if that is told apart and
// not in the text, where the external-attacher leaves it; empty for no error.
func ErrorText(e *storagev1.VolumeError) string {
	switch {
	case e == nil:
		return ""
	case e.ErrorCode != nil && !strings.Contains(e.Message, "code = "):
		return fmt.Sprintf("gRPC code %d, %s", *e.ErrorCode, e.Message)
	}
	return e.Message
}
