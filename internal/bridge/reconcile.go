package bridge

import (
	"context"
	"maps"
	"time"

	"github.com/flex2csi/flex2csi/internal/attachment"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/lifecycle"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// DefaultGrace is how long something may be left half-done before it is undone
// because no call asks for it any more. It exceeds the kubelet's longest pause
// between two tries (2 min 2 s) and its wait for a pod's volumes (2 min 3 s).
const DefaultGrace = 5 * time.Minute

func (b *Bridge) grace() time.Duration {
	if b.Grace <= 0 {
		return DefaultGrace
	}
	return b.Grace
}

// reconcileCommand names the operation of the reconciler; no callout does.
const reconcileCommand flex.Command = "reconcile"

// Reconcile checks all volumes once. It undoes what no pod needs any more: targets of
// deleted pods, and operations that were abandoned half-way. It repairs or reports mounts
// that pods need and do not have. It does not wait for operations that it starts; ctx
// bounds the check.
func (b *Bridge) Reconcile(ctx context.Context) {
	for _, r := range b.Records() {
		if ctx.Err() != nil {
			return
		}
		b.noticeStuck(r)
		if b.busy(r.Key()) {
			continue
		}
		if b.amiss(ctx, r) {
			b.reconcileLater(r, "reconcile it")
			continue
		}
		b.measure(r)
	}
}

// amiss reports whether there is a step to take. It asks the node only: what
// has to be asked for is there to be done.
func (b *Bridge) amiss(ctx context.Context, r *volstate.Record) bool {
	d, _ := b.undoer(r) // nil: its operation says so
	v := &volume{key: r.Key(), record: r, ctx: ctx, log: b.log()}
	x := b.execution(v, d, lifecycle.Wanted{Goal: lifecycle.Reconcile})
	for {
		s := x.next()
		if s.Kind != lifecycle.Look {
			return s.Kind != lifecycle.Done
		}
		switch s.Fact.What {
		case lifecycle.TheDriver, lifecycle.TheCall, lifecycle.ThePVState:
			return true
		}
		if err := x.look(s.Fact); err != nil {
			return true
		}
	}
}

func (b *Bridge) reconcileLater(r *volstate.Record, what string) {
	b.doLater(r, operation{command: reconcileCommand}, what, func(v *volume) error {
		if v.record.Idle() {
			return nil
		}
		return b.reach(v, nil, lifecycle.Wanted{Goal: lifecycle.Reconcile})
	})
}

// FinishDetaches goes on with the detaches that an earlier process has left.
func (b *Bridge) FinishDetaches() {
	for _, r := range b.Records() {
		if lifecycle.DetachPending(r) {
			b.reconcileLater(r, "detach it")
		}
	}
}

// busy reports whether an operation is under way on a volume.
func (b *Bridge) busy(key csivol.Key) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.volumes[key]
	return v != nil && len(v.ops) > 0
}

// isDue reports whether it is time to do something again, and done notes that it
// was done.
func (b *Bridge) isDue(key csivol.Key, what string, every time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.volumes[key]
	return v != nil && time.Since(v.last[what]) >= every
}

func (b *Bridge) done(key csivol.Key, what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.volumes[key]
	if v == nil {
		return
	}
	if v.last == nil {
		v.last = map[string]time.Time{}
	}
	v.last[what] = time.Now()
}

// due is both.
func (b *Bridge) due(key csivol.Key, what string, every time.Duration) bool {
	if !b.isDue(key, what, every) {
		return false
	}
	b.done(key, what)
	return true
}

// reattached tells people that what was gone is there again.
func (x *execution) reattached(before map[string]string, got csivol.Attached) {
	b, r := x.b, x.v.record
	if !got.AttachedAsCSI { // else it comes again
		x.v.log.Info("the volume is attached again", "volumeAttachment", r.Object)
	}
	if r.Stage == volstate.Done && !maps.Equal(before, got.PublishContext) {
		b.notifyPods(r, "VolumeAttachmentChanged", "volume %s is attached again, and not as before: what is mounted may not work any more; delete the pods that have it on this node", r.Key())
	}
}

const sweepCommand flex.Command = "sweep"

// Sweep looks for attachments that this node has made and that no record knows
// of, since the records were lost: nothing else would ever delete them. What is
// still in use keeps its attachment.
func (b *Bridge) Sweep(ctx context.Context) error {
	if b.Attachments == nil {
		return nil
	}
	ours, err := b.Attachments(ctx)
	if err != nil {
		return err
	}
	known := map[csivol.Key]bool{}
	for _, r := range b.Records() {
		known[r.Key()] = r.Object != ""
	}
	for _, a := range ours {
		if a.Node == b.NodeName && !known[a.Key()] && !b.busy(a.Key()) {
			r := &volstate.Record{Driver: a.Driver, Handle: a.Handle}
			b.doLater(r, operation{command: sweepCommand}, "see whether its attachment is needed", func(v *volume) error { return b.sweep(v, a) })
		}
	}
	return nil
}

// sweep looks again, now that nothing else works on the volume.
func (b *Bridge) sweep(v *volume, a *csivol.Attachment) error {
	r := v.record
	d := b.Drivers[a.FlexDriver]
	switch {
	case r.Attach != volstate.None:
		return nil // by it, or else it goes when that is over
	case r.Idle() && b.node().csiPods(a.Key()):
		return nil // since a migration; the control plane detaches it when they are gone
	case d == nil || d.CSIDriver != a.Driver || d.Attacher == nil:
		v.log.Warn("an attachment of this node is of a driver that the configuration no longer has, and stays", "driver", a.FlexDriver)
		return nil
	case r.Idle() && b.node().inUse(d, a):
		v.log.Warn("an attachment of this node is of a volume without a record, and stays while pods have it")
		return nil
	}
	lifecycle.Found(r, a, attachment.Name(a.Handle, a.Driver, b.NodeName))
	if !lifecycle.DetachPending(r) {
		return nil // of a version of the record that is not the last
	}
	v.log.Info("detaching what no record knows of")
	return b.reach(v, d, lifecycle.Wanted{Goal: lifecycle.Reconcile})
}
