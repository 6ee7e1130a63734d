package migrate

import (
	"context"
	"slices"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/attachment"
)

// attachmentChecks are about what is attached.
func attachmentChecks() []check {
	return []check{
		{"attachments", "that VolumeAttachments of the volume have the right name and are attached, that there is none where no pod is, and that none names the PersistentVolume", (*subject).rendered, (*subject).checkAttachments},
		{"volumes-attached", "that no [vendor's driver in kube-controller-manager](#a-vendors-driver-in-kube-controller-manager) has the volume attached, on any node", (*subject).rendered, (*subject).checkVolumesAttached},
	}
}

// checkAttachments looks at those that have to do with the volume. The control
// plane adopts one of the right name; one that names the PersistentVolume keeps
// the external-attacher busy for ever when that is gone
// (kubernetes-csi/external-attacher#235).
func (s *subject) checkAttachments(ctx context.Context, f *findings) error {
	all, err := s.w.attachments(ctx)
	if err != nil {
		return err
	}
	for _, o := range all.volumes[s.v.Name] {
		f.fails("delete it", "VolumeAttachment %s (attacher %s, node %s) names the PersistentVolume, which is no CSI volume", o.Name, o.Spec.Attacher, o.Spec.NodeName)
	}
	var on []string
	for _, o := range all.handles[s.r.mapped.Key()] {
		s.checkAttachment(f, o)
		on = append(on, o.Spec.NodeName)
	}
	if !s.attaches() {
		f.ok("CSI driver %s attaches nothing (CSIDriver, attachRequired: false)", s.v.CSIDriver)
		return nil
	}
	for _, p := range s.v.Pods {
		if p.Node != "" && !slices.Contains(on, p.Node) {
			f.note("", "the volume has no VolumeAttachment to node %s: the control plane makes one, and the CSI driver gets ControllerPublishVolume again for a volume that is there", p.Node)
		}
	}
	return nil
}

func (s *subject) checkAttachment(f *findings, o *storagev1.VolumeAttachment) {
	node, problem := o.Spec.NodeName, ""
	for _, e := range []*storagev1.VolumeError{o.Status.AttachError, o.Status.DetachError} {
		if e != nil {
			problem += e.Message
		}
	}
	used := slices.ContainsFunc(s.v.Pods, func(p Pod) bool { return p.Node == node })
	switch {
	case o.Name != attachment.Name(s.v.Handle, s.v.CSIDriver, node):
		f.fails("delete it when nothing uses it", "VolumeAttachment %s attaches the volume to node %s and does not have the name by which the control plane would adopt it", o.Name, node)
	case o.DeletionTimestamp != nil:
		f.fails("plan again in a moment", "VolumeAttachment %s is being deleted: the volume is being detached from node %s", o.Name, node)
	case !o.Status.Attached:
		f.fails("look at the CSI driver's controller, and plan again", "VolumeAttachment %s to node %s is not attached: %s", o.Name, node, orNone(problem))
	case !used:
		f.fails("plan again in a moment; flex2csi doctor looks for attachments that are left", "VolumeAttachment %s attaches the volume to node %s, where no pod uses it", o.Name, node)
	default:
		f.ok("VolumeAttachment %s to node %s has the name by which the control plane adopts it", o.Name, node)
	}
}

// checkVolumesAttached wants no vendor's driver to detach the volume later.
func (s *subject) checkVolumesAttached(ctx context.Context, f *findings) error {
	on, err := s.w.attachedByVendor(ctx, flexVolume{s.v.FlexDriver, s.v.Name, s.v.CSIDriver, s.v.Handle})
	if err != nil {
		return err
	}
	s.v.byVendor = len(on) > 0
	for _, node := range on {
		if slices.ContainsFunc(s.v.Pods, func(p Pod) bool { return p.Node == node }) {
			f.notLive("take the vendor's driver out of kube-controller-manager and remove the entry (docs/migrate.md, A vendor's driver in kube-controller-manager), or stop the pod for it",
				"%s; it would detach the volume under the pod when kube-controller-manager restarts", byVendor(node))
			continue
		}
		f.fails("plan again in a minute; if the entry stays, remove it (docs/migrate.md, A vendor's driver in kube-controller-manager)",
			"%s, where no pod uses it; kube-controller-manager is about to detach it, or no longer has the driver", byVendor(node))
	}
	if len(on) == 0 {
		f.ok("no vendor's driver in kube-controller-manager has it attached (status.volumesAttached of the nodes)")
	}
	return nil
}
