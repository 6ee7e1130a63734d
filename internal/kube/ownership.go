package kube

import (
	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// isFor reports whether an attachment is of the volume to the node. Its name
// says so only if an honest one has made it: it is a hash, which no admission
// policy can compute, so that the token of another node is enough to take it.
func isFor(o *storagev1.VolumeAttachment, want *csivol.Attachment) bool {
	if o.Spec.NodeName != want.Node || o.Spec.Attacher != want.Driver {
		return false
	}
	spec := o.Spec.Source.InlineVolumeSpec
	if spec == nil {
		return true // of the control plane; it names a PersistentVolume
	}
	return spec.CSI != nil && spec.CSI.Driver == want.Driver && spec.CSI.VolumeHandle == want.Handle
}

// rightful is an error for an attachment that has the name and is another's.
func (w *wait) rightful(o *storagev1.VolumeAttachment) error {
	if isFor(o, w.want) {
		return nil
	}
	err := flex.Errorf(flex.CodeFailedPrecondition, "VolumeAttachment %s has the name of that of volume %s to node %s, and is not: it is for node %s and the attacher %s; find out who has made it, and delete it",
		w.name, aboutVolume(w.want), w.want.Node, o.Spec.NodeName, o.Spec.Attacher)
	w.tell(err.Error())
	return err
}
