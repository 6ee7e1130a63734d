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
// More of what only the executor knows is in p.
func Intend(r *volstate.Record, s Step, op *Operation, o *Observed, p Particulars) (durable bool) {
	now := o.Now // with its monotonic reading, so that a wall clock that is set keeps nothing
	t := r.Targets[s.Dir]
	switch s.Kind {
	case RecordTarget:
		// What is published is bound with no other write.
		published := t != nil && t.Publish == volstate.Done
		recordTarget(r, op.Wanted, now, p)
		return published
	case ControllerPublish:
		if r.Attach != volstate.Done { // else only the answer is wanted
			r.Attach, r.NodeID = volstate.Doing, p.NodeID
			asked(r, op.Goal)
		}
	case AskAttachment, AwaitAttachment:
		if r.Attach == volstate.None {
			r.Request = p.Request
		}
		r.Attach, r.NodeID, r.Object = volstate.Doing, p.NodeID, p.Object
		// Its owner is known when it exists; until then it may be ours.
		r.Unmanaged = s.Kind == AwaitAttachment
		asked(r, op.Goal)
	case ControllerUnpublish, DeleteAttachment:
		r.Attach = volstate.Undoing
	case NodeStage:
		r.StagingPath = cmp.Or(r.StagingPath, p.StagingPath)
		r.Stage, r.MountGroup = volstate.Doing, p.MountGroup
	case NodeUnstage:
		r.Stage = volstate.Undoing
	case NodePublish:
		t.Publish, t.Since = volstate.Doing, now
	case ForgetBind:
		t.Bound = false
		return false // RecordTarget, or the outcome, is written before it can be bound again
	case Unbind:
		if s.Keep {
			return true // Bound: if this process ends before the bind, the next one makes it
		}
		failed := op.Goal == Mount && t.Bound && o.Awaited // else a write comes too late, and the disk does not have Bound
		if t.Bound = false; !failed {
			return false
		}
		// The kubelet forgets a mount that failed: after a restart, what is left of it is
		// not taken for a finished one (Recognize), nor for one that has vanished.
		t.Publish = volstate.Undoing
	case NodeUnpublish:
		if !s.Keep {
			t.Bound = false
		}
		t.Publish, t.Since = volstate.Undoing, now
	case PlaceMarker:
		describe(r, op.Volume)
		takeBack(r)
		r.Device, r.Endpoints = s.Dir, p.Endpoints
	case ControllerExpand, NodeExpand:
		if op.Goal != Expand {
			return false
		}
		r.Complete(op.Volume.Context, op.Volume.MountFlags)
		r.Expand, r.ExpandSize = volstate.Doing, op.Size
	case NoteOwner:
		if r.Owner != s.Owner {
			r.Owner, r.Changed = s.Owner, now // what is unclear is so from now on
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

func asked(r *volstate.Record, goal Goal) {
	if r.Attachment != "" {
		return
	}
	r.Attachment = byNode
	if r.Device != "" || goal == Attach {
		r.Attachment = byControlPlane
	}
}

// recordTarget notes that a pod wants the volume at a directory.
func recordTarget(r *volstate.Record, w Wanted, now time.Time, p Particulars) {
	takeBack(r)
	describe(r, w.Volume)
	r.Endpoints = p.Endpoints
	if w.Goal != Mount {
		return
	}
	t := r.Targets[w.Dir]
	if t == nil {
		t = &volstate.Target{TargetPath: p.TargetPath}
		if r.Targets == nil {
			r.Targets = map[string]*volstate.Target{}
		}
		r.Targets[w.Dir] = t
	}
	t.Since = now // a call has come, or come back, for it
	t.Pod, t.ReadOnly, t.FSGroup = w.Volume.Pod, w.Volume.ReadOnly, w.Volume.FSGroup
}

// takeBack: what was left to others is wanted here again. Its attachment may be
// about to go with them, and is asked for.
func takeBack(r *volstate.Record) {
	if r.Owner != volstate.Ours && r.Object != "" && r.Attach == volstate.Done {
		r.Attach = volstate.Doing
	}
	r.Owner = volstate.Ours
}

// describe fills in what a volume is. What has been begun goes on as it was: what
// was staged for a PersistentVolume stays so, even if the configuration makes
// something else of it by now.
func describe(r *volstate.Record, want *csivol.Volume) {
	r.Inline = r.Inline || want.Inline
	switch {
	case unused(r):
		fill(r, want)
	case onlyAsked(r, want):
		fill(r, want)
		r.Attach = volstate.Undoing
	default:
		r.Complete(want.Context, want.MountFlags)
	}
}

// unused reports that nothing has been begun but a detach through the cluster.
func unused(r *volstate.Record) bool {
	return r.Idle() || (r.Stage == volstate.None && len(publishedPods(r)) == 0 && (r.Attach == volstate.None || DetachPending(r)))
}

func fill(r *volstate.Record, want *csivol.Volume) {
	r.FlexDriver, r.Name, r.Inline = want.FlexDriver, want.Name, want.Inline
	r.Context, r.FSType, r.MountFlags = want.Context, want.FSType, want.MountFlags
	r.AccessMode, r.AccessModes = want.AccessMode, want.AccessModes
}

// onlyAsked reports that an attachment was asked for and nothing has come of it,
// perhaps since it could not, and that something else would be asked for now: then
// a configuration that was put right holds at once. Two PersistentVolumes may still
// not take turns at that.
func onlyAsked(r *volstate.Record, want *csivol.Volume) bool {
	asked := r.Object != "" && !r.Unmanaged && r.Attach != volstate.Done
	return asked && r.Name == want.Name && r.FlexDriver == want.FlexDriver && r.Stage == volstate.None && len(publishedPods(r)) == 0 && difference(r, want) != ""
}

// disagreement is an error if two PersistentVolumes with one handle want something
// else of it, since it is staged once.
func disagreement(r *volstate.Record, want *csivol.Volume) error {
	if unused(r) || onlyAsked(r, want) || sameVolume(r, want) {
		return nil
	}
	if differs := difference(r, want); differs != "" {
		return errDisagree(r, differs)
	}
	return nil
}

// sameVolume reports whether a call is for the PersistentVolume of a record. Then
// they cannot disagree: it is the configuration that has changed. Inline volumes of
// one name may be those of two pods.
func sameVolume(r *volstate.Record, want *csivol.Volume) bool {
	if r.Name != want.Name || r.FlexDriver != want.FlexDriver || r.Inline || want.Inline {
		return false
	}
	c := r.Clone()
	c.Complete(want.Context, want.MountFlags)
	return !c.Incomplete()
}

// Changed says in what a volume is used in another way than a call for the same
// PersistentVolume would have it; empty: in none. The configuration has changed
// since it was begun.
func Changed(r *volstate.Record, want *csivol.Volume) string {
	if unused(r) || !sameVolume(r, want) || onlyAsked(r, want) {
		return ""
	}
	return difference(r, want)
}

func difference(r *volstate.Record, want *csivol.Volume) string {
	c := r.Clone()
	c.Complete(want.Context, want.MountFlags)
	switch {
	case c.FlexDriver != want.FlexDriver:
		return fmt.Sprintf("the driver %s, not %s", c.FlexDriver, want.FlexDriver)
	case c.FSType != want.FSType:
		return fmt.Sprintf("fsType %q, not %q", c.FSType, want.FSType)
	case !slices.Equal(c.MountFlags, want.MountFlags):
		return "other mount flags"
	case differentModes(c, want):
		return fmt.Sprintf("access mode %s, not %s", c.AccessMode, want.AccessMode)
	case !maps.Equal(c.Context, want.Context):
		return "another volume context"
	}
	return ""
}

// differentModes: what one PersistentVolume is said to have may change with the
// configuration, or when the API server can be asked again.
func differentModes(r *volstate.Record, want *csivol.Volume) bool {
	return r.Name != want.Name && r.AccessMode != "" && want.AccessMode != "" && r.AccessMode != want.AccessMode
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
func Conclude(r *volstate.Record, s Step, op *Operation, o *Observed, got StepResult, failure *Failure) {
	defer func() { o.Facts = nil }() // a step makes what was seen old
	op.forgetUndone(s)
	switch {
	case failure == nil:
		succeeded(r, s, op, got)
		op.noteTaken(s.Kind, s.Dir)
	case s.MayFail:
		op.noteTaken(s.Kind, s.Dir)
	default:
		failed(r, s, op, *failure)
	}
}

func succeeded(r *volstate.Record, s Step, op *Operation, got StepResult) {
	t := r.Targets[s.Dir]
	switch s.Kind {
	case ControllerPublish:
		r.Attach, r.PublishContext = volstate.Done, got.PublishContext
	case AskAttachment, AwaitAttachment:
		op.AttachedAsCSI = got.AttachedAsCSI
		r.Attach, r.PublishContext, r.Unmanaged = volstate.Done, got.PublishContext, s.Kind == AwaitAttachment || !got.Ours
		if got.AttachedAsCSI && !holds(r) {
			r.Attach = volstate.Doing // until what is published holds it: else the next call asks again
		}
	case ControllerUnpublish, DeleteAttachment, ForgetAttachment:
		forgetAttachment(r)
	case NodeStage:
		r.Stage, r.StageMounted = volstate.Done, got.StageMounted
	case NodeUnstage, ForgetStage:
		forgetStage(r)
		r.Owner = s.Owner
	case LeaveToKubelet:
		forgetStage(r)
		forgetAttachment(r)
		r.Owner = volstate.Kubelet
	case NodePublish:
		t.Publish, t.LastError, t.Dead = volstate.Done, "", ""
	case NodeUnpublish:
		t.Publish = volstate.None
	case Unbind:
		op.forgetTaken(Bind, s.Dir)
	case Bind:
		t.Bound, t.Dead = true, ""
	case Drop:
		delete(r.Targets, s.Dir)
	case RemoveMarker:
		r.Device = ""
	case RemoveDead:
		op.Failures = op.Failures[:len(op.Failures)-1]
	case NoteAilments:
		r.StageDead = s.Ailments.Stage
		for dir, t := range r.Targets {
			t.Dead = s.Ailments.Targets[dir]
		}
	case ControllerExpand:
		op.NodeExpansionRequired = got.NodeExpansionRequired
		if op.Goal != Expand { // of growRules
			r.Expand = volstate.Done
		}
	case NoteExpanded:
		r.Expand, r.ExpandSize = volstate.Done, op.Size
	}
}

// failed records a failure. What the step was about to do stays uncertain, with the
// exceptions below.
func failed(r *volstate.Record, s Step, op *Operation, f Failure) {
	op.Failures = append(op.Failures, f)
	if t := r.Targets[s.Dir]; t != nil && f.Err != nil {
		t.LastError = f.Err.Error()
	}
	switch s.Kind {
	case ControllerPublish, AskAttachment, AwaitAttachment:
		if f.Class == NotBegun { // it speaks of this request only
			forgetAttachment(r)
		}
	case NodePublish:
		if r.Stage == volstate.Done && (csivol.NotFound(f.Err) || csivol.FailedPrecondition(f.Err)) {
			r.Stage = volstate.Doing // perhaps it is not staged any more
		}
	case ApplyFSGroup:
		if t := r.Targets[s.Dir]; t.Bound {
			t.Publish = volstate.Doing // of a repair: it is asked for again, and the group with it
		}
	case Fail:
		if s.DoubtAttachment {
			r.Attach = volstate.Doing
		}
	}
}

// holds reports whether what is published keeps the kubelet's CSI plugin, and so
// the control plane, from letting go of a volume. A call that has failed half-way
// may have published nothing.
func holds(r *volstate.Record) bool {
	for _, t := range r.Targets {
		if t.Publish == volstate.Done {
			return true
		}
	}
	return false
}

func forgetAttachment(r *volstate.Record) {
	r.Attach, r.Attachment, r.Object, r.Request, r.Unmanaged, r.NodeID, r.PublishContext = volstate.None, "", "", "", false, "", nil
}

func forgetStage(r *volstate.Record) {
	r.Stage, r.StagingPath, r.StageDead, r.StageMounted = volstate.None, "", "", false
}

func sortedDirs(r *volstate.Record) []string { return slices.Sorted(maps.Keys(r.Targets)) }

// publishedPods names the pods that have the volume, or may have it.
func publishedPods(r *volstate.Record) (pods []string) {
	for _, dir := range sortedDirs(r) {
		if t := r.Targets[dir]; t.Publish != volstate.None {
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
