package bridge

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/internal/lifecycle"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// An execution brings a volume to a goal: it asks the planner for
// the next step, writes the intent, takes the step (steps.go) and writes what came
// of it. It looks at facts when the planner wants to know them (observe.go).
type execution struct {
	b    *Bridge
	node node
	v    *volume
	// d is what the configuration makes of the driver; nil where it does not have it
	// (any more).
	d        *FlexDriver
	op       lifecycle.Operation
	observed lifecycle.Observed

	// What was learned about the driver for this operation.
	seenDriver *lifecycle.Seen
	// pvStates are what the API server was asked for, by directory.
	pvStates map[string]lifecycle.Seen
	policy   Policy
	// secrets are those of a call, or what is known of them without one.
	secrets csivol.Secrets
}

// bringTo has a goal reached when the volume's turn comes, and waits for it no longer
// than ctx allows. A nil driver: that of the record.
func (b *Bridge) bringTo(ctx context.Context, key csivol.Key, d *FlexDriver, op operation, w lifecycle.Wanted) error {
	return b.inTurn(ctx, key, op, func(v *volume) error { return b.execute(v, d, w) })
}

// maxSteps is more than any operation takes of a volume with so many targets, of which
// each may have to be undone and brought again.
func maxSteps(targets int) int { return 64 + 16*targets }

// execute takes step after step until the goal is reached.
func (b *Bridge) execute(v *volume, d *FlexDriver, w lifecycle.Wanted) error {
	d, err := b.driverFor(d, v.record, w)
	if err != nil {
		return err
	}
	x := b.execution(v, d, w)
	for left := maxSteps(len(v.record.Targets)); left > 0; {
		s := x.next()
		switch s.Kind {
		case lifecycle.Done:
			x.left()
			return nil
		case lifecycle.Refuse:
			return x.refused(s)
		case lifecycle.Look:
			if err := x.look(s.Fact); err != nil {
				return err
			}
		default:
			left--
			if err := x.take(s); err != nil {
				return err
			}
		}
	}
	return flex.Errorf(flex.CodeInternal, "%s of volume %s does not come to an end: this is a bug", w.Goal, v.key)
}

func (b *Bridge) execution(v *volume, d *FlexDriver, w lifecycle.Wanted) *execution {
	x := &execution{b: b, node: b.node(), v: v, d: d, op: lifecycle.Operation{Wanted: w}}
	x.observed = lifecycle.Observed{Grace: b.grace(), Node: b.NodeName, KubeletDir: b.KubeletDir, KubeletStaging: b.node().stagingPath(v.key)}
	if w.Volume != nil {
		x.secrets = w.Volume.Secrets
	}
	return x
}

func (x *execution) next() lifecycle.Step {
	x.observed.Now = time.Now()
	x.observed.Awaited = x.v.current == nil || x.v.awaited()
	return x.b.planner.Next(x.v.record, &x.op, &x.observed)
}

// left reports what an operation with success has left to the reconciler.
func (x *execution) left() {
	for _, f := range x.op.Failures {
		x.v.record.LastError = f.Err.Error()
		x.v.log.Warn("the pod has released the volume, which could not be ended on this node; it will be tried again", "step", string(f.Step.Kind), "error", f.Err)
	}
}

// refused ends an operation that has begun something with an error that is
// remembered for those who look.
func (x *execution) refused(s lifecycle.Step) error {
	if len(x.op.Failures) > 0 || s.Remember {
		x.v.record.LastError = s.Err.Error()
	}
	for _, f := range x.op.Failures[min(1, len(x.op.Failures)):] {
		over := x.concern(f.Step.Dir)
		x.v.log.Warn("a failed step could not be undone; it will be tried again", "step", string(f.Step.Kind), "error", f.Err)
		over()
	}
	return s.Err
}

// take writes down what a step intends, takes it, and writes down what came of it.
// An error is one of keeping the record: then nothing may be called.
func (x *execution) take(s lifecycle.Step) error {
	particulars, err := x.particulars(s)
	if err != nil {
		return err
	}
	before := x.v.record.Attach
	durable := lifecycle.Intend(x.v.record, s, &x.op, &x.observed, particulars)
	if s.Kind == lifecycle.RecordTarget || s.Kind == lifecycle.PlaceMarker {
		x.b.adopt(x.v)
	}
	if durable {
		// The unbind of a mount that fails needs no record: the kubelet forgets it now.
		if err := x.b.save(x.v); err != nil && (s.Kind != lifecycle.Unbind || s.Keep) {
			return err
		}
	}
	got, err := x.timed(s)
	var failure *lifecycle.Failure
	if err != nil {
		failure = &lifecycle.Failure{Step: s, Class: classOf(s, err, before), Err: worded(s, err, before)}
	}
	lifecycle.Conclude(x.v.record, s, &x.op, &x.observed, got, failure)
	if x.seenDriver != nil { // a step makes all facts old but this one
		x.observed.Facts = map[lifecycle.Fact]lifecycle.Seen{{What: lifecycle.TheDriver}: *x.seenDriver}
	}
	if s.Kind == lifecycle.Drop && failure == nil {
		return x.dropped(s.Dir)
	}
	return nil
}

