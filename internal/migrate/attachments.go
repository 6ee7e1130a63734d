package migrate

import (
	"context"
	"slices"

	"github.com/flex2csi/flex2csi/internal/attachment"
)

// checkAttachments looks at those that have to do with the volume. The control
// plane adopts one of the right name; one that names the PersistentVolume keeps
// the external-attacher busy for ever when that is gone
// (kubernetes-csi/external-attacher#235).
func (j *judge) checkAttachments(ctx context.Context) {
	all, err := j.w.all(ctx, attachments())
	if err != nil {
		j.unknown("attachments", err)
		return
	}
	var on []string
	for _, o := range all {
		switch {
		case o.text("spec", "source", "persistentVolumeName") == j.v.Name:
			j.check("attachments", Fails, "delete it", "VolumeAttachment %s (attacher %s, node %s) names the PersistentVolume, which is no CSI volume", o.name(), o.text("spec", "attacher"), o.text("spec", "nodeName"))
		case o.text("spec", "attacher") == j.v.CSIDriver && o.text("spec", "source", "inlineVolumeSpec", "csi", "volumeHandle") == j.v.Handle:
			j.checkAttachment(o)
			on = append(on, o.text("spec", "nodeName"))
		}
	}
	if !j.attaches() {
		j.check("attachments", OK, "", "CSI driver %s attaches nothing (CSIDriver, attachRequired: false)", j.v.CSIDriver)
		return
	}
	for _, p := range j.v.Pods {
		if p.Node != "" && !slices.Contains(on, p.Node) {
			j.check("attachments", Note, "", "the volume has no VolumeAttachment to node %s: the control plane makes one, and the CSI driver gets ControllerPublishVolume again for a volume that is there", p.Node)
		}
	}
}

func (j *judge) checkAttachment(o *Object) {
	node := o.text("spec", "nodeName")
	problem := o.text("status", "attachError", "message") + o.text("status", "detachError", "message")
	used := slices.ContainsFunc(j.v.Pods, func(p Pod) bool { return p.Node == node })
	switch {
	case o.name() != attachment.Name(j.v.Handle, j.v.CSIDriver, node):
		j.check("attachments", Fails, "delete it when nothing uses it", "VolumeAttachment %s attaches the volume to node %s and does not have the name by which the control plane would adopt it", o.name(), node)
	case o.deleting():
		j.check("attachments", Fails, "plan again in a moment", "VolumeAttachment %s is being deleted: the volume is being detached from node %s", o.name(), node)
	case !o.truth(false, "status", "attached"):
		j.check("attachments", Fails, "look at the CSI driver's controller, and plan again", "VolumeAttachment %s to node %s is not attached: %s", o.name(), node, orNone(problem))
	case !used:
		j.check("attachments", Fails, "plan again in a moment; flex2csi doctor looks for attachments that are left", "VolumeAttachment %s attaches the volume to node %s, where no pod uses it", o.name(), node)
	default:
		j.check("attachments", OK, "", "VolumeAttachment %s to node %s has the name by which the control plane adopts it", o.name(), node)
	}
}
