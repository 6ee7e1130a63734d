package lifecycle

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/internal/volstate"
)

// Intend writes into a record what a step is about to do, and reports whether that
// has to be on the disk before the step is taken: it could not be undone otherwise.
// More of what only the executor knows is in particulars.
func Intend(record *volstate.Record, step Step, op *Operation, observed *Observed, particulars Particulars) (durable bool) {
	now := observed.Now // with its monotonic reading, so that a wall clock that is set keeps nothing
	t := record.Targets[step.Dir]
	switch step.Kind {
	case RecordTarget:
		// What is published is bound with no other write.
		published := t != nil && t.Publish == volstate.Done
		recordTarget(record, op.Wanted, now, particulars)
		return published
	case ControllerPublish:
		if record.Attach != volstate.Done { // else only the answer is wanted
			record.Attach, record.NodeID = volstate.Doing, particulars.NodeID
			noteAsker(record, op.Goal)
		}
	case AskAttachment, AwaitAttachment:
		if record.Attach == volstate.None {
			record.Request = particulars.Request
		}
		record.Attach, record.NodeID, record.Object = volstate.Doing, particulars.NodeID, particulars.Object
		// Its owner is known when it exists; until then it may be ours.
		record.Unmanaged = step.Kind == AwaitAttachment
		noteAsker(record, op.Goal)
	case ControllerUnpublish, DeleteAttachment:
		record.Attach = volstate.Undoing
	case NodeStage:
		record.StagingPath = cmp.Or(record.StagingPath, particulars.StagingPath)
		record.Stage, record.MountGroup = volstate.Doing, particulars.MountGroup
	case NodeUnstage:
		record.Stage = volstate.Undoing
	case NodePublish:
		t.Publish, t.Since = volstate.Doing, now
	case ForgetBind:
		t.Bound = false
		return false // RecordTarget, or the outcome, is written before it can be bound again
	case Unbind:
		if step.Keep {
			return true // Bound: if this process ends before the bind, the next one makes it
		}
		failed := op.Goal == Mount && t.Bound && observed.Awaited // else a write comes too late, and the disk does not have Bound
		if t.Bound = false; !failed {
			return false
		}
		// The kubelet forgets a mount that failed: after a restart, what is left of it is
		// not taken for a finished one (Recognize), nor for one that has vanished.
		t.Publish = volstate.Undoing
	case NodeUnpublish:
		if !step.Keep {
			t.Bound = false
		}
		t.Publish, t.Since = volstate.Undoing, now
	case PlaceMarker:
		describe(record, op.Volume)
		takeBack(record)
		record.Device, record.Endpoints = step.Dir, particulars.Endpoints
	case ControllerExpand, NodeExpand:
		if op.Goal != Expand {
			return false
		}
		record.Complete(op.Volume.Context, op.Volume.MountFlags)
		record.Expand, record.ExpandSize = volstate.Doing, op.Size
	case NoteOwner:
		if record.Owner != step.Owner {
			record.Owner, record.Changed = step.Owner, now // what is unclear is so from now on
		}
		return false
	default:
		return false
	}
	return true
}

// Particulars are what a step writes down that no decision depends on.
type Particulars struct {
	NodeID, Object, StagingPath, MountGroup string
	// Request identifies a new request for a VolumeAttachment.
	Request string
	// Endpoints are where the CSI driver is, for a tear-down without configuration.
	Endpoints *csivol.Endpoints
	// TargetPath is the driver's target path; empty: the kubelet's directory.
	TargetPath string
}

func noteAsker(record *volstate.Record, goal Goal) {
	if record.Attachment != "" {
		return
	}
	record.Attachment = byNode
	if record.Device != "" || goal == Attach {
		record.Attachment = byControlPlane
	}
}

// recordTarget notes that a pod wants the volume at a directory.
func recordTarget(record *volstate.Record, wanted Wanted, now time.Time, particulars Particulars) {
	takeBack(record)
	describe(record, wanted.Volume)
	record.Endpoints = particulars.Endpoints
	if wanted.Goal != Mount {
		return
	}
	t := record.Targets[wanted.Dir]
	if t == nil {
		t = &volstate.Target{TargetPath: particulars.TargetPath}
		if record.Targets == nil {
			record.Targets = map[string]*volstate.Target{}
		}
		record.Targets[wanted.Dir] = t
	}
	t.Since = now // a call has come, or come back, for it
	t.Pod, t.ReadOnly, t.FSGroup = wanted.Volume.Pod, wanted.Volume.ReadOnly, wanted.Volume.FSGroup
}

// takeBack: what was left to others is wanted here again. Its attachment may be
// about to go with them, and is asked for.
func takeBack(record *volstate.Record) {
	if record.Owner != volstate.Ours && record.Object != "" && record.Attach == volstate.Done {
		record.Attach = volstate.Doing
	}
	record.Owner = volstate.Ours
}