// timed takes a step, which status shows meanwhile.
func (x *execution) timed(s lifecycle.Step) (lifecycle.StepResult, error) {
	defer x.concern(s.Dir)()
	x.v.step.Store(&currentStep{s.Kind, time.Now()})
	defer x.v.step.Store(nil)
	return x.act(s)
}

// dropped: a pending unmount that outlived its target would take the next mount away.
func (x *execution) dropped(dir string) error {
	if err := x.b.save(x.v); err != nil {
		return err
	}
	return x.b.forgetPendingUnmount(dir)
}

// classOf tells what is known of a step that has failed.
func classOf(s lifecycle.Step, err error, before volstate.Phase) lifecycle.Class {
	_, fromDriver := errors.AsType[*csivol.RPCError](err)
	switch {
	case s.Kind == lifecycle.AskAttachment || s.Kind == lifecycle.AwaitAttachment || s.Kind == lifecycle.DeleteAttachment:
		if errors.Is(err, csivol.ErrNotBegun) && before == volstate.None {
			return lifecycle.NotBegun
		}
		return lifecycle.GoesOn
	case !fromDriver:
		return lifecycle.Local
	case s.Kind == lifecycle.ControllerPublish && before == volstate.None && csivol.FailedPrecondition(err):
		// Another node has it. To negate what did not begin would be to trust that the
		// driver looks at the node, before it detaches.
		return lifecycle.NotBegun
	case csivol.Final(err):
		return lifecycle.Final
	}
	return lifecycle.Uncertain
}

// worded adds to an error of a driver what a person can do.
func worded(s lifecycle.Step, err error, before volstate.Phase) error {
	switch {
	case s.Kind == lifecycle.ControllerPublish && before == volstate.None && csivol.FailedPrecondition(err):
		return flex.Errorf(flex.CodeFailedPrecondition, "%w; most likely the volume is attached to another node, which must detach it first", err)
	case s.Kind == lifecycle.ControllerExpand || s.Kind == lifecycle.NodeExpand:
		return explainExpand(err)
	}
	return err
}

// explainExpand says what to do about a driver that cannot grow a volume while
// it is in use. A Success would claim a size that is not there.
func explainExpand(err error) error {
	if csivol.FailedPrecondition(err) {
		return flex.Errorf(flex.CodeFailedPrecondition, "%w; this driver cannot expand the volume now: if it can while the volume is not in use, delete the pods that use it; it is expanded when the last one is gone", err)
	}
	return err
}

// particulars are what the intent of a step says besides the step itself.
func (x *execution) particulars(s lifecycle.Step) (p lifecycle.Particulars, err error) {
	r := x.v.record
	switch s.Kind {
	case lifecycle.ControllerPublish, lifecycle.AskAttachment, lifecycle.AwaitAttachment:
		if err := x.b.renamed(r); err != nil {
			return p, err
		}
		if x.op.Goal == lifecycle.Reconcile && r.Attach == volstate.Done && r.Object != "" {
			x.v.log.Warn("the attachment of a volume is gone while pods have it", "volumeAttachment", r.Object)
			x.b.notifyPods(r, "VolumeAttachmentLost", "VolumeAttachment %s of volume %s was deleted, or is not attached any more, while the volume is in use on this node; flex2csi asks for it again", r.Object, r.Key())
		}
		p.NodeID = cmp.Or(x.features().NodeID, r.NodeID)
		p.Object, p.Request = x.b.object(x.v.key), rand.Text()
	case lifecycle.NodeStage:
		p.StagingPath = x.node.stagingPath(x.v.key)
		p.MountGroup = mountGroup(x.fsGroup(), x.features())
	case lifecycle.PlaceMarker:
		p.Endpoints = x.d.Endpoints
	case lifecycle.RecordTarget:
		p.Endpoints = x.d.Endpoints
		if x.op.Goal != lifecycle.Mount {
			break
		}
		if changed := lifecycle.Changed(r, x.op.Volume); changed != "" {
			x.v.log.Warn("what is asked for has changed since the volume was set up on this node; it goes on as it was begun until its last pod here is gone", "begunWith", changed)
		}
		if p.TargetPath, err = kubeletdir.TargetPath(s.Dir); err != nil {
			err = flex.Errorf(flex.CodeInvalidArgument, "%w", err)
		}
	}
	return p, err
}

// fsGroup is that of the pod for which a volume is staged, or of one of them.
func (x *execution) fsGroup() *int64 {
	if x.op.Volume != nil {
		return x.op.Volume.FSGroup
	}
	for _, t := range x.v.record.Targets {
		if t.FSGroup != nil {
			return t.FSGroup
		}
	}
	return nil
}
