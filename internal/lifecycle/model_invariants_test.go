package lifecycle

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/internal/volstate"
)

// An invariant holds for every transition.
type invariant struct {
	name, sentence string
	broken         func(m *model, before *world, mv *move) bool
}

func invariants() []invariant {
	return []invariant{
		{"unstage", "never NodeUnstageVolume while anything of the volume is published on the node, by us or by the kubelet's CSI plugin", unstagesInUse},
		{"detach", "never ControllerUnpublishVolume, or the deletion of a VolumeAttachment, while the volume is staged or published on that node", detachesInUse},
		{"mount", "Success of mount only if the volume, alive, with the asked read-only and fsGroup, is bound there", falseMount},
		{"failure", "Failure of mount only if nothing is shown there, but for a dead mount that containers may have, or the undoing of it has failed", falseFailure},
		{"unmount", "Success of unmount only if nothing of ours is left there", falseUnmount},
		{"unmountdevice", "Success of unmountdevice only if nothing of the volume is staged or published on the node by us", falseUnmountDevice},
		{"reach", "nothing of the user's is ever within reach of a recursive deletion by the kubelet", withinReach},
		{"expand", "Success of expansion only if the filesystem has the size", falseExpand},
		{"one-node", "never two nodes attached for a single-node access mode", twoNodes},
		{"names", "never another VolumeAttachment for a node that was renamed, before the first is deleted", func(_ *model, _ *world, mv *move) bool { return mv.event.forgotten }},
		{"machines", "never NodeStageVolume or NodePublishVolume by a VolumeAttachment of another machine with the name of the node", staleAttachment},
		{"others", "never a step on what the control plane, the kubelet's CSI plugin or another volume owns", touchesOthers},
		{"containers", "nothing is taken away from containers that may have it, dead or alive, and no fsGroup is applied under them, but by unmount or with repairInUse", harmsContainers},
		{"silence", "what only does not answer is not taken away from a pod that is to have it, and nothing is begun on it", disturbsSilent},
		{"circles", "the planner always comes to a step that does something, or to an end, and never panics", func(_ *model, _ *world, mv *move) bool { return mv.event.circles }},
	}
}

// TestInvariants prints what the model checks, which README.md lists.
func TestInvariants(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	all := append(invariants(), promise(-1), promise(0))
	for _, inv := range all {
		line := fmt.Sprintf("- `%s`: %s.\n", inv.name, inv.sentence)
		if t.Log(line); !strings.Contains(string(readme), line) {
			t.Errorf("README.md does not have the line %q", line)
		}
	}
	if listed := strings.Count(string(readme), "\n- `"); listed != len(all) {
		t.Errorf("README.md lists %d invariants, want %d", listed, len(all))
	}
}

// inUse reports whether anything of the volume is published on a node.
func (n *node) inUse() bool {
	for p := range podCount {
		if n.published[p] != nothing || n.binds[p] != nothing || n.plugin.pods[p] != nothing {
			return true
		}
	}
	return false
}

func unstagesInUse(_ *model, before *world, mv *move) bool {
	return mv.event.step == NodeUnstage && before.nodes[mv.event.stepNode].inUse()
}

func detachesInUse(m *model, before *world, mv *move) bool {
	e := &mv.event
	n := &before.nodes[e.stepNode]
	deletes := e.detached || (e.step == DeleteAttachment && mv.to.nodes[e.stepNode].va.deleting && !n.va.deleting)
	return (deletes || e.step == ControllerUnpublish) && (n.inUse() || n.staged != nothing || n.plugin.staged)
}

func falseMount(m *model, before *world, mv *move) bool {
	e := &mv.event
	if e.decided == Bind && m.bindsDetached(&mv.to, e.decidedNode) {
		return true
	}
	if e.goal != Mount || !e.ended || !e.ok || !e.awaited {
		return false
	}
	p := int(e.place)
	n, want := &mv.to.nodes[m.c.nodeOf(p)], m.c.volumeOf(p)
	switch {
	case e.found && m.c.direct: // the driver's mount can be seen before it is finished: that is outside
		return false
	case m.shownTo(n, p) != alive, n.readOnly[p] != want.ReadOnly, want.FSGroup != nil && !n.group[p]:
		return true
	case m.c.stage && ((n.staged != alive && n.staged != silent) || n.stagedAs != m.pvOf(p) || n.stagedWith != n.tried):
		return true
	}
	return m.c.route == ByControllerService && !n.attached
}

// bindsDetached reports whether a bind is decided on of what is not attached, or is
// about to be detached. What happens between that and the bind is outside.
func (m *model) bindsDetached(w *world, i int) bool {
	va := w.nodes[i].va
	leaves := w.nodes[i].op.attachedAsCSI && va.listed && !m.pluginInUse(w, i)
	return m.c.route == ByVolumeAttachment && !w.away && (!va.attached || va.deleting || va.stale || leaves)
}

// falseFailure: the kubelet forgets a mount that failed.
func falseFailure(m *model, _ *world, mv *move) bool {
	e := &mv.event
	if e.goal != Mount || !e.ended || e.ok || e.undoFailed {
		return false
	}
	shown := m.shownTo(&mv.to.nodes[m.c.nodeOf(int(e.place))], int(e.place))
	return shown != nothing && !(shown == dead && mv.to.pods[e.place].ran)
}

