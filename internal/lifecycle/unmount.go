package lifecycle

import (
	"github.com/flex2csi/flex2csi/internal/volstate"
)

// unmountTable takes a volume away from a pod, and from the node when the pod was
// the last.
func unmountTable() Table {
	return Table{
		Name: string(Unmount), About: "A pending unmount (flexdriver unmounted while the daemon was down) goes by the same rules.",
		rules: []Rule{
			removeDeadRule(),
			{
				// What guards data is held back, and that is the detach, which stays behind the
				// stage. The kubelet's CSI plugin lets a pod go as well while UnmountDevice fails
				// (pkg/volume/util/operationexecutor/operation_generator.go, GenerateUnmountDeviceFunc,
				// Kubernetes v1.37.1).
				Name: "let-pod-go", When: "nothing is published for the pod any more, NodeUnstageVolume or ControllerUnpublishVolume failed, and the volume has no device mount path",
				Then:    "remove the target from the record, and succeed; `release-unwanted-volume` of reconcile repeats the RPC",
				applies: all(operationFailed, failedToEndVolume, not(hasDevice)), tables: dropOrDone(),
			},
			refuseFailedRule(),
			group(goalIs(CompleteUnmount),
				Rule{
					Name: "unmount-completed", When: "the pending unmount was already completed", Then: "done",
					applies: not(targetReleased),
					tables: firstOf(
						Rule{applies: objects(ThePendingUnmount), step: refuse(errorOf(ThePendingUnmount))},
						Rule{applies: not(says(ThePendingUnmount)), step: take(Done)},
					),
				},
				Rule{
					Name: "not-unmounted", When: "a pending unmount, and the directory is still mounted: flexdriver is about to unmount it, or was killed before",
					Then:    "done: the kubelet has no Success yet, and finds the directory mounted or calls unmount again",
					applies: not(operationBegun),
					tables: firstOf(
						Rule{applies: mountIs(TheDir, Unknown), step: refuse(errorOf(TheDir))},
						Rule{applies: isMounted(TheDir), step: take(Done)},
					),
				},
			),
			{
				Name: "pod-lives", When: "the PersistentVolume is deleted or replaced by a CSI one, the pod lives, and only this mount serves its containers",
				Then:    "refuse: it is unmounted when the pod ends",
				applies: all(hasTarget, not(operationBegun), podNeedsMount), step: refuseRemembered(errPodLives),
			},
			include(releaseTable()),
		},
	}
}

func failedToEndVolume(s *situation) answer {
	failed := s.op.lastFailure().Step.Kind
	return is(failed == NodeUnstage || failed == ControllerUnpublish)
}

// dropOrDone drops the target of a volume that is not ended yet.
func dropOrDone() []Table {
	return firstOf(Rule{applies: hasTarget, step: take(Drop)}, Rule{step: take(Done)})
}

// refuseRemembered is a refusal that those who look want to know.
func refuseRemembered(why func(*situation) error) func(*situation) Step {
	return func(s *situation) Step { return Step{Kind: Refuse, Err: why(s), Remember: true} }
}

// podNeedsMount: a kubelet that was restarted unmounts before it mounts (pkg/kubelet/
// volumemanager/reconciler/reconciler.go, reconcile, Kubernetes v1.37.1). The
// containers still have what was mounted, and must not lose what is below it. Where
// the kubelet's CSI plugin has the same filesystem mounted for the pod by now, they
// do not, unless there is no PersistentVolume: then the kubelet wants neither, and
// what is mounted from here is all that keeps it from unstaging.
func podNeedsMount(s *situation) answer {
	return sees(ThePVState, func(_ *situation, seen Seen) bool {
		pv := seen.PVState
		return pv.Replaced != "" && pv.Pod != "" && (pv.Gone || !seen.SameFilesystem)
	})(s)
}

// targetReleased holds if this operation has released its target.
func targetReleased(s *situation) answer {
	return either(tookForTarget(Drop), tookForTarget(Tidy))(s)
}

