package lifecycle

import (
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// mountTable: attach, stage, publish, fsGroup and bind. The target is recorded
// first, so that no other operation unstages in between. The bind is the commit point: what
// the kubelet can see at its directory is a finished mount.
func mountTable() Table {
	return Table{
		Name: string(Mount), About: "The bind is the last step. What the kubelet sees at its directory is a finished mount.",
		rules: []Rule{
			include(undoFailedMountTable()),
			include(admitTable()),
			include(oldStageTable()),
			{
				Name: "record-target", When: "this call has not recorded its target yet",
				Then:    "record the target, before any RPC: from then on no operation unstages the volume",
				applies: not(tookForTarget(RecordTarget)),
				tables: firstOf(
					Rule{applies: all(not(hasTarget), mountIs(TheDir, Unknown)), step: refuse(errUnreachable)},
					Rule{step: take(RecordTarget)},
				),
			},
			{
				Name: "mark-again", When: "attach: true, and the marker is not mounted: the reconciler removed it after the grace period",
				Then:    "mount the marker; without it the kubelet does not call unmountdevice",
				applies: markerMissing,
				step:    func(s *situation) Step { return Step{Kind: PlaceMarker, Dir: s.driverFacts().Device} },
			},
			include(bringTable()),
		},
	}
}

// admitTable says whether there is anything to do, and whether it may be done.
func admitTable() Table {
	return Table{rules: []Rule{
		{
			Name: "given-up-before", When: "the caller left before the operation began", Then: "refuse: no step is taken",
			applies: all(not(callerWaits), not(operationBegun)), step: refuse(always(errUnseen)),
		},
		{
			Name: "unbind-unseen", When: "the caller left while this call bound the volume",
			Then:    "unmount the directory at once: the kubelet, for which the mount has failed, comes back after half a second (pkg/util/goroutinemap/exponentialbackoff, initialDurationBeforeRetry, Kubernetes v1.37.1)",
			applies: all(not(callerWaits), tookForTarget(Bind), hasTarget, hasTargetPath), step: take(Unbind),
		},
		{
			Name: "other-volume", When: "a target of another volume is at the directory", Then: "refuse",
			applies: objects(TheOther), step: refuse(errorOf(TheOther)),
		},
		{
			Name: "unmounted-meanwhile", When: "flexdriver unmounted the directory while the daemon was down: there is a pending unmount",
			Then:    "first [unpublish the target], and remove it from the record; the volume stays on the node, since it is wanted",
			applies: either(objects(ThePendingUnmount), says(ThePendingUnmount)),
			tables: firstOf(
				Rule{applies: objects(ThePendingUnmount), step: refuse(errorOf(ThePendingUnmount))},
				Rule{applies: not(hasTarget), step: take(Tidy)},
				include(unpublishTable()),
				Rule{step: take(Drop)},
			),
		},
		{
			Name: "forget-bind", When: "the target is bound, but nothing is mounted at the directory any more",
			Then:    "forget the bind: if this mount fails, no repair brings back what the kubelet does not know of",
			applies: all(hasTarget, targetBound, not(tookForTarget(RecordTarget)), mountIs(TheDir, NotMounted, NoDir)),
			step:    take(ForgetBind),
		},
		disagreeRule(),
		{
			Name: "start-over", When: "the configuration changed since the volume was begun, and no target is bound or certainly published: before the first bind, or after a reboot",
			Then:    "first undo what was begun: [unpublish the target], [unstage the volume], [detach the volume]",
			applies: all(configurationChanged, not(tookForTarget(RecordTarget)), not(pluginHasVolume), noTarget(targetInUse)),
			tables: firstOf(
				Rule{each: everyTarget, applies: not(targetIs(volstate.None)), tables: []Table{unpublishTable()}},
				include(unstageTable()),
				Rule{applies: not(attachedByControlPlane), tables: []Table{detachTable(AsConfigured)}},
			),
		},
		{
			// No driver has to be asked, and nothing touched that a pod may be using.
			Name: "ready", When: "the target is bound, and the mount works",
			Then:    "done; refuse if the mount has the other read-only flag, or does not answer",
			applies: all(hasTarget, targetBound, targetIs(volstate.Done)),
			tables: firstOf(
				Rule{applies: not(readOnlyAsWanted), step: refuse(errReadOnly)},
				Rule{applies: mountIs(TheDir, Unknown), step: refuse(errorOf(TheDir))},
				Rule{applies: mountIs(TheDir, Alive), step: take(Done)},
				Rule{applies: mountIs(TheDir, Silent), step: refuse(errSilent(TheDir))},
			),
		},
		driverAwayRule(),
	}}
}

// configurationChanged: one that was put right holds at once.
func configurationChanged(s *situation) answer {
	return is(Changed(s.record, s.op.Volume) != "")
}

// targetInUse holds if a pod may have the volume at the target.
func targetInUse(s *situation) answer {
	return either(
		mountIs(TheDir, Unknown, Alive, Dead, Silent), targetBound, targetIs(volstate.Done),
	)(s)
}

func readOnlyAsWanted(s *situation) answer {
	return is(s.target().ReadOnly == s.op.Volume.ReadOnly)
}

func disagreeRule() Rule {
	return Rule{
		Name: "disagree", When: "two PersistentVolumes with this volume handle differ in driver, fsType, mount flags, access mode or volume context",
		Then:    "refuse: the volume is staged once for both",
		applies: func(s *situation) answer { return is(disagreement(s.record, s.op.Volume) != nil) },
		step:    refuse(func(s *situation) error { return disagreement(s.record, s.op.Volume) }),
	}
}

func driverAwayRule() Rule {
	return Rule{
		Name: "driver-away", When: "the CSI driver is unavailable, or its policy (CSIDriver) cannot be read", Then: "refuse",
		applies: objects(TheDriver), step: refuse(errorOf(TheDriver)),
	}
}

// oldStageTable is for what was staged before, and does not work any more.
func oldStageTable() Table {
	return Table{rules: []Rule{
		{
			Name: "stage-silent", When: "the staged mount does not answer", Then: "refuse: it may answer again, as after the failover of a server",
			applies: all(stagePhaseIs(volstate.Done), stageIs(Silent)), step: refuse(errSilent(TheStage)),
		},
		{
			Name: "dead-unseen", When: "the staged mount or the mount for the pod is dead, and no container of the pod was ever created, or this call has bound it",
			Then:    "first [unpublish the target]",
			applies: all(hasTarget, not(targetIs(volstate.None)), showsDead, either(tookForTarget(Bind), noContainer)),
			tables:  []Table{unpublishTable()},
		},
		{
			Name: "stage-dead-in-use", When: "the staged mount is dead, and targets are published, or may be", Then: "refuse: delete these pods first",
			applies: all(stagePhaseIs(volstate.Done), stageIs(Dead), anyPublished), step: refuse(errStageDead),
		},
	}}
}

// showsDead holds if what is mounted for the target, or staged, is dead.
func showsDead(s *situation) answer {
	return either(
		mountIs(TheDir, Dead), mountIs(TheTarget, Dead), all(stagePhaseIs(volstate.Done), stageIs(Dead)),
	)(s)
}

func noContainer(s *situation) answer {
	return sees(ThePod, func(_ *situation, seen Seen) bool { return seen.Pod.NoContainer })(s)
}

// markerMissing holds if the volume has a device mount path without our marker.
func markerMissing(s *situation) answer {
	return all(
		driverHas(func(d *DriverFacts) bool { return d.Device != "" }),
		not(func(s *situation) answer {
			device := s.driverFacts().Device
			if s.record.Device != device {
				return is(false)
			}
			return isMounted(TheDir)(s.at(device))
		}),
	)(s)
}

// undoFailedMountTable: the kubelet calls nothing after a mount that failed, so what was
// begun is undone at once, or the next call goes on with it.
func undoFailedMountTable() Table {
	return Table{
		Name:  "undo a failed mount",
		About: "The kubelet makes no call after a mount that failed. What is certain is undone at once; what is uncertain waits for the next mount or unmount, and for the reconciler after the grace period.",
		rules: []Rule{
			removeDeadRule(),
			{
				Name: "undo-direct", When: "NodePublishVolume into the kubelet's directory, for a target of an earlier version, ended uncertain",
				Then:    "[unpublish the target], then refuse: the kubelet does not unmount its directory after a failed mount",
				applies: all(failedOnce, directPublishUncertain, hasTarget, not(hasTargetPath)), tables: []Table{unpublishTable()},
			},
			{
				Name: "undo-failed", When: "a step failed with an error that is final, local or not begun, and this call recorded the target",
				Then:    "[release the target], then refuse",
				applies: all(failedOnce, failedForGood, hasTarget, tookForTarget(RecordTarget)), tables: []Table{releaseTable()},
			},
			refuseFailedRule(),
		},
	}
}

func refuseFailedRule() Rule {
	return Rule{
		Name: "failed", When: "a step of this operation failed", Then: "refuse with the first error",
		applies: operationFailed, step: refuse(firstError),
	}
}

func firstError(s *situation) error { return s.op.firstFailure().Err }

// failedOnce: what undoes a failure is not undone.
func failedOnce(s *situation) answer { return is(len(s.op.Failures) == 1) }

func directPublishUncertain(s *situation) answer {
	f := s.op.firstFailure()
	return is(f.Step.Kind == NodePublish && f.Class == Uncertain)
}

// failedForGood holds if nothing of what failed is still going on.
func failedForGood(s *situation) answer {
	class := s.op.firstFailure().Class
	return is(class == Final || class == Local || class == NotBegun)
}

// removeDeadRule: some drivers stumble over their own dead mount.
func removeDeadRule() Rule {
	return Rule{
		Name: "without-the-dead", When: "NodeUnpublishVolume or NodeUnstageVolume failed, and the mount at its path is dead",
		Then:    "unmount the dead mount, then repeat the RPC: some drivers fail on their own dead mount",
		applies: all(operationFailed, failedOnDead),
		step:    func(s *situation) Step { return Step{Kind: RemoveDead, Dir: s.op.lastFailure().Step.Dir} },
	}
}

// failedOnDead holds if the mount at the path of the step that failed is dead, and was not
// removed before.
func failedOnDead(s *situation) answer {
	failed := s.op.lastFailure().Step
	at := s.at(failed.Dir)
	switch failed.Kind {
	case NodeUnpublish:
		return all(not(tookForTarget(RemoveDead)), mountIs(TheTarget, Dead))(at)
	case NodeUnstage:
		return all(not(tookForTarget(RemoveDead)), stageIs(Dead))(at)
	}
	return is(false)
}

// bringTable brings a volume to a target that is recorded.
func bringTable() Table {
	return Table{
		Name:  "bring the volume to the pod",
		About: "NodeStageVolume is repeated whenever the stage is uncertain, also after a failed NodeUnstageVolume. Read-only and fsGroup are those of each target: a second pod may differ. Its fsGroup is then given to the files under the first pod as well; with VOLUME_MOUNT_GROUP the stage has the first pod's group, and each publish its own.",
		rules: []Rule{include(attachTable()), include(stageTable()), include(publishTable()), keptRule(), include(showTable())},
	}
}

// attachTable sees to it that the volume is attached to this node, and to the publish
// context that the node service wants to see.
func attachTable() Table {
	return Table{
		Name:  "attach the volume",
		About: "These rules apply only while the volume is not known to be attached, or its publish context is not known.",
		given: not(isAttached),
		rules: []Rule{
			{
				Name: "no-route", When: "the configuration offers no way to attach the volume, or not the way that was begun", Then: "fail",
				applies: hasNoRoute, step: fail(errorOfRoute),
			},
			group(routeIs(ByVolumeAttachment),
				Rule{
					Name: "detach-first", When: "its VolumeAttachment is being deleted", Then: "wait until it is gone, before a new one is created",
					applies: attachIs(volstate.Undoing), step: takeForVolume(DeleteAttachment),
				},
				Rule{
					Name: "await-attachment", When: "kube-controller-manager attaches the volume (attach: true)", Then: "wait for its VolumeAttachment",
					applies: attachedByOthers, step: attachBy(AwaitAttachment),
				},
				Rule{
					Name: "ask-attachment", When: "the cluster attaches the volume (external-attacher)", Then: "create the VolumeAttachment, and wait until it is attached",
					step: attachBy(AskAttachment),
				},
			),
			{
				Name: "controller-publish", When: "the bridge calls the controller service of the CSI driver", Then: "ControllerPublishVolume",
				applies: routeIs(ByControllerService), step: takeForVolume(ControllerPublish),
			},
		},
	}
}

// isAttached holds if the volume is attached as far as is known, and the publish context is
// known, too. A volume that the control plane has attached is asked for once more: that is
// idempotent, and the answer is the context.
func isAttached(s *situation) answer {
	return either(
		tookForVolume(AskAttachment), tookForVolume(AwaitAttachment), tookForVolume(ControllerPublish),
		all(attachIs(volstate.Done), publishContextKnown, not(attachmentLost)),
		routeIs(NoAttach),
	)(s)
}

func publishContextKnown(s *situation) answer { return is(!s.record.PublishContextIncomplete()) }

// attachmentLost holds if a VolumeAttachment is gone that the record says is there. What is
// not known is not lost.
func attachmentLost(s *situation) answer {
	return all(hasObject, attachIs(volstate.Done), says(TheAttachment))(s)
}

// routeIs holds if the volume is attached in this way.
func routeIs(wanted Route) condition {
	return sees(TheDriver, func(s *situation, _ Seen) bool {
		route, err := s.route()
		return err == nil && route == wanted
	})
}

func hasNoRoute(s *situation) answer {
	return sees(TheDriver, func(s *situation, _ Seen) bool { return errorOfRoute(s) != nil })(s)
}

func errorOfRoute(s *situation) error {
	_, err := s.route()
	return err
}

// attachedByOthers: with a device mount path the volume is attached by others before.
func attachedByOthers(s *situation) answer {
	return is(isAwaited(s.record) || (s.op.Goal != Attach && s.record.Device != "" && s.record.Attach == volstate.None))
}

// isAwaited reports whether another controller attaches the volume of a record.
func isAwaited(r *volstate.Record) bool { return r.Unmanaged && r.Attachment == byControlPlane }

// attachBy waits as long as is configured for a caller only.
func attachBy(k StepKind) func(*situation) Step {
	return func(s *situation) Step {
		step := Step{Kind: k, Patience: AsConfigured}
		if s.op.Goal == Reconcile {
			step.Patience = Shortly
		}
		return step
	}
}

// route returns how the volume is attached. What has been begun is completed the
// way that it was begun.
func (s *situation) route() (Route, error) {
	r, d := s.record, s.driverFacts()
	begun := r.Attach != volstate.None && (r.Object != "") != (d.Route == ByVolumeAttachment)
	switch {
	case d.RouteErr != nil:
		return NoAttach, d.RouteErr
	case d.Route == NoAttach:
		return NoAttach, nil
	case !begun && d.Route == ByVolumeAttachment:
		return ByVolumeAttachment, d.ClusterErr
	case !begun:
		return d.Route, nil
	case r.Object != "" && d.CanCluster:
		return ByVolumeAttachment, d.ClusterErr
	case r.Object == "" && d.Features.Attach:
		return ByControllerService, nil
	}
	return NoAttach, flex.Errorf(flex.CodeFailedPrecondition, "volume %s is attached, or was about to be, by a different method than driver %s is configured to use now (attach, controllerEndpoint); restore that configuration until the volume's pods on this node are gone", r.Key(), r.FlexDriver)
}

// stageTable: NodeStageVolume is called again in any doubt, also after a failed
// unstage, which may have unstaged half of it (kubernetes/kubernetes#86360).
func stageTable() Table {
	unstageFirst := []Table{unstageTable()}
	return Table{rules: []Rule{
		group(not(anyPublished),
			Rule{
				Name: "stage-dead", When: "the staged mount is dead, and no target is published", Then: "first [unstage the volume]",
				applies: all(not(stagePhaseIs(volstate.None)), stageIs(Dead)), tables: unstageFirst,
			},
			Rule{
				Name: "other-secrets", When: "NodeStageVolume may have succeeded with secrets that changed since, and no target is published", Then: "first [unstage the volume]",
				applies: all(not(isStaged), stageUncertain, not(pluginHasVolume), says(TheSecrets)), tables: unstageFirst,
			},
			Rule{
				Name: "stages-no-more", When: "the driver no longer has STAGE_UNSTAGE_VOLUME, the stage is uncertain, and no target is published",
				Then:    "first [unstage the volume]: NodeStageVolume cannot be repeated",
				applies: all(not(driverHas(canStage)), stageUncertain), tables: unstageFirst,
			},
		),
		{
			Name: "published-before", When: "the stage is certain, but nothing is mounted there any more or the kubelet's CSI plugin has the volume staged as well; and a target that is not bound may be published. Not after a reboot, which makes the stage uncertain",
			Then: "first [unpublish the target]: an earlier NodePublishVolume may have found the staging path bare, and a repeated one returns OK for what is there",
			each: everyTarget, applies: all(not(isStaged), stagePhaseIs(volstate.Done), not(targetBound), targetIs(volstate.Doing, volstate.Undoing)),
			tables: []Table{unpublishTable()},
		},
		{
			Name: "stage", When: "the driver has STAGE_UNSTAGE_VOLUME, and the stage is uncertain, or the kubelet's CSI plugin has the volume staged as well",
			Then: "NodeStageVolume", applies: not(isStaged), step: takeForVolume(NodeStage),
		},
	}}
}

func stageUncertain(s *situation) answer {
	return stagePhaseIs(volstate.Doing, volstate.Undoing)(s)
}

// isStaged: while the kubelet's CSI plugin has the volume staged and nothing is
// published, it may unstage between our NodeStageVolume and NodePublishVolume,
// which would publish a bare directory. So nothing but our own, just now, counts.
func isStaged(s *situation) answer {
	return either(
		tookForVolume(NodeStage), not(driverHas(canStage)),
		all(stagePhaseIs(volstate.Done), not(pluginHasFile), not(stageGone)),
	)(s)
}

// stageGone: what was mounted at the staging path is not any more.
func stageGone(s *situation) answer {
	return all(
		stagePhaseIs(volstate.Done), func(s *situation) answer { return is(s.record.StageMounted) }, stageIs(NotMounted, NoDir),
	)(s)
}

func publishTable() Table {
	return Table{rules: []Rule{
		group(publishedBefore,
			Rule{
				Name: "target-silent", When: "the volume was published for the pod before, and that mount does not answer, or cannot be looked at", Then: "refuse: it may answer again",
				applies: mountIs(TheTarget, Silent, Unknown),
				tables: firstOf(
					Rule{applies: mountIs(TheTarget, Silent), step: refuse(errSilent(TheTarget))},
					Rule{step: refuse(errorOf(TheTarget))},
				),
			},
			Rule{
				Name: "target-dead", When: "the volume was published for the pod before, and that mount is dead or gone", Then: "first [unpublish the target]",
				applies: not(all(targetIs(volstate.Done), mountIs(TheTarget, Alive))), tables: []Table{unpublishTable()},
			},
		),
		{
			Name: "pod-gone", When: "the directory of the pod's volumes no longer exists", Then: "fail: the kubelet would not call unmount",
			applies: all(not(targetIs(volstate.Done)), not(podHasVolumes)), step: fail(errPodGone),
		},
		{
			Name: "unseen-direct", When: "a target of an earlier version in the kubelet's directory, and no caller waits for the mount any more",
			Then:    "at once [unpublish the target], then refuse: for the kubelet the mount has failed",
			applies: all(goalIs(Mount), not(callerWaits), not(hasTargetPath), not(targetBound)),
			tables: firstOf(
				Rule{applies: targetIs(volstate.Done), tables: []Table{unpublishTable()}},
				Rule{applies: tookForTarget(NodeUnpublish), step: refuse(always(errUnseen))},
			),
		},
		{
			Name: "publish", When: "the volume is not published for the pod, or that is uncertain", Then: "NodePublishVolume to the target path",
			applies: not(targetIs(volstate.Done)), step: take(NodePublish),
		},
	}}
}

// publishedBefore holds if the target was published before this operation, which may have
// unbound it.
func publishedBefore(s *situation) answer {
	return all(
		not(tookForTarget(NodePublish)),
		either(targetIs(volstate.Done), all(targetIs(volstate.Undoing), tookForTarget(Unbind))),
	)(s)
}

func podHasVolumes(s *situation) answer {
	return sees(ThePod, func(_ *situation, seen Seen) bool { return seen.Pod.Volumes })(s)
}

// keptRule: from NodePublishVolume on what is published keeps the kubelet from
// unstaging (pkg/volume/util/operationexecutor/operation_generator.go,
// GenerateUnmountDeviceFunc, which looks for other mounts of it, Kubernetes v1.37.1),
// and so the control plane from detaching. Before it they may have. That the plugin
// has the volume for a pod is what a kubelet knows again after a restart; that it has
// it staged is not (kubernetes/kubernetes#85476).
func keptRule() Rule {
	attachedAsCSI := func(s *situation) answer { return is(s.op.AttachedAsCSI) }
	return Rule{
		Name: "attachment-lost", When: "after NodePublishVolume the attachment is gone, or it is the attach-detach controller's for a CSI volume that the kubelet's CSI plugin has for no pod any more",
		Then:    "fail: the next mount attaches it again",
		applies: all(not(targetBound), either(all(attachedAsCSI, not(pluginHasPod)), attachmentLost)),
		step: func(s *situation) Step {
			return Step{Kind: Fail, Err: errBeingDetached(s.record), DoubtAttachment: true}
		},
	}
}

// showTable shows the volume to the pod.
func showTable() Table {
	return Table{rules: []Rule{
		{
			Name: "fsgroup", When: "the pod has an fsGroup that the driver does not apply", Then: "give the files to the group, before the pod sees them",
			applies: all(not(tookForTarget(ApplyFSGroup)), needsGroup), step: take(ApplyFSGroup),
		},
		{
			Name: "unseen", When: "no caller waits for the mount any more", Then: "refuse: the next mount binds it",
			applies: all(not(callerWaits), not(goalIs(Reconcile)), not(isBound)), step: refuse(always(errUnseen)),
		},
		{
			Name: "bind", When: "the volume is not bound to the kubelet's directory", Then: "bind it: the commit point",
			applies: all(not(tookForTarget(Bind)), not(isBound)),
			tables: firstOf(
				Rule{applies: mountIs(TheDir, Unknown), step: fail(errorOf(TheDir))},
				Rule{step: take(Bind)},
			),
		},
	}}
}

// isBound: what is bound already is left alone, since a pod may be using it.
func isBound(s *situation) answer { return all(targetBound, isMounted(TheDir))(s) }

// needsGroup is what the kubelet does for CSI volumes.
func needsGroup(s *situation) answer {
	t := s.target()
	shown := (t.Bound || s.op.took(ForgetBind, s.dir)) && !s.op.took(NodePublish, s.dir)
	if t.FSGroup == nil || t.ReadOnly || shown {
		return is(false)
	}
	return driverHas(func(d *DriverFacts) bool {
		r := s.record
		return !d.Features.MountGroup && csivol.FSGroupSkipped(d.FSGroup, r.FSType, csivol.ModesOr(r.AccessModes, r.AccessMode)) == ""
	})(s)
}