func (m *model) pvOf(p int) uint8 {
	if m.c.twoVolumes {
		return uint8(p)
	}
	return 0
}

func falseUnmount(m *model, _ *world, mv *move) bool {
	e := &mv.event
	if e.goal != Unmount || !e.ended || !e.ok || !e.awaited {
		return false
	}
	n := &mv.to.nodes[m.c.nodeOf(int(e.place))]
	return n.binds[e.place] != nothing || n.published[e.place] != nothing || m.leaves(n)
}

// leaves reports whether the last unmount has left something that no other process
// ends. A detach through the cluster continues by itself, and what failed the reconciler
// repeats, after the grace period where the version of the record before does not say so.
func (m *model) leaves(n *node) bool {
	if n.down || n.oldRecord || m.bounds.lost > 0 || m.c.device || m.c.migrates || n.saved.targets[0].there || n.saved.targets[1].there || n.published[0] != nothing || n.published[1] != nothing {
		return false
	}
	undoing := phases()[n.saved.attach] == volstate.Undoing || phases()[n.saved.stage] == volstate.Undoing
	return !undoing && (n.saved.there || (n.attached && m.c.route == ByControllerService))
}

func falseUnmountDevice(m *model, _ *world, mv *move) bool {
	e := &mv.event
	if e.goal != UnmountDevice || !e.ended || !e.ok || !e.awaited {
		return false
	}
	n := &mv.to.nodes[e.stepNode]
	return n.published != [podCount]mnt{} || (n.staged != nothing && !n.plugin.file && !n.plugin.orphan)
}

func falseExpand(_ *model, _ *world, mv *move) bool {
	e := &mv.event
	return e.goal == Expand && e.ended && e.ok && e.awaited && !mv.to.fsGrown
}

func twoNodes(m *model, _ *world, mv *move) bool {
	return !m.c.shared && mv.to.nodes[0].attached && mv.to.nodes[1].attached
}

func staleAttachment(_ *model, before *world, mv *move) bool {
	e := &mv.event
	return (e.step == NodeStage || e.step == NodePublish) && before.nodes[e.stepNode].va.stale
}

func touchesOthers(m *model, before *world, mv *move) bool {
	e := &mv.event
	n := &before.nodes[e.stepNode]
	switch e.step {
	case DeleteAttachment:
		if n.va.there && !n.va.ours && m.c.device && !m.c.callouts {
			return true // kube-controller-manager has it
		}
		return mv.to.nodes[e.stepNode].va.deleting && !n.va.deleting && (!n.va.ours || n.va.listed)
	case NodeUnstage:
		return n.plugin.staged && !m.c.ownStage
	case RemoveVolData:
		return n.plugin.knows
	case Bind, Unbind, NodePublish, NodeUnpublish, Tidy:
		p := e.stepPlace
		if p >= podCount {
			return false
		}
		// The kubelet may call unmount while the PersistentVolume is another one, and the
		// call be late: that is outside.
		late := (goals()[n.op.goal] == Unmount && before.pv == pvFlex) || m.undoesUnseen(n) // at once
		return (p == podB && n.other) || (e.step != NodePublish && !late && m.podHas(before, n, int(p)))
	}
	return false
}

func harmsContainers(m *model, before *world, mv *move) bool {
	e := &mv.event
	if e.stepPlace >= podCount || m.c.nodeOf(int(e.stepPlace)) != e.stepNode {
		return false
	}
	n, pod := &before.nodes[e.stepNode], before.pods[e.stepPlace]
	if !pod.ran || !pod.alive() || n.binds[e.stepPlace] == nothing || before.pv != pvFlex || n.stones[e.stepPlace] {
		return false
	}
	switch g := goals()[n.op.goal]; e.step {
	case Unbind, NodeUnpublish, Bind:
		// What this call has bound no container of before has.
		ownBind := g == Mount && n.op.taken[e.stepPlace]&(1<<number(m.kinds, Bind)) != 0
		return !m.c.repairs && g != Unmount && g != CompleteUnmount && !ownBind
	case ApplyFSGroup:
		return n.binds[e.stepPlace] == alive
	}
	return false
}

// disturbsSilent looks at what is decided: what becomes silent later is outside. A mount
// that has failed is undone.
func disturbsSilent(m *model, _ *world, mv *move) bool {
	n := &mv.to.nodes[mv.event.decidedNode]
	p, goal := n.op.step.place, goals()[n.op.goal]
	switch mv.event.decided {
	case NodePublish:
		return n.staged == silent
	case NodeUnstage:
		return n.staged == silent && goal == Mount && n.op.failed == 0
	case Unbind, NodeUnpublish:
		wanted := (goal == Mount && n.op.failed == 0) || (goal == Reconcile && n.binds[p] == silent)
		return (n.published[p] == silent || n.binds[p] == silent) && wanted && mv.to.pods[p].alive()
	}
	return false
}

// podHas reports whether the containers of a pod that lives have what is mounted
// for it by us, and nothing else.
func (m *model) podHas(w *world, n *node, p int) bool {
	return w.pods[p].phase == podRunning && (m.shownTo(n, p) == alive || m.shownTo(n, p) == silent) && n.plugin.pods[p] != alive && !w.away
}
