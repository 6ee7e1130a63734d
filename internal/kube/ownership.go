package kube

import (
	"cmp"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/attachment"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// objectName returns the name of the VolumeAttachment of a volume and a node.
func objectName(want *csivol.Attachment) string {
	return cmp.Or(want.Object, attachment.Name(want.Handle, want.Driver, want.Node))
}

// isFor reports whether an attachment is for the volume and the node. Its name alone
// does not prove that: it is a hash, which no admission policy can compute, so that the
// token of another node is enough to create an object with that name.
func isFor(o *storagev1.VolumeAttachment, want *csivol.Attachment) bool {
	if o.Spec.Attacher != want.Driver || attachment.Name(want.Handle, want.Driver, o.Spec.NodeName) != objectName(want) {
		return false
	}
	spec := o.Spec.Source.InlineVolumeSpec
	if spec == nil {
		return true // made by the control plane; it names a PersistentVolume
	}
	return spec.CSI != nil && spec.CSI.Driver == want.Driver && spec.CSI.VolumeHandle == want.Handle
}

// rightful returns an error for an attachment of another volume that has the name.
func (w *wait) rightful(o *storagev1.VolumeAttachment) error {
	if isFor(o, w.want) {
		return nil
	}
	err := flex.Errorf(flex.CodeFailedPrecondition, "VolumeAttachment %s has the name for volume %s on node %s, but is for node %s and the attacher %s; find out who has made it, and delete it",
		w.name, aboutVolume(w.want), w.want.Node, o.Spec.NodeName, o.Spec.Attacher)
	w.tell(err.Error())
	return err
}

// ours reports whether this daemon is responsible for an attachment.
func (a *Attachments) ours(o *storagev1.VolumeAttachment) bool {
	return attachment.Managed(o) && attachment.AttachedBy(o) == a.owner
}

// mayDelete reports whether this daemon may delete an attachment. The controller may
// delete those of all nodes: kube-controller-manager tells it which to detach, and the
// sweeper cleans up for deleted nodes.
func (a *Attachments) mayDelete(o *storagev1.VolumeAttachment) bool {
	return a.ours(o) || attachment.Managed(o) && a.owner == attachment.AttachedByController
}
