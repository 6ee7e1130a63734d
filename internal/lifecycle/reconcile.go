package lifecycle

import (
	"slices"

	"github.com/flex2csi/flex2csi/internal/volstate"
)

// reconcileTable undoes what no pod wants any more, and repairs what pods should have.
// No caller waits for it, except for those that wait for the volume's turn.
func reconcileTable() Table {
	return Table{
		Name: string(Reconcile), About: "Every 30 s for each volume without an operation, after the pending unmounts.",
		rules: []Rule{
			removeDeadRule(),
			include(unwantedTable()),
			include(unclearTable()),
			include(unwantedVolumeTable()),
			include(repairTable()),
			republishRule(),
		},
	}
}

// unwantedTable undoes targets that no pod wants.
func unwantedTable() Table {
	return Table{rules: []Rule{
		{
			// One pod's release does not keep the others'.
			Name: "repair-failed", When: "a step for the volume, not for one target, failed", Then: "refuse with its error",
			applies: all(operationFailed, failedForVolume), step: refuse(firstError),
		},
		{
			Name: "finish-detach", When: "only the deletion of its VolumeAttachment is left", Then: "[detach the volume]",
			applies: detachPending, tables: []Table{detachTable(AsConfigured)},
		},
		{
			Name: "release-unwanted", When: "the target has not changed for the grace period, and the pod's directory is gone, or the target is unfinished with nothing mounted there; at once, if the pod is gone and has a VolumeAttachment only",
			Then: "[release the target]", each: everyTarget,
			applies: all(not(targetFailed), either(targetBeingReleased, targetUnwanted)), tables: []Table{releaseTable()},
		},
		{
			Name: "reconcile-failed", When: "a step for a target failed", Then: "refuse with its error, after the other targets",
			applies: operationFailed, step: refuse(firstError),
		},
	}}
}

func failedForVolume(s *situation) answer {
	return is(s.record.Targets[s.op.firstFailure().Step.Dir] == nil)
}

func targetFailed(s *situation) answer {
	return is(slices.ContainsFunc(s.op.Failures, func(f Failure) bool { return f.Step.Dir == s.dir }))
}

// targetBeingReleased holds if this operation has begun to release the target.
func targetBeingReleased(s *situation) answer {
	return all(not(targetBound), either(tookForTarget(NoteOwner), tookForTarget(Unbind), tookForTarget(NodeUnpublish)))(s)
}

// targetUnwanted: what is bound to the directory is the pod's, whatever the record says: the
// kubelet may have seen it.
//
// A pod that is gone before it got anything keeps others from the volume if that is
// being attached here by the cluster: it does not wait for the grace period.
func targetUnwanted(s *situation) answer {
	return all(
		either(all(hasObject, targetIs(volstate.None)), targetOld), podsKnown,
		either(podDirGone, all(targetOld, targetUnfinished)),
	)(s)
}

// targetOld holds if no call has come for the target for the grace period.
func targetOld(s *situation) answer { return is(s.graceOver(s.target().Since)) }

// targetUnfinished: the kubelet may have found what is mounted, and be about to start the
// containers. A dead mount fails before.
func targetUnfinished(s *situation) answer {
	return either(
		mountIs(TheDir, NoDir),
		all(mountIs(TheDir, NotMounted), not(targetBound)),
		all(mountIs(TheDir, Dead), not(targetBound), noContainer),
	)(s)
}

func podsKnown(s *situation) answer {
	return sees(ThePod, func(_ *situation, seen Seen) bool { return seen.Pod.Known })(s)
}

func podDirGone(s *situation) answer {
	return sees(ThePod, func(_ *situation, seen Seen) bool { return seen.Pod.Gone })(s)
}

// unwantedVolumeTable ends a volume that no pod wants, and sees to it that one that
// pods have stays attached.
func unwantedVolumeTable() Table {
	return Table{rules: []Rule{
		{
			Name: "release-unwanted-volume", When: "the volume has had no target for the grace period, and no callout ends it; at once after `let-pod-go`",
			Then:    "[release the device mount path], or [end the stage] and [detach the volume]",
			applies: all(not(hasTargets), not(leftUnclear), volumeUnwanted),
			tables: firstOf(
				Rule{applies: hasDevice, tables: []Table{releaseDeviceTable()}, at: devicePath},
				include(endStageTable()),
				Rule{applies: not(detachFollows), tables: []Table{detachTable(AsConfigured)}},
			),
		},
		{
			Name: "grow-unused-later", When: "ControllerExpandVolume failed while pods had the volume, and now its VolumeAttachment is deleted",
			Then:    "ControllerExpandVolume, now that no pod has it",
			applies: all(not(hasTargets), tookForVolume(DeleteAttachment)), tables: firstOf(growRule()),
		},
		{
			Name: "reattach", When: "the VolumeAttachment of a staged or published volume is gone, being deleted or not attached any more; or it is uncertain, and a target may be published",
			Then:    "ask for it again (with attach: true wait for it), ten seconds at a time; events VolumeAttachmentLost and, with another publish context, VolumeAttachmentChanged",
			applies: all(attachmentAmiss, not(tookForVolume(AskAttachment)), not(tookForVolume(AwaitAttachment))),
			tables: firstOf(
				Rule{applies: all(callIncomplete, not(attachmentAwaited)), step: refuse(errorOfCall)},
				Rule{applies: attachmentAwaited, step: attachBy(AwaitAttachment)},
				Rule{step: attachBy(AskAttachment)},
			),
		},
	}}
}

