package lifecycle

import (
	"github.com/flex2csi/flex2csi/internal/volstate"
)

// What only volumes with attach: true have: the callouts attach, detach,
// mountdevice and unmountdevice. On a node attach and detach come from a kubelet
// that attaches by itself (enableControllerAttachDetach: false).

// Who asked for an attachment, and so who detaches: mount and the last unmount, or
// callouts of their own.
const (
	byNode         = "node"
	byControlPlane = "control plane"
)

// mountDeviceTable leaves a marker at the device mount path: without a mount point
// there the kubelet would never call unmountdevice. The volume is attached and
// staged by mount: only that tells for which pod, and so whether the pod may have
// it.
func mountDeviceTable() Table {
	return Table{
		Name: string(MountDevice), About: "Only with `attach: true`. It stages nothing: only mount says for which pod the volume is, and so whether that pod may have it.",
		rules: []Rule{
			refuseFailedRule(),
			disagreeRule(),
			{
				Name: "other-device", When: "another PersistentVolume with this volume handle has a device mount path on this node", Then: "refuse: delete its pods first",
				applies: all(hasDevice, not(deviceIsTarget)), step: refuse(errOtherDevice),
			},
			{
				Name: "mark", When: "this call has not mounted the marker", Then: "mount the marker, so that the kubelet calls unmountdevice",
				applies: not(tookForTarget(PlaceMarker)),
				tables: firstOf(
					Rule{applies: mountIs(TheDir, Unknown), step: refuse(errUnreachable)},
					Rule{step: take(PlaceMarker)},
				),
			},
		},
	}
}

func deviceIsTarget(s *situation) answer { return is(s.record.Device == s.dir) }

// unmountDeviceTable: the kubelet's own check that no pod has the volume any more
// does not see through the marker; ours has to. A Success has the control plane
// detach the volume, so nothing may be staged then.
func unmountDeviceTable() Table {
	return Table{
		Name: string(UnmountDevice), About: "Success has the control plane detach the volume, so nothing may be staged by then. The kubelet's own check for mounts of the volume does not see through the marker.",
		rules: []Rule{removeDeadRule(), refuseFailedRule(), include(releaseDeviceTable())},
	}
}

func releaseDeviceTable() Table {
	return Table{
		Name: "release the device mount path", About: "Only with `attach: true`.",
		rules: []Rule{
			{
				Name: "unseen-target", When: "a target is neither bound nor mounted: its mount failed, so the kubelet does not know of it", Then: "[release the target]",
				each: everyTarget,
				tables: firstOf(
					Rule{applies: mountIs(TheDir, Unknown), step: refuse(errorOf(TheDir))},
					Rule{applies: all(not(isMounted(TheDir)), not(targetBound)), tables: []Table{releaseTable()}},
				),
			},
			{
				Name: "device-in-use", When: "pods of this node have the volume", Then: "refuse: unmount comes before unmountdevice",
				applies: hasTargets, step: refuse(errDeviceInUse),
			},
			include(endStageTable()),
			{
				Name: "unmark", When: "the marker is mounted, or may be", Then: "unmount it",
				applies: either(hasDevice, all(goalIs(UnmountDevice), not(tookForTarget(RemoveMarker)))), step: take(RemoveMarker),
			},
			{
				Name: "detach-device", When: "no detach callout follows", Then: "[detach the volume]",
				applies: not(detachFollows), tables: []Table{detachTable(Shortly)},
			},
		},
	}
}

// detachFollows: what a callout has attached a callout detaches.
func detachFollows(s *situation) answer {
	return all(attachedByControlPlane, attachIs(volstate.Done), not(attachmentUnmanaged))(s)
}

func attachGoalTable() Table {
	return Table{
		Name: string(Attach), About: "Only from a kubelet that attaches by itself (`enableControllerAttachDetach: false`).",
		rules: []Rule{
			refuseFailedRule(),
			driverAwayRule(),
			{
				Name: "no-pod", When: "the volume is not attached, and no pod of the node uses the claim of the PersistentVolume", Then: "refuse",
				applies: all(not(attachIs(volstate.Done)), not(tookForTarget(RecordTarget)), objects(TheClaim)), step: refuse(errorOf(TheClaim)),
			},
			disagreeRule(),
			{
				Name: "attach-claim", When: "this call has not recorded the volume yet", Then: "record what the volume is",
				applies: not(tookForTarget(RecordTarget)), step: take(RecordTarget),
			},
			include(attachTable()),
			{
				Name: "unseen-attach", When: "no caller waits for the attachment any more",
				Then:    "fail, and leave it uncertain: the kubelet forgets it, so the next attach asks again, or the reconciler detaches the volume",
				applies: all(not(callerWaits), either(tookForVolume(ControllerPublish), tookForVolume(AskAttachment))),
				step:    func(*situation) Step { return Step{Kind: Fail, Err: errUnseenAttach, DoubtAttachment: true} },
			},
		},
	}
}

// detachGoalTable: what is still staged is not detached. Data that was not written
// back would be lost.
func detachGoalTable() Table {
	return Table{
		Name: string(Detach), About: "Only from a kubelet that attaches by itself. Data that a staged filesystem has not written would be lost.",
		rules: []Rule{
			removeDeadRule(),
			refuseFailedRule(),
			{
				Name: "forgotten-device", When: "nothing is mounted at the device mount path, as after a reboot: the kubelet does not call unmountdevice",
				Then:    "first [release the device mount path]",
				applies: hasDevice,
				tables: firstOf(
					Rule{applies: mountIs(TheDevice, Unknown), step: refuse(errorOf(TheDevice))},
					Rule{applies: not(isMounted(TheDevice)), tables: []Table{releaseDeviceTable()}, at: devicePath},
				),
			},
			{
				Name: "detach-in-use", When: "the volume is staged, or has targets", Then: "refuse: it can be detached after its last pod",
				applies: either(not(stagePhaseIs(volstate.None)), hasTargets), step: refuse(errDetachInUse),
			},
			include(detachTable(AsConfigured)),
		},
	}
}

func devicePath(s *situation) string { return s.record.Device }