// releaseTable undoes a target, and with the last one the volume. Each step can be
// repeated; the target stays in the record until all is done, so that the kubelet's
// next try goes on where this one ended.
func releaseTable() Table {
	return Table{
		Name: "release the target", About: "The target is removed last, so that the next try goes on where this one ended.",
		rules: []Rule{
			group(not(hasTarget),
				Rule{Name: "released", When: "the target is released", Then: "done", applies: targetReleased, step: take(Done)},
				Rule{Name: "unknown-target", When: "no record has the target", Then: "unmount what is at the directory", step: take(Tidy)},
			),
			{
				Name: "note-owner", When: "it is the last target of the volume",
				Then:    "record who ends the volume, the bridge or the kubelet's CSI plugin, before anything is unmounted: what is published keeps the kubelet from unstaging",
				applies: all(isLastTarget, not(tookForTarget(NoteOwner))),
				tables: firstOf(
					Rule{applies: not(sharesStage), step: noteOwner(volstate.Ours)}, // one of us for both: not where the stages are two
					Rule{applies: all(pluginHasPod, not(hasDevice)), step: noteOwner(volstate.Kubelet)},
					Rule{applies: pluginHasPod, step: noteOwner(volstate.Unclear)}, // its pods may have gone by then
					Rule{applies: either(pluginIsBusy, csiPodComes), step: noteOwner(volstate.Unclear)},
					Rule{applies: all(not(ownerIs(volstate.Ours)), not(targetIs(volstate.Done))), step: noteOwner(volstate.Unclear)}, // as was seen when this was begun
					Rule{step: noteOwner(volstate.Ours)},
				),
			},
			include(unpublishTable()),
			{
				Name: "last-target", When: "no other target is left, and no device mount path", Then: "[leave the node]",
				applies: all(isLastTarget, not(hasDevice)), tables: []Table{leaveTable()},
			},
			{Name: "drop", When: "everything of the target is undone", Then: "remove the target from the record", step: take(Drop)},
		},
	}
}

func isLastTarget(s *situation) answer { return is(len(s.record.Targets) <= 1) }

func noteOwner(owner volstate.Owner) func(*situation) Step {
	return func(s *situation) Step { return Step{Kind: NoteOwner, Dir: s.dir, Owner: owner} }
}

// unpublishTable does not depend on whether the pod needs the volume (Bound).
func unpublishTable() Table {
	return Table{Name: "unpublish the target", rules: []Rule{
		// What a driver has published into the kubelet's directory is for it to remove,
		// or nothing would tell whether it has.
		{
			Name: "unbind", When: "the volume is bound to the kubelet's directory, or may be",
			Then:    "unmount the directory; NodeUnpublishVolume does that for a target of an earlier version in it",
			applies: all(hasTargetPath, not(tookForTarget(Unbind))), step: take(Unbind),
		},
		{
			Name: "unpublish", When: "the volume is published for the pod, or may be", Then: "NodeUnpublishVolume",
			applies: not(targetIs(volstate.None)), step: take(NodeUnpublish),
		},
	}}
}

// leaveTable ends the volume on this node, unless the kubelet's CSI plugin does.
func leaveTable() Table {
	return Table{Name: "leave the node", About: "After the last target.", rules: []Rule{
		include(endStageTable()),
		{
			Name: "detach-last", When: "no detach callout follows", Then: "[detach the volume]",
			applies: not(all(attachedByControlPlane, not(attachmentUnmanaged))), tables: []Table{detachTable(Shortly)},
		},
		growRule(),
	}}
}

