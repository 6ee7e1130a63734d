package lifecycle

import (
	"cmp"
	"slices"

	"github.com/flex2csi/flex2csi/internal/volstate"
)

// reconcileRules undo what no pod wants any more, and repair what pods should have.
// No caller waits for them, except for those that wait for the volume's turn.
func reconcileRules() []Rule {
	return slices.Concat([]Rule{clearDead()}, unwantedRules(), unclearRules(), unwantedVolumeRules(), repairRules(), republishRules())
}

// unwantedRules undo targets that no pod wants.
func unwantedRules() []Rule {
	return []Rule{
		{"repair-failed", "a step for the volume, not for one target, failed", "refuse with its error", func(c *plan) *Step {
			// One pod's release does not keep the others'.
			if f := c.op.firstFailure(); f != nil && c.r.Targets[f.Step.Dir] == nil {
				return refuse(f.Err)
			}
			return nil
		}},
		{"finish-detach", "only the deletion of its VolumeAttachment is left", "[detach the volume]", func(c *plan) *Step {
			if !DetachPending(c.r) {
				return nil
			}
			return c.decide(detachRules(AsConfigured))
		}},
		{"release-unwanted", "the target has not changed for the grace period, and the pod's directory is gone, or the target is unfinished with nothing mounted there; at once, if the pod is gone and has a VolumeAttachment only", "[release the target]", func(c *plan) *Step {
			for _, dir := range c.dirs() {
				if c.missing == nil && !c.failedAt(dir) && c.unwanted(dir) {
					return c.at(dir, releaseRules())
				}
			}
			return nil
		}},
		{"reconcile-failed", "a step for a target failed", "refuse with its error, after the other targets", func(c *plan) *Step {
			if f := c.op.firstFailure(); f != nil {
				return refuse(f.Err)
			}
			return nil
		}},
	}
}

// unwantedVolumeRules end a volume that no pod wants, and see to it that one that
// pods have stays attached.
func unwantedVolumeRules() []Rule {
	return []Rule{
		{"release-unwanted-volume", "the volume has had no target for the grace period, and no callout ends it; at once after `let-pod-go`", "[release the device mount path], or [end the stage] and [detach the volume]", func(c *plan) *Step {
			if len(c.r.Targets) > 0 || leftUnclear(c.r) || !c.volumeUnwanted() {
				return nil
			}
			if c.r.Device != "" {
				return c.at(c.r.Device, releaseDeviceRules())
			}
			if s := c.decide(leaveButDetachRules()); s != nil {
				return s
			}
			if c.detachComes() {
				return nil
			}
			return c.decide(detachRules(AsConfigured))
		}},
		{"grow-unused-later", "ControllerExpandVolume failed while pods had the volume, and now its VolumeAttachment is deleted", "ControllerExpandVolume, now that no pod has it", func(c *plan) *Step {
			if len(c.r.Targets) > 0 || !c.tookForVolume(DeleteAttachment) {
				return nil
			}
			return c.decide(growRules())
		}},
		{"reattach", "the VolumeAttachment of a staged or published volume is gone, being deleted or not attached any more; or it is uncertain, and a target may be published", "ask for it again (with attach: true wait for it), ten seconds at a time; events VolumeAttachmentLost and, with another publish context, VolumeAttachmentChanged", func(c *plan) *Step {
			if !c.attachmentAmiss() || c.tookForVolume(AskAttachment) || c.tookForVolume(AwaitAttachment) {
				return nil
			}
			if seen := c.see(TheCall, ""); !awaited(c.r) && seen.Err != nil {
				return refuse(seen.Err)
			}
			if awaited(c.r) {
				return &Step{Kind: AwaitAttachment, Patience: Shortly}
			}
			return &Step{Kind: AskAttachment, Patience: Shortly}
		}},
	}
}

func republishRules() []Rule {
	return []Rule{{"republish", "the driver has requiresRepublish, and the last NodePublishVolume is one minute old", "NodePublishVolume again, after [attach the volume] if the publish context is not known; an error leaves the mount as it is", func(c *plan) *Step {
		for _, dir := range c.dirs() {
			t := c.r.Targets[dir]
			if !t.Bound || t.Dead != "" || c.op.took(Republish, dir) || !c.see(TheTurn, dir).Yes {
				continue
			}
			if err := cmp.Or(c.see(TheDriver, "").Err, c.see(TheCall, dir).Err); err != nil {
				return refuse(err)
			}
			if c.r.PublishContextIncomplete() {
				if s := c.at(dir, attachRules()); s != nil {
					return s
				}
			}
			return &Step{Kind: Republish, Dir: dir, MayFail: true}
		}
		return nil
	}}}
}

func (c *plan) failedAt(dir string) bool {
	return slices.ContainsFunc(c.op.Failures, func(f Failure) bool { return f.Step.Dir == dir })
}

