package migrate

import (
	"context"
	"slices"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/attachment"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// checkAttachments looks at those that have to do with the volume. The control
// plane adopts one of the right name; one that names the PersistentVolume keeps
// the external-attacher busy for ever when that is gone
// (kubernetes-csi/external-attacher#235).
func (j *judge) checkAttachments(ctx context.Context) {
	all, err := every(ctx, j.w, objects.VolumeAttachments())
	if err != nil {
		j.unknown("attachments", err)
		return
	}
	var on []string
	for _, o := range all {
		switch {
		case volumeName(o) == j.v.Name:
			j.check("attachments", Fails, "delete it", "VolumeAttachment %s (attacher %s, node %s) names the PersistentVolume, which is no CSI volume", o.Name, o.Spec.Attacher, o.Spec.NodeName)
		case o.Spec.Attacher == j.v.CSIDriver && attachment.Handle(o) == j.v.Handle:
			j.checkAttachment(o)
			on = append(on, o.Spec.NodeName)
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

func (j *judge) checkAttachment(o *storagev1.VolumeAttachment) {
	node, problem := o.Spec.NodeName, ""
	for _, e := range []*storagev1.VolumeError{o.Status.AttachError, o.Status.DetachError} {
		if e != nil {
			problem += e.Message
		}
	}
	used := slices.ContainsFunc(j.v.Pods, func(p Pod) bool { return p.Node == node })
	switch {
	case o.Name != attachment.Name(j.v.Handle, j.v.CSIDriver, node):
		j.check("attachments", Fails, "delete it when nothing uses it", "VolumeAttachment %s attaches the volume to node %s and does not have the name by which the control plane would adopt it", o.Name, node)
	case o.DeletionTimestamp != nil:
		j.check("attachments", Fails, "plan again in a moment", "VolumeAttachment %s is being deleted: the volume is being detached from node %s", o.Name, node)
	case !o.Status.Attached:
		j.check("attachments", Fails, "look at the CSI driver's controller, and plan again", "VolumeAttachment %s to node %s is not attached: %s", o.Name, node, orNone(problem))
	case !used:
		j.check("attachments", Fails, "plan again in a moment; flex2csi doctor looks for attachments that are left", "VolumeAttachment %s attaches the volume to node %s, where no pod uses it", o.Name, node)
	default:
		j.check("attachments", OK, "", "VolumeAttachment %s to node %s has the name by which the control plane adopts it", o.Name, node)
	}
}