// endStageTable ends the stage. Only one of the bridge and the kubelet's CSI plugin does.
func endStageTable() Table {
	return Table{
		Name:  "end the stage",
		About: "The kubelet's CSI plugin may have the same volume staged, for a CSI PersistentVolume of it. Only one of the two unstages it.",
		rules: []Rule{
			group(either(kubeletEnds, ownershipUnclear),
				Rule{
					Name: "other-stage", When: "the kubelet's CSI plugin has the volume as well, at another staging path", Then: "refuse until the pods with its CSI PersistentVolume are gone",
					applies: not(sharesStage), step: refuse(errOtherStage),
				},
				Rule{
					Name: "kubelet-has-it", When: "the kubelet's CSI plugin has the volume for a pod", Then: "leave stage and attachment to the kubelet and the attach-detach controller",
					applies: all(kubeletEnds, not(all(stagePhaseIs(volstate.None), attachIs(volstate.None)))), step: takeForVolume(LeaveToKubelet),
				},
				group(all(not(kubeletEnds), not(stagePhaseIs(volstate.None))),
					Rule{
						Name: "kubelet-has-ended-it", When: "ownership was unclear, there is no vol_data.json, and nothing is mounted at the staging path any more: the kubelet's CSI plugin has unstaged the volume",
						Then: "forget the stage", applies: pluginHasUnstaged, step: takeForVolume(ForgetStage),
					},
					Rule{
						Name: "unclear", When: "the bridge has the volume staged, and the kubelet's CSI plugin has it staged for no pod, or a pod is about to have it as a CSI volume: the plugin begins, ends or has failed",
						Then: "record that ownership is unclear, and leave the volume staged; refuse unmountdevice until it is clear: the `unclear-` rules of reconcile",
						tables: []Table{{rules: []Rule{
							{applies: not(ownerIs(volstate.Unclear)), step: noteOwner(volstate.Unclear)},
							{applies: hasDevice, step: refuseRemembered(errUnclear)},
							{tables: dropOrDone()},
						}}},
					},
				),
			),
			include(unstageTable()),
		},
	}
}

// kubeletEnds holds if the kubelet ends the volume, as was seen before anything was
// unmounted, or is seen now.
func kubeletEnds(s *situation) answer {
	return either(ownerIs(volstate.Kubelet), pluginHasPod)(s)
}

// ownershipUnclear holds if it is not clear who ends the volume, as is seen now, or was
// before.
func ownershipUnclear(s *situation) answer {
	return either(pluginIsBusy, csiPodComes, ownerIs(volstate.Unclear))(s)
}

// otherSees is what is seen of the other one that may have the volume: the kubelet's CSI
// plugin, with the pods that it has, or will have.
func (s *situation) otherSees(f Fact, holds func(*situation, Seen) bool) answer {
	return s.seesAt(f, holds)
}

func pluginHasPod(s *situation) answer {
	return s.otherSees(s.fact(ThePlugin), func(_ *situation, seen Seen) bool { return seen.Plugin.Pods })
}

// pluginHasFile holds if the plugin's file says that it has staged the volume.
func pluginHasFile(s *situation) answer {
	return sees(ThePlugin, func(_ *situation, seen Seen) bool { return seen.Plugin.Staged })(s)
}

// pluginIsBusy holds if the kubelet's CSI plugin has the volume staged. But for a stage that
// is shared, a file that is old and has no mount does not count: the kubelet that wrote it
// has forgotten it, and nothing would ever remove it.
func pluginIsBusy(s *situation) answer {
	return s.otherSees(s.fact(ThePlugin), func(s *situation, seen Seen) bool {
		p := seen.Plugin
		shared := s.record.Stage != volstate.None && s.stageIsShared()
		return p.Staged && (shared || p.Mounted || !s.graceOver(p.Since))
	})
}

// pluginHasVolume holds if the kubelet's CSI plugin has the volume, too, as is seen now.
func pluginHasVolume(s *situation) answer { return either(pluginHasPod, pluginIsBusy)(s) }

// csiPodComes holds if a pod is about to have the volume as a CSI one, and the kubelet wants
// an end of something.
func csiPodComes(s *situation) answer {
	return all(goalIs(Unmount, CompleteUnmount, UnmountDevice), func(s *situation) answer {
		return s.otherSees(Fact{What: ThePVState, Dir: s.op.Dir}, func(_ *situation, seen Seen) bool { return seen.PVState.Next != "" })
	})(s)
}

func sharesStage(s *situation) answer { return is(s.stageIsShared()) }

// stageIsShared reports that what is staged is staged where the kubelet's CSI plugin has
// it, so that one of us ends it for both.
func (s *situation) stageIsShared() bool {
	return s.record.Stage == volstate.None || s.record.StagingPath == s.observed.KubeletStaging
}

