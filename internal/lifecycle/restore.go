package lifecycle

import (
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
)

// A part of a record becomes uncertain if something may have happened that the record
// does not have. The next step then checks it, or repeats the request.

// Reset puts times on the clock of now. What is ahead of it was written before the
// node's clock was set back: it counts from now, or nothing of it would be undone
// before the clock has caught up. With the monotonic reading of now, later changes of the
// clock do not matter.
func Reset(record *volstate.Record, now time.Time) {
	here := func(t time.Time) time.Time { return now.Add(-max(0, now.Sub(t))) }
	record.Changed = here(record.Changed)
	if isLeftUnclear(record) {
		record.Changed = now // what the kubelet did meanwhile was not seen
	}
	for _, t := range record.Targets {
		t.Since = here(t.Since)
	}
}

// Rebooted makes uncertain what a reboot may have ended: mounts are gone, attachments
// are not. The kubelet calls mount again for the volumes that pods still need, and
// unmount for the others. A volume that is attached through the cluster may have been
// detached while the node was down, and attached again as another device.
func Rebooted(record *volstate.Record, now time.Time) {
	if record.Object != "" && record.Attach == volstate.Done {
		record.Attach = volstate.Doing
	}
	if record.Stage == volstate.Done {
		record.Stage = volstate.Doing
	}
	for _, t := range record.Targets {
		if t.Publish == volstate.Done {
			t.Publish = volstate.Doing
		}
		t.Bound, t.Dead, t.Since = false, "", now
	}
	record.StageDead, record.Changed = "", now
}

// Recognize compares with the mount table: a process that was killed between a bind and the record of it left a
// volume that the kubelet takes for mounted, and rightly, since the bind comes last.
// mounted reports whether something is mounted at a directory of the kubelet.
func Recognize(record *volstate.Record, mounted func(dir string) bool) {
	for dir, t := range record.Targets {
		if t.TargetPath != "" && (t.Publish == volstate.Doing || t.Publish == volstate.Done) && mounted(dir) {
			t.Publish, t.Bound = volstate.Done, true
		}
	}
}

// Doubt makes every part uncertain: one step was taken since this version of the record,
// and it is not known which. What was done may be undone by now, and the reverse. So each
// part is requested again before it is used. stagingPath is where the driver would stage;
// targets are those that exist on the node.
func Doubt(record *volstate.Record, stagingPath string, targets map[string]*volstate.Target, mounted func(dir string) bool) {
	if record.Attach != volstate.None {
		record.Attach = volstate.Doing
	}
	// The call may still be under way, so that nothing is mounted yet. Whether the
	// driver stages at all is known when it is there.
	if record.StagingPath == "" {
		record.StagingPath = stagingPath
	}
	if record.StagingPath != "" {
		record.Stage = volstate.Doing
	}
	TakeUp(record, "", targets)
	for dir, t := range record.Targets {
		// A mount that the kubelet can see is always a finished one.
		t.Publish = volstate.Doing
		switch {
		case !mounted(dir):
		case t.TargetPath != "":
			t.Publish = volstate.Done
		default:
			t.Bound = true // by the driver itself, and the kubelet may have seen it
		}
	}
}

// TakeBack returns the record that was saved last, which may be nil, where the outcome of an
// operation could not be. It is as if the process had died there: what is not on the disk is
// not believed, since the kubelet forgets an attach or a mount that failed. But what was
// unbound is so: a mount that failed is not to be repaired.
func TakeBack(record, saved *volstate.Record) *volstate.Record {
	if saved == nil {
		return &volstate.Record{Driver: record.Driver, Handle: record.Handle}
	}
	back := saved.Clone()
	for dir, t := range back.Targets {
		t.Bound = t.Bound && record.Targets[dir] != nil && record.Targets[dir].Bound
	}
	return back
}

// TakeUp adds what the node shows and no record has: targets, and what is mounted at
// stagingPath, if that is not empty.
func TakeUp(record *volstate.Record, stagingPath string, targets map[string]*volstate.Target) {
	if stagingPath != "" && record.Stage == volstate.None {
		record.Stage, record.StagingPath = volstate.Doing, stagingPath
	}
	for dir, t := range targets {
		if have := record.Targets[dir]; have != nil {
			if have.Publish == volstate.None {
				have.Publish = t.Publish
			}
			continue
		}
		if record.Targets == nil {
			record.Targets = map[string]*volstate.Target{}
		}
		record.Targets[dir] = t
	}
}

// Found adds an attachment of ours that no record knows of. Where nothing else is
// left of the volume, it is to be deleted.
func Found(record *volstate.Record, a *csivol.Attachment, object string) {
	record.Attachment, record.Object, record.Request = byNode, object, a.Request
	if !record.Idle() {
		record.Attach = volstate.Doing // of a version of the record that is not the last
		return
	}
	record.Attach, record.FlexDriver, record.Name = volstate.Undoing, a.FlexDriver, a.Name
}

// Recall makes a record of a volume of which the record was lost, and which has a device
// mount path. [Doubt] says what may be there of it.
func Recall(record *volstate.Record, v *csivol.Volume, device string) {
	fill(record, v)
	record.Device = device
}