// describe fills in what a volume is. What has been begun goes on as it was: what
// was staged for a PersistentVolume stays so, even if the configuration makes
// something else of it by now.
func describe(record *volstate.Record, want *csivol.Volume) {
	record.Inline = record.Inline || want.Inline
	switch {
	case isUnused(record):
		fill(record, want)
	case isOnlyAsked(record, want):
		fill(record, want)
		record.Attach = volstate.Undoing
	default:
		record.Complete(want.Context, want.MountFlags)
	}
}

// isUnused reports that nothing has been begun but a detach through the cluster.
func isUnused(record *volstate.Record) bool {
	return record.Idle() || (record.Stage == volstate.None && len(publishedPods(record)) == 0 && (record.Attach == volstate.None || DetachPending(record)))
}

func fill(record *volstate.Record, want *csivol.Volume) {
	record.FlexDriver, record.Name, record.Inline = want.FlexDriver, want.Name, want.Inline
	record.Context, record.FSType, record.MountFlags = want.Context, want.FSType, want.MountFlags
	record.AccessMode, record.AccessModes = want.AccessMode, want.AccessModes
}

// isOnlyAsked reports that an attachment was asked for and nothing has come of it,
// perhaps since it could not, and that something else would be asked for now: then
// a configuration that was put right holds at once. Two PersistentVolumes may still
// not take turns at that.
func isOnlyAsked(record *volstate.Record, want *csivol.Volume) bool {
	asked := record.Object != "" && !record.Unmanaged && record.Attach != volstate.Done
	return asked && record.Name == want.Name && record.FlexDriver == want.FlexDriver && record.Stage == volstate.None && len(publishedPods(record)) == 0 && difference(record, want) != ""
}

// disagreement is an error if two PersistentVolumes with one handle want something
// else of it, since it is staged once.
func disagreement(record *volstate.Record, want *csivol.Volume) error {
	if isUnused(record) || isOnlyAsked(record, want) || sameVolume(record, want) {
		return nil
	}
	if differs := difference(record, want); differs != "" {
		return errDisagree(record, differs)
	}
	return nil
}

// sameVolume reports whether a call is for the PersistentVolume of a record. Then
// they cannot disagree: it is the configuration that has changed. Inline volumes of
// one name may be those of two pods.
func sameVolume(record *volstate.Record, want *csivol.Volume) bool {
	if record.Name != want.Name || record.FlexDriver != want.FlexDriver || record.Inline || want.Inline {
		return false
	}
	c := record.Clone()
	c.Complete(want.Context, want.MountFlags)
	return !c.Incomplete()
}

// Changed says in what a volume is used in another way than a call for the same
// PersistentVolume would have it; empty: in none. The configuration has changed
// since it was begun.
func Changed(record *volstate.Record, want *csivol.Volume) string {
	if isUnused(record) || !sameVolume(record, want) || isOnlyAsked(record, want) {
		return ""
	}
	return difference(record, want)
}

func difference(record *volstate.Record, want *csivol.Volume) string {
	c := record.Clone()
	c.Complete(want.Context, want.MountFlags)
	switch {
	case c.FlexDriver != want.FlexDriver:
		return fmt.Sprintf("the driver %s, not %s", c.FlexDriver, want.FlexDriver)
	case c.FSType != want.FSType:
		return fmt.Sprintf("fsType %q, not %q", c.FSType, want.FSType)
	case !slices.Equal(c.MountFlags, want.MountFlags):
		return "other mount flags"
	case modesDiffer(c, want):
		return fmt.Sprintf("access mode %s, not %s", c.AccessMode, want.AccessMode)
	case !maps.Equal(c.Context, want.Context):
		return "another volume context"
	}
	return ""
}

// modesDiffer: what one PersistentVolume is said to have may change with the
// configuration, or when the API server can be asked again.
func modesDiffer(record *volstate.Record, want *csivol.Volume) bool {
	return record.Name != want.Name && record.AccessMode != "" && want.AccessMode != "" && record.AccessMode != want.AccessMode
}

// A StepResult is what came of a step that has succeeded.
type StepResult struct {
	PublishContext map[string]string
	// Ours: flex2csi created the VolumeAttachment. AttachedAsCSI: see [Observed].
	Ours, AttachedAsCSI bool
	// StageMounted: something is mounted at the staging path, or below it.
	StageMounted bool
	// NodeExpansionRequired is that of ControllerExpandVolume.
	NodeExpansionRequired bool
}

// Conclude writes into a record what came of a step, and into op what the rest of the
// operation has to know. Without an error the step has succeeded.
func Conclude(record *volstate.Record, step Step, op *Operation, observed *Observed, got StepResult, failure *Failure) {
	defer func() { observed.Facts = nil }() // a step makes what was seen old
	op.forgetUndone(step)
	switch {
	case failure == nil:
		concludeSuccess(record, step, op, got)
		op.noteTaken(step.Kind, step.Dir)
	case step.MayFail:
		op.noteTaken(step.Kind, step.Dir)
	default:
		concludeFailure(record, step, op, *failure)
	}
}

