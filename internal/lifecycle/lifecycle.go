// Package lifecycle decides what happens next in the life of a volume.
//
// [Planner.Next] is a pure function: it makes one [Step] of the record of a volume,
// of the operation that works on it, and of what was observed. It does no I/O, reads no clock and starts no
// goroutine. Its rules are data, in tables (mount.go, unmount.go, device.go, expand.go,
// reconcile.go and repair.go): the first rule that applies says the step. make docs
// writes them to lifecycle.md. rules.go has what a rule is, condition.go what a condition is.
//
// [Intend] and [Conclude] change a record, before a step and after it. What happened
// while no daemon was there is for [Reset], [Rebooted], [Recognize], [Doubt], [Recall]
// and [Found], a write that failed for [TakeBack]. No other code changes the state of a volume. internal/bridge takes the
// steps, and knows nothing of their order.
package lifecycle

import (
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
)

// A Goal is what a caller wants of a volume.
type Goal string

// The goals. Those of callouts have the names of these.
const (
	Attach        Goal = "attach"
	Detach        Goal = "detach"
	MountDevice   Goal = "mountdevice"
	UnmountDevice Goal = "unmountdevice"
	Mount         Goal = "mount"
	Unmount       Goal = "unmount"
	Expand        Goal = "expandfs"
	// Reconcile wants what pods have to have, and an end of what no pod wants any more.
	Reconcile Goal = "reconcile"
	// CompleteUnmount completes a pending unmount: flexdriver has unmounted a directory
	// while the daemon was down.
	CompleteUnmount Goal = "completeunmount"
)

// Wanted is a goal, and for what.
type Wanted struct {
	Goal Goal
	// Dir is the directory of the kubelet that a callout names: a pod's, or the
	// device mount path.
	Dir string
	// Volume is what the options of the callout make of the volume; nil for those
	// that have none.
	Volume *csivol.Volume
	// Size is that of an expansion in bytes, and OldSize the one before.
	Size, OldSize int64
}

// A StepKind is what a step does.
type StepKind string

// The kinds that end an operation, or go on with it at once.
const (
	// Done: what was wanted is so.
	Done StepKind = "done"
	// Refuse ends the operation with an error.
	Refuse StepKind = "refuse"
	// Fail is an error that a step has found rather than a driver: what has been
	// begun for the operation is undone, as after the final error of a driver.
	Fail StepKind = "fail"
	// Look asks for a fact, and then for the next step again.
	Look StepKind = "look"
)

// The kinds that change nothing but the record.
const (
	// RecordTarget writes down that a pod, or the kubelet, wants the volume at a directory.
	RecordTarget StepKind = "record the target"
	// Drop takes a target out of the record. It is the last step of its release.
	Drop StepKind = "drop the target"
	// ForgetBind: what was bound to the directory is not any more.
	ForgetBind StepKind = "forget the bind"
	// NoteOwner writes down who ends the volume with its last target.
	NoteOwner StepKind = "note the owner"
	// LeaveToKubelet leaves stage and attachment to the kubelet's CSI plugin and the
	// control plane.
	LeaveToKubelet StepKind = "leave the volume to the kubelet's CSI plugin"
	// ForgetStage: the kubelet's CSI plugin has unstaged, or will.
	ForgetStage StepKind = "forget the stage"
	// ForgetAttachment: the control plane detaches, or nothing was begun.
	ForgetAttachment StepKind = "forget the attachment"
	// NoteAilments writes down which mounts are dead, or are so no more.
	NoteAilments StepKind = "note what is dead"
	NoteExpanded StepKind = "note the size"
)

// The kinds that do something, each with one request or one mount.
const (
	ControllerPublish   StepKind = "ControllerPublishVolume"
	ControllerUnpublish StepKind = "ControllerUnpublishVolume"
	// AskAttachment makes a VolumeAttachment and waits for it; AwaitAttachment only
	// waits for one that the control plane makes.
	AskAttachment    StepKind = "create the VolumeAttachment and wait"
	AwaitAttachment  StepKind = "wait for the VolumeAttachment"
	DeleteAttachment StepKind = "delete the VolumeAttachment and wait"
	NodeStage        StepKind = "NodeStageVolume"
	NodeUnstage      StepKind = "NodeUnstageVolume"
	NodePublish      StepKind = "NodePublishVolume"
	NodeUnpublish    StepKind = "NodeUnpublishVolume"
	// Republish repeats NodePublishVolume for a driver with requiresRepublish.
	Republish     StepKind = "NodePublishVolume once more"
	ApplyFSGroup  StepKind = "apply the fsGroup"
	Bind          StepKind = "bind"
	Unbind        StepKind = "unbind"
	PlaceMarker   StepKind = "mount the marker"
	RemoveMarker  StepKind = "unmount the marker"
	RemoveDead    StepKind = "unmount what is dead"
	Tidy          StepKind = "unmount what no record knows"
	RemoveVolData StepKind = "remove vol_data.json"
	// ControllerExpand and NodeExpand grow the volume, and its filesystem.
	ControllerExpand StepKind = "ControllerExpandVolume"
	NodeExpand       StepKind = "NodeExpandVolume"
)

// A Patience is how long a step may wait for what goes on without it.
type Patience string

// The patiences. Those of RPCs are the driver's timeouts.
const (
	// AsConfigured is the driver's timeout, but not longer than the caller waits.
	AsConfigured Patience = ""
	// Shortly is for what must not keep others from their turn.
	Shortly Patience = "shortly"
)

// A Step is what happens next.
type Step struct {
	Kind StepKind
	// Dir is the directory of the target that it is for.
	Dir string
	// Err is that of Refuse and Fail.
	Err error
	// Fact is what Look wants to know.
	Fact     Fact
	Patience Patience
	// Owner is that of NoteOwner.
	Owner volstate.Owner
	// Ailments are those of NoteAilments.
	Ailments Ailments
	// Nominal: a NoteExpanded of an expansion that changes what the claim says alone. The
	// filesystem has Filesystem bytes.
	Nominal    bool
	Filesystem int64
	// DoubtAttachment: a Fail after which the attachment is asked for again.
	DoubtAttachment bool
	// Keep: the pod needs the volume. It is unmounted only to be mounted again.
	Keep bool
	// Remember: a Refuse with an error that the record keeps, though no step has failed.
	Remember bool
	// MayFail: the operation continues if the step fails.
	MayFail bool

	// Rule is the name of the rule that says so.
	Rule string
}