// unwanted: what is bound to the directory is the pod's, whatever the record says: the
// kubelet may have seen it.
//
// A pod that is gone before it got anything keeps others from the volume if that is
// being attached here by the cluster: it does not wait for the grace period.
func (c *plan) unwanted(dir string) bool {
	t := c.r.Targets[dir]
	if c.releasing(dir) {
		return true
	}
	early := c.r.Object != "" && t.Publish == volstate.None
	if !early && !c.stale(t.Since) {
		return false
	}
	switch pod := c.see(ThePod, dir).Pod; {
	case !pod.Known:
		return false
	case pod.Gone:
		return true
	case !c.stale(t.Since):
		return false
	}
	switch c.see(TheDir, dir).Mount {
	case NoDir:
		return true
	case NotMounted:
		return !t.Bound
	case Unknown:
		return false
	}
	// The kubelet may have found it, and be about to start the containers. A dead mount
	// fails before.
	return !t.Bound && c.see(TheDir, dir).Mount == Dead && c.see(ThePod, dir).Pod.NoContainer
}

// releasing reports whether this operation has begun to release a target.
func (c *plan) releasing(dir string) bool {
	begun := c.op.took(NoteOwner, dir) || c.op.took(Unbind, dir) || c.op.took(NodeUnpublish, dir)
	return begun && !c.r.Targets[dir].Bound
}

// volumeUnwanted: a marker at the device mount path is no sign of an owner: a
// kubelet that was restarted after the last unmount has forgotten it
// (kubernetes/kubernetes#85476), and one that saw mountdevice fail has, too. If it
// has not, the next mount stages the volume again. It also forgets an attach that
// failed: only one that succeeded has a detach.
func (c *plan) volumeUnwanted() bool {
	r := c.r
	if r.Idle() || (!c.stale(r.Changed) && !c.undoing() && !endPending(r)) {
		return false
	}
	return r.Device != "" || r.Stage != volstate.None || r.Attachment != byControlPlane || r.Unmanaged || r.Attach != volstate.Done
}

// endPending reports that an unmount has succeeded before the volume could be ended
// (let-pod-go).
func endPending(r *volstate.Record) bool {
	return r.Device == "" && r.Attachment != byControlPlane && (r.Stage == volstate.Undoing || (r.Attach == volstate.Undoing && r.Object == ""))
}

// undoing reports whether this operation ends the volume: its own steps have
// changed the record just now.
func (c *plan) undoing() bool {
	return c.tookForVolume(NodeUnstage) || c.tookForVolume(ForgetStage)
}

// leftUnclear reports that nothing is left of a volume but what may be the
// kubelet's to end.
func leftUnclear(r *volstate.Record) bool {
	return r.Owner == volstate.Unclear && r.Stage != volstate.None && len(r.Targets) == 0
}

// DetachPending reports that nothing but a detach through the cluster is left to do
// for a volume.
func DetachPending(r *volstate.Record) bool {
	return r.Attach == volstate.Undoing && r.Object != "" && r.Stage == volstate.None && r.Device == "" && len(r.Targets) == 0
}

// unclearRules end what was left unclear. That the kubelet has staged the volume and
// has it for no pod, for longer than its pauses between two tries to unstage it, is
// of a try to stage it that failed, or of before a restart of the kubelet, which
// forgets it.
func unclearRules() []Rule {
	return []Rule{
		{"unclear-kubelets", "ownership was left unclear, and the kubelet's CSI plugin has the volume for a pod now", "leave stage and attachment to the kubelet and the attach-detach controller", func(c *plan) *Step {
			if !leftUnclear(c.r) || !c.plugin().Pods {
				return nil
			}
			return &Step{Kind: LeaveToKubelet}
		}},
		{"unclear-ended", "ownership was left unclear, there is no vol_data.json, and nothing is mounted at the staging path any more: the kubelet's CSI plugin has unstaged the volume", "forget the stage", func(c *plan) *Step {
			if !leftUnclear(c.r) || !c.ended() {
				return nil
			}
			return &Step{Kind: ForgetStage}
		}},
		{"unclear-file", "ownership was left unclear for the grace period, and vol_data.json is still next to the staging path", "remove the file, which the kubelet's CSI plugin would read", func(c *plan) *Step {
			if !leftUnclear(c.r) || !c.plugin().Staged || !c.late() || c.tookForVolume(RemoveVolData) {
				return nil
			}
			return &Step{Kind: RemoveVolData}
		}},
		{"unclear-late", "ownership was left unclear for the grace period, or the expected CSI pod has not come for a fifth of it", "NodeUnstageVolume", func(c *plan) *Step {
			if !leftUnclear(c.r) || !c.late() {
				return nil
			}
			return &Step{Kind: NodeUnstage}
		}},
	}
}

// late reports whether what is unclear has been so for too long. A file that was
// written just now is of a plugin that begins.
func (c *plan) late() bool {
	if c.plugin().Staged {
		return c.stale(c.r.Changed) && c.stale(c.plugin().Since)
	}
	return c.o.Now.Sub(c.r.Changed) >= c.o.Grace/5
}

// attachmentAmiss reports whether what pods have is not known to be attached.
func (c *plan) attachmentAmiss() bool {
	if c.r.Object == "" || (c.r.Stage == volstate.None && !c.publishedElsewhere()) {
		return false
	}
	return (c.r.Attach == volstate.Doing && c.publishedElsewhere()) || c.lost()
}
