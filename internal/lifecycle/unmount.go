package lifecycle

import (
	"slices"

	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// unmountRules take a volume away from a pod, and from the node when the pod was
// the last.
func unmountRules() []Rule {
	return slices.Concat(
		[]Rule{clearDead(), letPodGo(), refuseFailed()},
		[]Rule{
			{"unmount-completed", "the pending unmount was already completed", "done", func(c *plan) *Step {
				if c.op.Goal != CompleteUnmount || c.released() {
					return nil
				}
				switch seen := c.see(ThePendingUnmount, c.dir); {
				case seen.Err != nil:
					return refuse(seen.Err)
				case !seen.Yes:
					return c.step(Done)
				}
				return nil
			}},
			{"not-unmounted", "a pending unmount, and the directory is still mounted: flexdriver is about to unmount it, or was killed before", "done: the kubelet has no Success yet, and finds the directory mounted or calls unmount again", func(c *plan) *Step {
				if c.op.Goal != CompleteUnmount || c.op.hasBegun() {
					return nil
				}
				switch seen := c.mount(TheDir); {
				case seen.Mount == Unknown:
					return refuse(seen.Err)
				case seen.Mount.Mounted():
					return c.step(Done)
				}
				return nil
			}},
			{"pod-lives", "the PersistentVolume is deleted or replaced by a CSI one, the pod lives, and only this mount serves its containers", "refuse: it is unmounted when the pod ends", mayLetGo},
		},
		releaseRules(),
	)
}

// letPodGo: what guards data is held back, and that is the detach, which stays behind the
// stage. The kubelet's CSI plugin lets a pod go as well while UnmountDevice fails
// (pkg/volume/util/operationexecutor/operation_generator.go, GenerateUnmountDeviceFunc,
// Kubernetes v1.37.1).
func letPodGo() Rule {
	return Rule{"let-pod-go", "nothing is published for the pod any more, NodeUnstageVolume or ControllerUnpublishVolume failed, and the volume has no device mount path", "remove the target from the record, and succeed; `release-unwanted-volume` of reconcile repeats the RPC", func(c *plan) *Step {
		f := c.op.lastFailure()
		if f == nil || (f.Step.Kind != NodeUnstage && f.Step.Kind != ControllerUnpublish) || c.r.Device != "" {
			return nil
		}
		if c.target() == nil {
			return c.step(Done)
		}
		return c.step(Drop)
	}}
}

// mayLetGo: a kubelet that was restarted unmounts before it mounts (pkg/kubelet/
// volumemanager/reconciler/reconciler.go, reconcile, Kubernetes v1.37.1). The
// containers still have what was mounted, and must not lose what is below it. Where
// the kubelet's CSI plugin has the same filesystem mounted for the pod by now, they
// do not, unless there is no PersistentVolume: then the kubelet wants neither, and
// what is mounted from here is all that keeps it from unstaging.
func mayLetGo(c *plan) *Step {
	if c.target() == nil || c.op.hasBegun() {
		return nil
	}
	seen := c.see(ThePVState, c.dir)
	f := seen.PVState
	if f.Replaced == "" || f.Pod == "" || (!f.Gone && seen.SameFilesystem) {
		return nil
	}
	return refuse(errPodLives(c.dir, f))
}

// released reports whether this operation has released its target.
func (c *plan) released() bool { return c.tookForTarget(Drop) || c.tookForTarget(Tidy) }

// releaseRules undo a target, and with the last one the volume. Each step can be
// repeated; the target stays in the record until all is done, so that the kubelet's
// next try goes on where this one ended.
func releaseRules() []Rule {
	return slices.Concat(
		[]Rule{
			{"released", "the target is released", "done", func(c *plan) *Step {
				if !c.released() || c.target() != nil {
					return nil
				}
				return c.step(Done)
			}},
			{"unknown-target", "no record has the target", "unmount what is at the directory", func(c *plan) *Step {
				if c.target() != nil {
					return nil
				}
				return c.step(Tidy)
			}},
			{"note-owner", "it is the last target of the volume", "record who ends the volume, the bridge or the kubelet's CSI plugin, before anything is unmounted: what is published keeps the kubelet from unstaging", func(c *plan) *Step {
				if len(c.r.Targets) > 1 || c.tookForTarget(NoteOwner) {
					return nil
				}
				who := c.owner(true)
				if who == volstate.Ours && c.r.Owner != volstate.Ours && c.target().Publish != volstate.Done {
					who = volstate.Unclear // as was seen when this was begun
				}
				if who == volstate.Kubelet && c.r.Device != "" {
					who = volstate.Unclear // its pods may have gone by then
				}
				if !c.shares() {
					who = volstate.Ours // one of us for both: not where the stages are two
				}
				return &Step{Kind: NoteOwner, Dir: c.dir, Owner: who}
			}},
		},
		unpublishRules(),
		[]Rule{
			{"last-target", "no other target is left, and no device mount path", "[leave the node]", func(c *plan) *Step {
				if len(c.r.Targets) > 1 || c.r.Device != "" {
					return nil
				}
				return c.decide(leaveRules())
			}},
			{"drop", "everything of the target is undone", "remove the target from the record", func(c *plan) *Step { return c.step(Drop) }},
		},
	)
}

// unpublishRules do not depend on whether the pod needs the volume (Bound).
func unpublishRules() []Rule {
	return []Rule{
		// What a driver has published into the kubelet's directory is for it to remove,
		// or nothing would tell whether it has.
		{"unbind", "the volume is bound to the kubelet's directory, or may be", "unmount the directory; NodeUnpublishVolume does that for a target of an earlier version in it", func(c *plan) *Step {
			if c.target().TargetPath == "" || c.tookForTarget(Unbind) {
				return nil
			}
			return c.step(Unbind)
		}},
		{"unpublish", "the volume is published for the pod, or may be", "NodeUnpublishVolume", func(c *plan) *Step {
			if c.target().Publish == volstate.None {
				return nil
			}
			return c.step(NodeUnpublish)
		}},
	}
}

// leaveRules end the volume on this node, unless the kubelet's CSI plugin does.
func leaveRules() []Rule {
	return slices.Concat(
		[]Rule{
			{"other-stage", "the kubelet's CSI plugin has the volume as well, at another staging path", "refuse until the pods with its CSI PersistentVolume are gone", func(c *plan) *Step {
				if c.leaves() == volstate.Ours || c.shares() {
					return nil
				}
				return refuse(errOtherStage(c.r))
			}},
			{"kubelet-has-it", "the kubelet's CSI plugin has the volume for a pod", "leave stage and attachment to the kubelet and the attach-detach controller", func(c *plan) *Step {
				if c.leaves() != volstate.Kubelet || (c.r.Stage == volstate.None && c.r.Attach == volstate.None) {
					return nil
				}
				return &Step{Kind: LeaveToKubelet}
			}},
			{"kubelet-has-ended-it", "ownership was unclear, there is no vol_data.json, and nothing is mounted at the staging path any more: the kubelet's CSI plugin has unstaged the volume", "forget the stage", func(c *plan) *Step {
				if c.leaves() != volstate.Unclear || c.r.Stage == volstate.None || !c.ended() {
					return nil
				}
				return &Step{Kind: ForgetStage}
			}},
			{"unclear", "the bridge has the volume staged, and the kubelet's CSI plugin has it staged for no pod, or a pod is about to have it as a CSI volume: the plugin begins, ends or has failed", "record that ownership is unclear, and leave the volume staged; refuse unmountdevice until it is clear: the `unclear-` rules of reconcile", func(c *plan) *Step {
				if c.leaves() != volstate.Unclear || c.r.Stage == volstate.None {
					return nil
				}
				switch {
				case c.r.Owner != volstate.Unclear:
					return &Step{Kind: NoteOwner, Dir: c.dir, Owner: volstate.Unclear}
				case c.r.Device != "":
					return refuse(errUnclear(c.r, c.o))
				}
				return c.leftStep()
			}},
		},
		unstageRules(),
		[]Rule{{"detach-last", "no detach callout follows", "[detach the volume]", func(c *plan) *Step {
			if c.r.Attachment == byControlPlane && !c.r.Unmanaged {
				return nil // detach comes
			}
			return c.decide(detachRules(Shortly))
		}}},
		growRules(),
	)
}

// leftStep drops the target of a volume that stays staged.
func (c *plan) leftStep() *Step {
	if c.target() == nil {
		return c.step(Done)
	}
	return c.step(Drop)
}

// leaves is who ends the volume, as was seen before anything was unmounted, or is
// seen now.
func (c *plan) leaves() volstate.Owner {
	if c.r.Owner == volstate.Kubelet {
		return volstate.Kubelet
	}
	if now := c.owner(true); now != volstate.Ours {
		return now
	}
	return c.r.Owner
}

// owner is who has the volume besides the bridge, as is seen now. next: a pod that is about
// to have it as a CSI volume counts.
//
// But for a stage that is shared, a file that is old and has no mount counts no more: the
// kubelet that wrote it has forgotten it, and nothing would ever remove it.
func (c *plan) owner(next bool) volstate.Owner {
	switch p := c.plugin(); {
	case p.Pods:
		return volstate.Kubelet
	case p.Staged && ((c.r.Stage != volstate.None && c.shares()) || p.Mounted || !c.stale(p.Since)), next && c.tearsDown() && c.see(ThePVState, c.op.Dir).PVState.Next != "":
		return volstate.Unclear
	}
	return volstate.Ours
}

// tearsDown reports whether the kubelet wants an end of something.
func (c *plan) tearsDown() bool {
	return c.op.Goal == Unmount || c.op.Goal == CompleteUnmount || c.op.Goal == UnmountDevice
}

// shares reports that what is staged is staged where the kubelet's CSI plugin has
// it, so that one of us ends it for both.
func (c *plan) shares() bool {
	return c.r.Stage == volstate.None || c.r.StagingPath == c.o.KubeletStaging
}

// ended reports whether the kubelet's CSI plugin has unstaged the volume by now.
func (c *plan) ended() bool { return !c.plugin().Staged && c.stageGone() }

// unstageRules call NodeUnstageVolume, unless the kubelet's CSI plugin has the
// volume by now.
func unstageRules() []Rule {
	return []Rule{
		{"unstage-elsewhere", "the kubelet's CSI plugin has the volume as well, at another staging path", "fail until the pods with its CSI PersistentVolume are gone", func(c *plan) *Step {
			if c.r.Stage == volstate.None || c.owner(false) == volstate.Ours || c.shares() {
				return nil
			}
			return fail(errOtherStage(c.r))
		}},
		{"unstage-not-ours", "the kubelet's CSI plugin has the volume, at the same staging path", "forget the stage: the kubelet unstages it", func(c *plan) *Step {
			if c.r.Stage == volstate.None || c.owner(false) == volstate.Ours {
				return nil
			}
			return &Step{Kind: ForgetStage, Owner: c.owner(false)}
		}},
		{"still-published", "a target is published, or may be", "fail: a volume is not unstaged under a mount", func(c *plan) *Step {
			if c.r.Stage == volstate.None || !c.publishedElsewhere() {
				return nil
			}
			return fail(flex.Errorf(flex.CodeFailedPrecondition, "volume %s is still published for pods of this node, and is not unstaged", c.r.Key()))
		}},
		{"unstage", "the volume is staged, or may be", "NodeUnstageVolume", func(c *plan) *Step {
			if c.r.Stage == volstate.None {
				return nil
			}
			return &Step{Kind: NodeUnstage}
		}},
	}
}

// publishedElsewhere reports whether any target is, or may be, published.
func (c *plan) publishedElsewhere() bool {
	for _, t := range c.r.Targets {
		if t.Publish != volstate.None {
			return true
		}
	}
	return false
}

// detachRules take the volume off this node the way that it was attached, whatever
// the configuration has become.
func detachRules(p Patience) []Rule {
	return []Rule{
		{"detach-not-ours", "the kubelet's CSI plugin has the volume, its ownership is unclear and nothing is staged, or the VolumeAttachment is unmanaged", "forget the attachment", func(c *plan) *Step {
			if c.r.Attach == volstate.None || (c.owner(false) == volstate.Ours && c.r.Owner == volstate.Ours && !c.r.Unmanaged) {
				return nil
			}
			return &Step{Kind: ForgetAttachment}
		}},
		{"still-staged", "the volume is staged or published, or may be", "fail: a volume is not detached under a stage", func(c *plan) *Step {
			if c.r.Attach == volstate.None || (c.r.Stage == volstate.None && !c.publishedElsewhere()) {
				return nil
			}
			return fail(flex.Errorf(flex.CodeFailedPrecondition, "volume %s is still staged on this node, and is not detached", c.r.Key()))
		}},
		{"delete-attachment", "flex2csi created its VolumeAttachment", "delete it and wait; the end of a pod waits ten seconds at most and succeeds, also without the API server: `finish-detach` of reconcile tries again", func(c *plan) *Step {
			if c.r.Attach == volstate.None || c.r.Object == "" || c.tookForVolume(DeleteAttachment) {
				return nil
			}
			return &Step{Kind: DeleteAttachment, Patience: p, MayFail: p == Shortly}
		}},
		{"controller-unpublish", "ControllerPublishVolume attached it, or may have", "ControllerUnpublishVolume", func(c *plan) *Step {
			if c.r.Attach == volstate.None || c.r.Object != "" {
				return nil
			}
			return &Step{Kind: ControllerUnpublish}
		}},
	}
}

// growRules: some drivers grow a volume only while no pod uses it, and the kubelet
// never calls for that. Without it the next pod would not start either, since
// expandfs comes when its volume is staged. If it fails here, that says so.
func growRules() []Rule {
	return []Rule{{"grow-unused", "ControllerExpandVolume failed while pods had the volume", "ControllerExpandVolume, now that no pod has it", func(c *plan) *Step {
		r := c.r
		if r.Expand != volstate.Doing || r.Stage != volstate.None || r.Attach == volstate.Undoing || r.Owner != volstate.Ours || c.tookForVolume(ControllerExpand) {
			return nil
		}
		if seen := c.see(TheDriver, ""); seen.Err != nil || !c.driver().Features.ControllerExpand {
			return nil
		}
		return &Step{Kind: ControllerExpand, MayFail: true, Patience: Shortly}
	}}}
}

// dirs returns the directories of all targets, in an order that never changes.
func (c *plan) dirs() []string {
	if c.sorted == nil {
		c.sorted = sortedDirs(c.r)
	}
	return c.sorted
}
