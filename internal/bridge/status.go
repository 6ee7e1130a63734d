package bridge

import (
	"cmp"
	"slices"
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// VolumeState is one volume for those who look: flex2csi status and metrics.
// What is known of a volume beyond its record belongs here.
type VolumeState struct {
	// Record as it was last saved, not to be changed. It is that of a volume
	// with nothing on this node where an operation has only begun.
	Record *volstate.Record
	// UncertainSince is when the first step was begun that is neither done nor
	// undone, however often it was tried since; zero if all are.
	UncertainSince time.Time
	// Operations are those under way, the oldest first. One of them, at most,
	// has begun; the others wait for it.
	Operations []OperationStatus
	// AttachmentLost: what attached the volume is gone, and pods have it.
	AttachmentLost bool
	// Stats are the driver's, as of the last minute; nil if it does not tell.
	Stats *csivol.Stats
}

// OperationStatus is what a callout, or the reconciler, is doing.
type OperationStatus struct {
	Command flex.Command
	Dir     string // or node
	// Request is the id of the callout that started it; empty: no callout did.
	Request string
	// Since is when it was asked for, and Begun when its turn came; zero while
	// it waits.
	Since, Begun time.Time
	// Step is what it does now, since StepSince; empty while it waits or decides.
	Step      string
	StepSince time.Time
}

// Status returns all volumes that have a record or an operation, in the order
// of their drivers and handles.
func (b *Bridge) Status() []VolumeState {
	b.registry.mu.Lock()
	all := make([]VolumeState, 0, len(b.registry.volumes))
	for _, v := range b.registry.volumes {
		all = append(all, v.statusLocked())
	}
	b.registry.mu.Unlock() // operations do not wait for the sorting of thousands
	for i := range all {
		all[i].AttachmentLost = b.attachmentLost(all[i].Record)
	}
	slices.SortFunc(all, func(x, y VolumeState) int {
		return cmp.Or(cmp.Compare(x.Record.Driver, y.Record.Driver), cmp.Compare(x.Record.Handle, y.Record.Handle))
	})
	return all
}

// LostStatus is what a pod has and no record.
type LostStatus struct{ FlexDriver, PersistentVolume, Dir string }

// Lost returns what pods have and no record, in the order of the directories.
func (b *Bridge) Lost() (all []LostStatus) {
	b.registry.mu.Lock()
	defer b.registry.mu.Unlock()
	for pv, dirs := range b.registry.lost {
		for _, dir := range dirs {
			all = append(all, LostStatus{pv.flexDriver, pv.name, dir})
		}
	}
	slices.SortFunc(all, func(x, y LostStatus) int { return cmp.Compare(x.Dir, y.Dir) })
	return all
}

func (v *volume) statusLocked() VolumeState {
	s := VolumeState{Stats: v.stats.Load(), Record: v.saved.Load(), UncertainSince: v.uncertainSince}
	if s.Record == nil {
		s.Record = &volstate.Record{Driver: v.key.Driver, Handle: v.key.Handle}
	}
	for _, p := range v.ops {
		o := OperationStatus{Command: p.command, Dir: p.dir, Request: p.subject.Request, Since: p.since}
		if begun := p.begun.Load(); begun != 0 {
			o.Begun = time.Unix(0, begun)
			if s := v.step.Load(); s != nil {
				o.Step, o.StepSince = string(s.kind), s.since
			}
		}
		s.Operations = append(s.Operations, o)
	}
	return s
}

// noteDoubtLocked is called with each record that is saved, or nil.
func (v *volume) noteDoubtLocked(r *volstate.Record) {
	switch {
	case r == nil || !r.Uncertain():
		v.uncertainSince = time.Time{}
	case v.uncertainSince.IsZero():
		v.uncertainSince = time.Now()
		if !r.Changed.IsZero() {
			v.uncertainSince = r.Changed // in an earlier process, perhaps
		}
	}
}
