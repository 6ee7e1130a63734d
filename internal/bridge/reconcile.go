package bridge

import (
	"context"
	"sync"
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/lifecycle"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/internal/volumelog"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// reconcileCommand names the operation of the reconciler; no callout does.
const reconcileCommand flex.Command = "reconcile"

// maxLooks bounds the checks of volumes that run at a time. A check may take a thread
// (statfs), and the process never gives one back.
const maxLooks = 16

// Reconcile checks all volumes once. It undoes what no pod needs any more: targets of
// deleted pods, and operations that were abandoned half-way. It repairs or reports mounts
// that pods need and do not have. It does not wait for operations that it starts, and no
// volume waits for the mounts of another that do not answer; ctx bounds the check.
func (b *Bridge) Reconcile(ctx context.Context) {
	slots := make(chan struct{}, maxLooks)
	var looks sync.WaitGroup
	defer looks.Wait()
	for _, r := range b.Records() {
		b.noticeStuck(r)
		if b.registry.busy(r.Key()) {
			continue
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		looks.Go(func() {
			defer func() { <-slots }()
			if b.amiss(ctx, r, sharedMounts{b.Mounts, slots}) {
				b.reconcileLater(r, "reconcile it")
			} else {
				b.measure(r)
			}
		})
	}
}

// sharedMounts are the mounts of a check that has a slot. While a filesystem does not
// answer, another check has it.
type sharedMounts struct {
	Mounts
	slots chan struct{}
}

// slotWait is how long a filesystem may take to answer before the slot is given away.
const slotWait = 50 * time.Millisecond

func (m sharedMounts) Healthy(path string) error {
	away := time.AfterFunc(slotWait, func() { <-m.slots })
	err := m.Mounts.Healthy(path)
	if !away.Stop() {
		m.slots <- struct{}{}
	}
	return err
}

// amiss reports whether there is a step to take. It asks the node only: what
// has to be asked for is there to be done.
func (b *Bridge) amiss(ctx context.Context, r *volstate.Record, mounts Mounts) bool {
	d, _ := b.undoer(r) // nil: its operation says so
	ctx = volumelog.With(ctx, subject(r, ""))
	v := &volume{key: r.Key(), record: r, ctx: ctx, log: volumelog.Logger(ctx, b.log())}
	x := b.execution(v, d, lifecycle.Wanted{Goal: lifecycle.Reconcile})
	x.node.mounts = mounts
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
		return b.execute(v, nil, lifecycle.Wanted{Goal: lifecycle.Reconcile})
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
		if a.Node == b.NodeName && !known[a.Key()] && !b.registry.busy(a.Key()) {
			r := &volstate.Record{Driver: a.Driver, Handle: a.Handle, Name: a.Name}
			b.doLater(r, operation{command: sweepCommand}, "see whether its attachment is needed", func(v *volume) error { return b.sweep(v, a) })
		}
	}
	return nil
}

// sweep looks again, now that nothing else works on the volume.
func (b *Bridge) sweep(v *volume, a *csivol.Attachment) error {
	r := v.record
	d := b.Drivers.of(a.FlexDriver, a.Driver)
	switch {
	case r.Attach != volstate.None:
		return nil // by it, or else it goes when that is over
	case r.Idle() && b.node().csiPods(a.Key()):
		return nil // since a migration; the control plane detaches it when they are gone
	case d == nil || d.CSIDriver != a.Driver || d.Attacher == nil:
		v.log.Warn("an attachment of this node is of a driver that the configuration no longer has, and stays", "flexDriver", a.FlexDriver)
		return nil
	case r.Idle() && b.node().inUse(d, a):
		v.log.Warn("an attachment of this node is of a volume without a record, and stays while pods have it")
		return nil
	}
	lifecycle.Found(r, a, b.object(a.Key()))
	if !lifecycle.DetachPending(r) {
		return nil // of a version of the record that is not the last
	}
	v.log.Info("detaching what no record knows of")
	return b.execute(v, d, lifecycle.Wanted{Goal: lifecycle.Reconcile})
}

// noticeStuck reports a volume with a step that has been uncertain for a long time.
func (b *Bridge) noticeStuck(r *volstate.Record) {
	since := b.registry.uncertainSince(r.Key())
	if since.IsZero() || time.Since(since) < stuckAfter || !b.registry.due(r.Key(), "stuck", noticeEvery) {
		return
	}
	why := r.LastError
	for _, t := range r.Targets {
		if why == "" {
			why = t.LastError
		}
	}
	if why == "" {
		why = "there is no answer yet"
	}
	b.notifyPods(r, "VolumeOperationStuck", "volume %s is neither attached and mounted on node %s nor detached for %v: %s", r.Key(), b.NodeName, time.Since(since).Round(time.Minute), why)
}