func concludeSuccess(record *volstate.Record, step Step, op *Operation, got StepResult) {
	t := record.Targets[step.Dir]
	switch step.Kind {
	case ControllerPublish:
		record.Attach, record.PublishContext = volstate.Done, got.PublishContext
	case AskAttachment, AwaitAttachment:
		op.AttachedAsCSI = got.AttachedAsCSI
		record.Attach, record.PublishContext, record.Unmanaged = volstate.Done, got.PublishContext, step.Kind == AwaitAttachment || !got.Ours
		if got.AttachedAsCSI && !isHeld(record) {
			record.Attach = volstate.Doing // until what is published holds it: else the next call asks again
		}
	case ControllerUnpublish, DeleteAttachment, ForgetAttachment:
		forgetAttachment(record)
	case NodeStage:
		record.Stage, record.StageMounted = volstate.Done, got.StageMounted
	case NodeUnstage, ForgetStage:
		forgetStage(record)
		record.Owner = step.Owner
	case LeaveToKubelet:
		forgetStage(record)
		forgetAttachment(record)
		record.Owner = volstate.Kubelet
	case NodePublish:
		t.Publish, t.LastError, t.Dead = volstate.Done, "", ""
	case NodeUnpublish:
		t.Publish = volstate.None
	case Unbind:
		op.forgetTaken(Bind, step.Dir)
	case Bind:
		t.Bound, t.Dead = true, ""
	case Drop:
		delete(record.Targets, step.Dir)
	case RemoveMarker:
		record.Device = ""
	case RemoveDead:
		op.Failures = op.Failures[:len(op.Failures)-1]
	case NoteAilments:
		record.StageDead = step.Ailments.Stage
		for dir, t := range record.Targets {
			t.Dead = step.Ailments.Targets[dir]
		}
	case ControllerExpand:
		op.NodeExpansionRequired = got.NodeExpansionRequired
		if op.Goal != Expand { // of growRules
			record.Expand = volstate.Done
		}
	case NoteExpanded:
		record.Expand, record.ExpandSize = volstate.Done, op.Size
	}
}

// concludeFailure records a failure. What the step was about to do stays uncertain, with the
// exceptions below.
func concludeFailure(record *volstate.Record, step Step, op *Operation, failure Failure) {
	op.Failures = append(op.Failures, failure)
	if t := record.Targets[step.Dir]; t != nil && failure.Err != nil {
		t.LastError = failure.Err.Error()
	}
	switch step.Kind {
	case ControllerPublish, AskAttachment, AwaitAttachment:
		if failure.Class == NotBegun { // it speaks of this request only
			forgetAttachment(record)
		}
	case NodePublish:
		if record.Stage == volstate.Done && (csivol.NotFound(failure.Err) || csivol.FailedPrecondition(failure.Err)) {
			record.Stage = volstate.Doing // perhaps it is not staged any more
		}
	case ApplyFSGroup:
		if t := record.Targets[step.Dir]; t.Bound {
			t.Publish = volstate.Doing // of a repair: it is asked for again, and the group with it
		}
	case Fail:
		if step.DoubtAttachment {
			record.Attach = volstate.Doing
		}
	}
}

// isHeld reports whether what is published keeps the kubelet's CSI plugin, and so
// the control plane, from letting go of a volume. A call that has failed half-way
// may have published nothing.
func isHeld(record *volstate.Record) bool {
	for _, t := range record.Targets {
		if t.Publish == volstate.Done {
			return true
		}
	}
	return false
}

func forgetAttachment(record *volstate.Record) {
	record.Attach, record.Attachment, record.Object, record.Request, record.Unmanaged, record.NodeID, record.PublishContext = volstate.None, "", "", "", false, "", nil
}

func forgetStage(record *volstate.Record) {
	record.Stage, record.StagingPath, record.StageDead, record.StageMounted = volstate.None, "", "", false
}

func sortedDirs(record *volstate.Record) []string {
	dirs := make([]string, 0, len(record.Targets)) // one allocation: each decision asks for them
	for dir := range record.Targets {
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	return dirs
}

// publishedPods names the pods that have the volume, or may have it.
func publishedPods(record *volstate.Record) (pods []string) {
	for _, dir := range sortedDirs(record) {
		if t := record.Targets[dir]; t.Publish != volstate.None {
			pods = append(pods, PodName(t, dir))
		}
	}
	return pods
}

// PodName is for messages.
func PodName(t *volstate.Target, dir string) string {
	if t.Pod.Name != "" {
		return t.Pod.Namespace + "/" + t.Pod.Name
	}
	if place, err := kubeletdir.Parse(dir); err == nil {
		return "pod " + place.PodUID
	}
	return dir
}
