package doctor

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/flex2csi/flex2csi/internal/attachment"
	"github.com/flex2csi/flex2csi/internal/clusterview"
	"github.com/flex2csi/flex2csi/internal/controller"
	"github.com/flex2csi/flex2csi/internal/csivol"
)

// slowAttach is how long attaching and detaching may take before somebody
// should look.
const slowAttach = 2 * time.Minute

// checkAttachments looks at the VolumeAttachments that flex2csi has made, and
// at those of this node only if it is one. What is leaked is what the sweeper
// says is.
func (p *patient) checkAttachments(ctx context.Context, n *notes) {
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
		findings = slices.DeleteFunc(findings, func(f controller.Finding) bool { return f.Node != node })
	}
	known := p.records(n)
	for i := range findings {
		judge(n, &findings[i], known)
	}
	n.add(attachmentsFine, "VolumeAttachments", "%s of flex2csi looked at, of %d in all", count(len(findings), "VolumeAttachment"), len(all))
}

// seen is the cluster as far as nodes are known. The attachments of a node that may
// not be read would look as if it were gone.
type seen struct {
	Cluster
	p *patient
}

func (s seen) ListNodes(context.Context) ([]corev1.Node, error) { return s.p.nodes() }

func (s seen) ListAttachments(ctx context.Context, ours bool) ([]clusterview.Attachment, error) {
	all, err := s.Cluster.ListAttachments(ctx, ours)
	nodes, nodesErr := s.p.nodes()
	if err != nil || nodesErr != nil || !s.p.onlyOwn.Load() {
		return all, err
	}
	return slices.DeleteFunc(all, func(a clusterview.Attachment) bool { return a.Node != nodes[0].Name }), nil
}

// judge says what is wrong with one. What nobody uses need not be attached, so
// that comes before what its CSI driver says.
func judge(n *notes, f *controller.Finding, known map[csivol.Key]bool) {
	now := time.Now()
	age := now.Sub(f.Created).Round(time.Second)
	what := "VolumeAttachment of volume " + nameOf(&f.Attachment) + " to node " + f.Node
	var e *entry
	switch {
	case !f.Deleted.IsZero() && now.Sub(f.Deleted) > slowAttach:
		e = n.add(attachmentStays, f.Name, "the %s is being deleted for %v", what, now.Sub(f.Deleted).Round(time.Second))
		e.evidence("finalizers: " + strings.Join(f.Finalizers, ", "))
	case f.Verdict == controller.NodeGone || f.Verdict == controller.OutOfService || f.Verdict == controller.NodeNotReady:
		e = n.add(attachmentNoNode, f.Name, "the %s is leaked: %s", what, f.Reason)
	case f.Verdict == controller.Forgotten || f.Verdict == controller.Unused:
		e = n.add(attachmentNoUser, f.Name, "the %s is used by nobody: %s", what, f.Reason)
	case !f.Attached && f.AttachError != "" && f.Deleted.IsZero():
		e = n.add(attachmentFails, f.Name, "the %s fails for %v", what, age)
	case !f.Attached && f.Deleted.IsZero() && age > slowAttach:
		e = n.add(attachmentWaits, f.Name, "the %s is not attached after %v, and there is no error", what, age)
		if !slices.ContainsFunc(f.Finalizers, func(f string) bool { return strings.HasPrefix(f, "external-attacher/") }) {
			e.evidence("no external-attacher has put its finalizer there: it has not seen it")
		}
	case known != nil && f.By == attachment.AttachedByNode && f.Verdict != controller.Adopted && !known[csivol.Key{Driver: f.Driver, Handle: f.Handle}] && age > slowAttach && f.Deleted.IsZero():
		e = n.add(attachmentNoRecord, f.Name, "volume %s is attached to this node, and the daemon has no record of it", nameOf(&f.Attachment))
	case f.Verdict == controller.Unknown:
		n.skip("whether the "+what+" is used", "%s", f.Reason)
		return
	default:
		return
	}
	e.evidence("CSI driver " + f.Driver + ", FlexVolume driver " + f.FlexDriver + ", made " + age.String() + " ago by " + maker(f))
	for _, text := range []string{f.AttachError, f.DetachError} {
		if text != "" {
			e.evidence("the driver's word: " + clip(text))
		}
	}
}

func maker(a *controller.Finding) string {
	if a.By == attachment.AttachedByController {
		return "flex2csi serve --controller"
	}
	if a.Pod != "" {
		return "the daemon of the node, for pod " + a.Pod
	}
	return "the daemon of the node"
}

func nameOf(a *clusterview.Attachment) string {
	if a.PersistentVolume != "" {
		return a.PersistentVolume
	}
	return a.Handle
}

// checkTwice looks for volumes for one node that have two.
func (p *patient) checkTwice(n *notes, all []clusterview.Attachment) {
	on := map[string][]string{}
	for i := range all {
		if a := &all[i]; a.Ours && a.Handle != "" && !forMany(a.AccessModes) {
			on[a.Driver+"/"+a.Handle] = append(on[a.Driver+"/"+a.Handle], a.Node+" ("+nameOf(a)+")")
		}
	}
	for _, volume := range sortedKeys(on) {
		if len(on[volume]) > 1 {
			n.add(attachmentTwice, volume, "volume %s is for one node, and attached to %d", volume, len(on[volume])).evidence(on[volume]...)
		}
	}
}

func forMany(modes []csivol.AccessMode) bool {
	return slices.Contains(modes, csivol.ReadOnlyMany) || slices.Contains(modes, csivol.ReadWriteMany)
}

// records are the volumes that this node's daemon knows of; nil: not known.
func (p *patient) records(n *notes) map[csivol.Key]bool {
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
