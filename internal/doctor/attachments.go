package doctor

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/controller"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// slowAttach is how long attach and detach may take.
const slowAttach = 2 * time.Minute

// checkAttachments checks the VolumeAttachments of flex2csi; on a node only those of the
// node. The sweeper decides which are leaked.
func (p *probe) checkAttachments(ctx context.Context, n *notes) {
	all, err := p.attachments()
	if err != nil {
		n.skip("VolumeAttachments", "%v", err)
		return
	}
	findings, err := controller.Look(ctx, seen{p.Cluster, p})
	if err != nil {
		n.skip("VolumeAttachments of flex2csi", "%v", err)
		return
	}
	p.checkTwice(n, all)
	if node := p.node(); p.Local && node != "" {
		findings = slices.DeleteFunc(findings, func(f controller.Finding) bool { return f.Spec.NodeName != node })
	}
	known := p.records(n)
	for i := range findings {
		checkAttachment(n, &findings[i], known)
	}
	n.add(attachmentsFine, "VolumeAttachments", "%s of flex2csi checked, of %d in all", count(len(findings), "VolumeAttachment"), len(all))
}

// seen restricts the cluster to known nodes. A node that may not be read would look
// deleted.
type seen struct {
	Cluster
	p *probe
}

func (s seen) ListNodes(context.Context) ([]corev1.Node, error) { return s.p.nodes() }

func (s seen) ListAttachments(ctx context.Context, ours bool) ([]storagev1.VolumeAttachment, error) {
	all, err := s.Cluster.ListAttachments(ctx, ours)
	nodes, nodesErr := s.p.nodes()
	if err != nil || nodesErr != nil || !s.p.onlyOwn.Load() {
		return all, err
	}
	return slices.DeleteFunc(all, func(a storagev1.VolumeAttachment) bool { return a.Spec.NodeName != nodes[0].Name }), nil
}

// checkAttachment reports what is wrong with an attachment. An unused one need not be
// attached, so that comes before errors of its CSI driver.
func checkAttachment(n *notes, f *controller.Finding, known map[csivol.Key]bool) {
	now := time.Now()
	age := now.Sub(f.CreationTimestamp.Time).Round(time.Second)
	stays, fails := f.DeletionTimestamp == nil, f.Status.AttachError
	what := "VolumeAttachment of volume " + nameOf(f.VolumeAttachment) + " to node " + f.Spec.NodeName
	var e *entry
	switch {
	case !stays && now.Sub(f.DeletionTimestamp.Time) > slowAttach:
		e = n.add(attachmentStays, f.Name, "the %s is being deleted for %v", what, now.Sub(f.DeletionTimestamp.Time).Round(time.Second))
		e.evidence("finalizers: " + strings.Join(f.Finalizers, ", "))
	case f.State == controller.NodeGone || f.State == controller.OutOfService || f.State == controller.NodeNotReady:
		e = n.add(attachmentNoNode, f.Name, "the %s is leaked: %s", what, f.Reason)
	case f.State == controller.Forgotten || f.State == controller.Unused:
		e = n.add(attachmentNoUser, f.Name, "the %s is unused: %s", what, f.Reason)
	case stays && !f.Status.Attached && fails != nil:
		e = n.add(attachmentFails, f.Name, "the %s fails for %v", what, age)
	case stays && !f.Status.Attached && age > slowAttach:
		e = n.add(attachmentWaits, f.Name, "the %s is not attached after %v, and there is no error", what, age)
		if !slices.ContainsFunc(f.Finalizers, func(f string) bool { return strings.HasPrefix(f, "external-attacher/") }) {
			e.evidence("no external-attacher has put its finalizer there: it has not seen it")
		}
	case stays && age > slowAttach && f.State != controller.Adopted && lacksRecord(f.VolumeAttachment, known):
		e = n.add(attachmentNoRecord, f.Name, "volume %s is attached to this node, and the daemon has no record of it", nameOf(f.VolumeAttachment))
	case f.State == controller.Unknown:
		n.skip("whether the "+what+" is used", "%s", f.Reason)
		return
	default:
		return
	}
	e.evidence("CSI driver " + f.Spec.Attacher + ", FlexVolume driver " + objects.AttachmentFlexDriver(f.VolumeAttachment) + ", made " + age.String() + " ago by " + maker(f.VolumeAttachment))
	for _, said := range []*storagev1.VolumeError{fails, f.Status.DetachError} {
		if said != nil {
			e.evidence("the driver says: " + clip(objects.AttachmentErrorText(said)))
		}
	}
}

// lacksRecord reports whether the daemon of this node has attached a volume that it has
// no record of; known is nil if its records are not known.
func lacksRecord(a *storagev1.VolumeAttachment, known map[csivol.Key]bool) bool {
	return known != nil && objects.AttachedBy(a) == objects.AttachedByNode && !known[objects.AttachmentVolume(a).Key()]
}

func maker(a *storagev1.VolumeAttachment) string {
	if objects.AttachedBy(a) == objects.AttachedByController {
		return "flex2csi controller"
	}
	if pod := objects.AttachmentPod(a); pod != "" {
		return "the daemon of the node, for pod " + pod
	}
	return "the daemon of the node"
}

func nameOf(a *storagev1.VolumeAttachment) string {
	return cmp.Or(objects.AttachmentPersistentVolume(a), objects.AttachmentHandle(a))
}

// checkTwice looks for volumes for one node that are attached to two.
func (p *probe) checkTwice(n *notes, all []storagev1.VolumeAttachment) {
	on := map[string][]string{}
	for i := range all {
		a := &all[i]
		if handle := objects.AttachmentHandle(a); objects.ManagedAttachment(a) && handle != "" && !forMany(a.Spec.Source.InlineVolumeSpec.AccessModes) {
			volume := a.Spec.Attacher + "/" + handle
			on[volume] = append(on[volume], a.Spec.NodeName+" ("+nameOf(a)+")")
		}
	}
	for _, volume := range sortedKeys(on) {
		if len(on[volume]) > 1 {
			n.add(attachmentTwice, volume, "volume %s is for one node, and attached to %d", volume, len(on[volume])).evidence(on[volume]...)
		}
	}
}

func forMany(modes []corev1.PersistentVolumeAccessMode) bool {
	return slices.Contains(modes, corev1.ReadOnlyMany) || slices.Contains(modes, corev1.ReadWriteMany)
}

// records returns the volumes with a record of this node's daemon; nil: not known.
func (p *probe) records(n *notes) map[csivol.Key]bool {
	if !p.Local {
		return nil
	}
	s, err := p.status()
	if err != nil || s.absent != nil && len(s.Volumes) == 0 {
		n.skip("whether VolumeAttachments of this node have records", "neither the daemon nor its files tell of volumes")
		return nil
	}
	known := map[csivol.Key]bool{}
	for i := range s.Volumes {
		known[csivol.Key{Driver: s.Volumes[i].CSIDriver, Handle: s.Volumes[i].VolumeHandle}] = true
	}
	return known
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