func attachmentAwaited(s *situation) answer { return is(isAwaited(s.record)) }

// callForVolume is what a call for the volume would say.
func callForVolume() Fact { return Fact{What: TheCall} }

func callIncomplete(s *situation) answer {
	return s.seesAt(callForVolume(), func(_ *situation, seen Seen) bool { return seen.Err != nil })
}

func errorOfCall(s *situation) error { return s.seenAt(callForVolume()).Err }

func republishRule() Rule {
	return Rule{
		Name: "republish", When: "the driver has requiresRepublish, and the last NodePublishVolume is one minute old",
		Then:    "NodePublishVolume again, after [attach the volume] if the publish context is not known; an error leaves the mount as it is",
		each:    everyTarget,
		applies: all(targetBound, targetWorks, not(tookForTarget(Republish)), says(TheTurn)),
		tables: firstOf(
			Rule{applies: objects(TheDriver), step: refuse(errorOf(TheDriver))},
			Rule{applies: objects(TheCall), step: refuse(errorOf(TheCall))},
			Rule{applies: not(publishContextKnown), tables: []Table{attachTable()}},
			Rule{step: func(s *situation) Step { return Step{Kind: Republish, Dir: s.dir, MayFail: true} }},
		),
	}
}

func targetWorks(s *situation) answer { return is(s.target().Dead == "") }

// volumeUnwanted: a marker at the device mount path is no sign of an owner: a
// kubelet that was restarted after the last unmount has forgotten it
// (kubernetes/kubernetes#85476), and one that saw mountdevice fail has, too. If it
// has not, the next mount stages the volume again. It also forgets an attach that
// failed: only one that succeeded has a detach.
func volumeUnwanted(s *situation) answer {
	r := s.record
	// Its own steps have changed the record of a volume that this operation ends.
	ending := s.op.took(NodeUnstage, "") || s.op.took(ForgetStage, "")
	if r.Idle() || (!s.graceOver(r.Changed) && !ending && !isEndPending(r)) {
		return is(false)
	}
	return either(hasDevice, not(stagePhaseIs(volstate.None)), not(detachFollows))(s)
}

// isEndPending reports that an unmount has succeeded before the volume could be ended
// (let-pod-go).
func isEndPending(r *volstate.Record) bool {
	return r.Device == "" && r.Attachment != byControlPlane && (r.Stage == volstate.Undoing || (r.Attach == volstate.Undoing && r.Object == ""))
}

func leftUnclear(s *situation) answer { return is(isLeftUnclear(s.record)) }

// isLeftUnclear reports that nothing is left of a volume but what may be the
// kubelet's to end.
func isLeftUnclear(r *volstate.Record) bool {
	return r.Owner == volstate.Unclear && r.Stage != volstate.None && len(r.Targets) == 0
}

func detachPending(s *situation) answer { return is(DetachPending(s.record)) }

// DetachPending reports that nothing but a detach through the cluster is left to do
// for a volume.
func DetachPending(r *volstate.Record) bool {
	return r.Attach == volstate.Undoing && r.Object != "" && r.Stage == volstate.None && r.Device == "" && len(r.Targets) == 0
}

// unclearTable ends what was left unclear. That the kubelet has staged the volume and
// has it for no pod, for longer than its pauses between two tries to unstage it, is
// of a try to stage it that failed, or of before a restart of the kubelet, which
// forgets it.
func unclearTable() Table {
	return Table{given: leftUnclear, rules: []Rule{
		{
			Name: "unclear-kubelets", When: "ownership was left unclear, and the kubelet's CSI plugin has the volume for a pod now",
			Then:    "leave stage and attachment to the kubelet and the attach-detach controller",
			applies: pluginHasPod, step: takeForVolume(LeaveToKubelet),
		},
		{
			Name: "unclear-ended", When: "ownership was left unclear, there is no vol_data.json, and nothing is mounted at the staging path any more: the kubelet's CSI plugin has unstaged the volume",
			Then:    "forget the stage",
			applies: pluginHasUnstaged, step: takeForVolume(ForgetStage),
		},
		{
			Name: "unclear-file", When: "ownership was left unclear for the grace period, and vol_data.json is still next to the staging path",
			Then:    "remove the file, which the kubelet's CSI plugin would read",
			applies: all(pluginHasFile, unclearTooLong, not(tookForVolume(RemoveVolData))), step: takeForVolume(RemoveVolData),
		},
		{
			Name: "unclear-late", When: "ownership was left unclear for the grace period, or the expected CSI pod has not come for a fifth of it", Then: "NodeUnstageVolume",
			applies: unclearTooLong, step: takeForVolume(NodeUnstage),
		},
	}}
}

// unclearTooLong: a file that was written just now is of a plugin that begins.
func unclearTooLong(s *situation) answer {
	return sees(ThePlugin, func(s *situation, seen Seen) bool {
		if seen.Plugin.Staged {
			return s.graceOver(s.record.Changed) && s.graceOver(seen.Plugin.Since)
		}
		return s.observed.Now.Sub(s.record.Changed) >= s.observed.Grace/5
	})(s)
}

// attachmentAmiss holds if what pods have is not known to be attached.
func attachmentAmiss(s *situation) answer {
	return all(
		hasObject, either(not(stagePhaseIs(volstate.None)), anyPublished),
		either(all(attachIs(volstate.Doing), anyPublished), attachmentLost),
	)(s)
}
