package doctor

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/flex2csi/flex2csi/internal/attachment"
	"github.com/flex2csi/flex2csi/internal/clusterview"
	"github.com/flex2csi/flex2csi/internal/csivol"
)

// slowAttach is how long attaching and detaching may take before somebody
// should look.
const slowAttach = 2 * time.Minute

// checkAttachments looks at the VolumeAttachments that flex2csi has made, and
// at those of this node only if it is one.
func (p *patient) checkAttachments(ctx context.Context, n *notes) {
	all, err := p.attachments()
	if err != nil {
		n.skip("VolumeAttachments", "%v", err)
		return
	}
	ours := slices.DeleteFunc(slices.Clone(all), func(a clusterview.Attachment) bool { return !a.Ours })
	p.checkTwice(n, ours)
	if node := p.node(); p.Local && node != "" {
		ours = slices.DeleteFunc(ours, func(a clusterview.Attachment) bool { return a.Node != node })
	}
	gone := p.look(ctx, n, ours)
	for i := range ours {
		judgeAttachment(n, &ours[i], gone)
	}
	p.checkRecords(n, ours)
	n.add(attachmentsFine, "VolumeAttachments", "%d VolumeAttachments of flex2csi were looked at, of %d in all", len(ours), len(all))
}

// A world tells what there is.
type world struct{ nodes, volumes map[string]bool } // nil: not known

func (p *patient) look(ctx context.Context, n *notes, ours []clusterview.Attachment) (w world) {
	if nodes, err := p.nodes(); err != nil {
		n.skip("whether the nodes of VolumeAttachments are still there", "%v", err)
	} else {
		w.nodes = map[string]bool{}
		for _, node := range nodes {
			w.nodes[node.Name] = true
		}
	}
	names := map[string]bool{}
	for i := range ours {
		if name := ours[i].PersistentVolume; name != "" {
			names[name] = true
		}
	}
	volumes, err := p.Cluster.PersistentVolumesThere(ctx, sortedKeys(names))
	if err != nil {
		n.skip("whether the volumes of VolumeAttachments are still there", "%v", err)
	}
	w.volumes = volumes
	return w
}

func judgeAttachment(n *notes, a *clusterview.Attachment, w world) {
	age := time.Since(a.Created).Round(time.Second)
	what := "VolumeAttachment of volume " + nameOf(a) + " to node " + a.Node
	var e *entry
	switch {
	case !a.Deleted.IsZero() && time.Since(a.Deleted) > slowAttach:
		e = n.add(attachmentStays, a.Name, "the %s is being deleted since %v", what, time.Since(a.Deleted).Round(time.Second))
		e.evidence("finalizers: " + strings.Join(a.Finalizers, ", "))
	case w.nodes != nil && !w.nodes[a.Node]:
		e = n.add(attachmentNoNode, a.Name, "the node of the %s does not exist any more", what)
	case w.volumes != nil && a.PersistentVolume != "" && !w.volumes[a.PersistentVolume]:
		e = n.add(attachmentNoPV, a.Name, "the volume of the %s does not exist any more", what)
	case !a.Attached && a.AttachError != "" && a.Deleted.IsZero():
		e = n.add(attachmentFails, a.Name, "the %s fails for %v", what, age)
	case !a.Attached && a.Deleted.IsZero() && age > slowAttach:
		e = n.add(attachmentWaits, a.Name, "the %s is not attached after %v, and there is no error", what, age)
		if !slices.ContainsFunc(a.Finalizers, func(f string) bool { return strings.HasPrefix(f, "external-attacher/") }) {
			e.evidence("no external-attacher has put its finalizer there: it has not seen it")
		}
	default:
		return
	}
	e.evidence("CSI driver " + a.Driver + ", FlexVolume driver " + a.FlexDriver + ", made " + age.String() + " ago by " + maker(a))
	for _, text := range []string{a.AttachError, a.DetachError} {
		if text != "" {
			e.evidence("the driver's word: " + clip(text))
		}
	}
}

func maker(a *clusterview.Attachment) string {
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
func (p *patient) checkTwice(n *notes, ours []clusterview.Attachment) {
	on := map[string][]string{}
	for i := range ours {
		if a := &ours[i]; a.Handle != "" && !forMany(a.AccessModes) {
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

// checkRecords: those that this node's daemon has made it must know of.
func (p *patient) checkRecords(n *notes, ours []clusterview.Attachment) {
	if !p.Local {
		return
	}
	s, err := p.status()
	if err != nil || s.absent != nil && len(s.Volumes) == 0 {
		n.skip("whether VolumeAttachments of this node have records", "neither the daemon nor its files tell of volumes")
		return
	}
	known := map[string]bool{}
	for i := range s.Volumes {
		known[s.Volumes[i].CSIDriver+"/"+s.Volumes[i].VolumeHandle] = true
	}
	for i := range ours {
		a := &ours[i]
		if a.By == attachment.AttachedByNode && a.Handle != "" && !known[a.Driver+"/"+a.Handle] && time.Since(a.Created) > slowAttach && a.Deleted.IsZero() {
			n.add(attachmentNoUser, a.Name, "volume %s is attached to this node, and the daemon has no record of it (%s)", nameOf(a), filepath.Clean(p.StateDir))
		}
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
