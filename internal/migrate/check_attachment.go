package migrate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/objects"
)

// attachmentChecks are about what is attached.
func attachmentChecks() []check {
	return []check{
		{"attachments", "that VolumeAttachments of the volume have the right name and are attached, that there is none where no pod is, and that none names the PersistentVolume or has the name of one of the volume and attaches another", (*subject).rendered, (*subject).checkAttachments},
		{"volumes-attached", "that no [vendor's driver in kube-controller-manager](../migrate.md#a-vendors-driver-in-kube-controller-manager) has the volume attached, on any node", (*subject).rendered, (*subject).checkVolumesAttached},
	}
}

// checkAttachments looks at those that have to do with the volume. The control
// plane adopts one of the right name, also if that attaches another volume, and waits for it
// without end (Kubernetes PR 141541); one that names the PersistentVolume keeps the
// external-attacher busy for ever when that is gone (kubernetes-csi/external-attacher#235).
func (s *subject) checkAttachments(ctx context.Context, f *findings) error {
	all, err := s.w.attachments(ctx)
	if err != nil {
		return err
	}
	var on []string
	for _, o := range all.find(s.v.Name, s.r.mapped.Key()) {
		switch {
		case volumeName(o) == s.v.Name && leftByRollback(o):
			f.ok("VolumeAttachment %s to node %s is left of a migration that was taken back; nothing keeps it", o.Name, o.Spec.NodeName)
		case volumeName(o) == s.v.Name:
			f.fails("delete it", "VolumeAttachment %s (attacher %s, node %s) names the PersistentVolume, which is no CSI volume", o.Name, o.Spec.Attacher, o.Spec.NodeName)
		case !s.attaches():
			f.note("see why it is there, and delete it when no pod has the volume on that node",
				"VolumeAttachment %s attaches the volume to node %s, and CSI driver %s attaches nothing (CSIDriver, attachRequired: false): neither the control plane nor the kubelet goes by it", o.Name, o.Spec.NodeName, s.v.CSIDriver)
		default:
			s.checkAttachment(f, o)
		}
		on = append(on, o.Spec.NodeName)
	}
	if !s.attaches() {
		if len(on) == 0 {
			f.ok("CSI driver %s attaches nothing (CSIDriver, attachRequired: false)", s.v.CSIDriver)
		}
		return nil
	}
	nodes := s.v.nodes()
	for _, node := range nodes {
		if !slices.Contains(on, node) && (len(nodes) == 1 || !s.oneNode()) {
			f.note("", "the volume has no VolumeAttachment to node %s: the control plane makes one, and the CSI driver gets ControllerPublishVolume again for a volume that is there", node)
		}
	}
	return nil
}

func (s *subject) checkAttachment(f *findings, o *storagev1.VolumeAttachment) {
	node, name := o.Spec.NodeName, objects.AttachmentName(s.v.Handle, s.v.CSIDriver, o.Spec.NodeName)
	other := ""
	if volume := volumeName(o); volume != "" {
		other = "PersistentVolume " + volume
	} else if handle := objects.AttachmentHandle(o); handle != s.v.Handle || o.Spec.Attacher != s.v.CSIDriver {
		other = "volume " + handle + " of " + o.Spec.Attacher
	}
	state := s.w.attachmentState(o)
	used := slices.ContainsFunc(s.v.Pods, func(p Pod) bool { return p.Node == node })
	switch {
	case other != "":
		f.fails("delete it when no pod on that node uses what it attaches; the external-attacher removes its finalizer, which a person has to do where the PersistentVolume is gone",
			"VolumeAttachment %s has the name by which the control plane attaches this volume to node %s, and attaches %s (%s)", o.Name, node, other, state)
	case o.Name != name:
		f.fails("delete it when nothing uses it", "VolumeAttachment %s attaches the volume to node %s and does not have the name by which the control plane would adopt it", o.Name, node)
	case o.DeletionTimestamp != nil:
		do := "plan again in a moment"
		if s.w.now.Sub(o.DeletionTimestamp.Time) > longDetach {
			do = "see why the CSI driver's controller does not detach it (kubectl describe volumeattachment " + o.Name + "), and plan again when it is gone"
		}
		f.fails(do, "VolumeAttachment %s is %s: the volume is being detached from node %s", o.Name, state, node)
	case !o.Status.Attached:
		f.fails("look at the CSI driver's controller, and plan again", "VolumeAttachment %s to node %s is %s", o.Name, node, state)
	case !used:
		f.fails("plan again in a moment; flex2csi doctor looks for attachments that are left", "VolumeAttachment %s attaches the volume to node %s, where no pod uses it", o.Name, node)
	default:
		f.ok("VolumeAttachment %s to node %s has the name by which the control plane adopts it", o.Name, node)
	}
}

// longDetach is how long a detach takes at most, as a rule.
const longDetach = 10 * time.Minute

// attachmentState is what the control plane and the external-attacher say of an attachment.
func (w *world) attachmentState(o *storagev1.VolumeAttachment) string {
	var all []string
	if at := o.DeletionTimestamp; at != nil {
		all = append(all, fmt.Sprintf("being deleted since %s (%s)", stamp(at), age(w.now.Sub(at.Time))))
		if o.Status.DetachError == nil {
			all = append(all, "with no detachError")
		}
	}
	if !o.Status.Attached {
		all = append(all, "not attached")
	}
	if e := o.Status.AttachError; e != nil {
		all = append(all, "attachError: "+e.Message)
	}
	if e := o.Status.DetachError; e != nil {
		all = append(all, "detachError: "+e.Message)
	}
	if len(all) == 0 {
		return "attached"
	}
	return strings.Join(all, ", ")
}

// age is a duration for people.
func age(d time.Duration) string {
	if days := int(d.Hours()) / 24; days > 1 {
		return fmt.Sprintf("%d days", days)
	}
	return d.Round(time.Second).String()
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