// pluginHasUnstaged holds if the kubelet's CSI plugin has unstaged the volume by now.
func pluginHasUnstaged(s *situation) answer { return all(not(pluginHasFile), stageGone)(s) }

// unstageTable calls NodeUnstageVolume, unless the kubelet's CSI plugin has the
// volume by now.
func unstageTable() Table {
	return Table{Name: "unstage the volume", given: not(stagePhaseIs(volstate.None)), rules: []Rule{
		group(pluginHasVolume,
			Rule{
				Name: "unstage-elsewhere", When: "the kubelet's CSI plugin has the volume as well, at another staging path", Then: "fail until the pods with its CSI PersistentVolume are gone",
				applies: not(sharesStage), step: fail(errOtherStage),
			},
			Rule{
				Name: "unstage-not-ours", When: "the kubelet's CSI plugin has the volume, at the same staging path", Then: "forget the stage: the kubelet unstages it",
				tables: firstOf(
					Rule{applies: pluginHasPod, step: forgetStageOf(volstate.Kubelet)},
					Rule{step: forgetStageOf(volstate.Unclear)},
				),
			},
		),
		{
			Name: "still-published", When: "a target is published, or may be", Then: "fail: a volume is not unstaged under a mount",
			applies: anyPublished, step: fail(errStillPublished),
		},
		{Name: "unstage", When: "the volume is staged, or may be", Then: "NodeUnstageVolume", step: takeForVolume(NodeUnstage)},
	}}
}

func forgetStageOf(owner volstate.Owner) func(*situation) Step {
	return func(*situation) Step { return Step{Kind: ForgetStage, Owner: owner} }
}

// detachTable takes the volume off this node the way that it was attached, whatever
// the configuration has become.
func detachTable(patience Patience) Table {
	return Table{
		Name: "detach the volume", About: "A volume is detached the way that it was attached, whatever the configuration says by now.",
		given: not(attachIs(volstate.None)),
		rules: []Rule{
			{
				Name: "detach-not-ours", When: "the kubelet's CSI plugin has the volume, its ownership is unclear and nothing is staged, or the VolumeAttachment is unmanaged",
				Then:    "forget the attachment",
				applies: either(pluginHasVolume, not(ownerIs(volstate.Ours)), attachmentUnmanaged), step: takeForVolume(ForgetAttachment),
			},
			{
				Name: "still-staged", When: "the volume is staged or published, or may be", Then: "fail: a volume is not detached under a stage",
				applies: either(not(stagePhaseIs(volstate.None)), anyPublished), step: fail(errStillStaged),
			},
			{
				Name: "delete-attachment", When: "flex2csi created its VolumeAttachment",
				Then:    "delete it and wait; the end of a pod waits ten seconds at most and succeeds, also without the API server: `finish-detach` of reconcile tries again",
				applies: all(hasObject, not(tookForVolume(DeleteAttachment))),
				step: func(*situation) Step {
					return Step{Kind: DeleteAttachment, Patience: patience, MayFail: patience == Shortly}
				},
			},
			{
				Name: "controller-unpublish", When: "ControllerPublishVolume attached it, or may have", Then: "ControllerUnpublishVolume",
				applies: not(hasObject), step: takeForVolume(ControllerUnpublish),
			},
		},
	}
}

// growRule: some drivers grow a volume only while no pod uses it, and the kubelet
// never calls for that. Without it the next pod would not start either, since
// expandfs comes when its volume is staged. If it fails here, that says so.
func growRule() Rule {
	return Rule{
		Name: "grow-unused", When: "ControllerExpandVolume failed while pods had the volume", Then: "ControllerExpandVolume, now that no pod has it",
		applies: all(mayGrowUnused, not(tookForVolume(ControllerExpand)), driverHas(canControllerExpand)),
		step:    func(*situation) Step { return Step{Kind: ControllerExpand, MayFail: true, Patience: Shortly} },
	}
}

func mayGrowUnused(s *situation) answer {
	r := s.record
	return is(r.Expand == volstate.Doing && r.Stage == volstate.None && r.Attach != volstate.Undoing && r.Owner == volstate.Ours)
}
