package bridge

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/flex2csi/flex2csi/internal/volstate"
)

// Restore takes up the records of an earlier run. What happened in between is
// put in doubt, which makes the next operation look: after a reboot all that
// is mounted, otherwise what was under way.
func (b *Bridge) Restore(records []*volstate.Record) {
	for _, r := range records {
		v := b.volume(r.Key())
		v.record = r
		reset(r)
		if d, err := b.driverOf(r); err == nil && d.Endpoints != nil {
			r.Endpoints = d.Endpoints
		} else if err != nil && r.Recovered {
			r.Endpoints = nil // where it was staged since may be in the configuration alone
		}
		if r.Recovered {
			b.doubt(r)
		}
		if r.BootID != b.BootID {
			rebooted(r)
		} else {
			b.recognize(r)
		}
		b.show(v)
	}
	b.findLost()
}

// reset puts times on this process's clock, which never jumps. What is ahead of
// it was written before the node's clock was set back: it counts from now, or
// nothing of it would be undone before the clock has caught up.
func reset(r *volstate.Record) {
	now := time.Now()
	here := func(t time.Time) time.Time { return now.Add(-max(0, now.Sub(t))).UTC() }
	r.Changed = here(r.Changed)
	for _, t := range r.Targets {
		t.Since = here(t.Since)
	}
}

// recognize compares with the mount table: a process that was killed between a
// bind and the record of it left a volume that the kubelet takes for mounted,
// and rightly, since the bind comes last.
func (b *Bridge) recognize(r *volstate.Record) {
	for dir, t := range r.Targets {
		if t.Private == "" || t.Publish != volstate.Doing && t.Publish != volstate.Done {
			continue
		}
		if mounted, err := b.Mounts.Mounted(dir); err == nil && mounted {
			t.Publish, t.Bound = volstate.Done, true
		}
	}
}

// doubt: one step has been taken since this version of the record, and which
// is not known. What was done may be undone by now and the reverse, so each
// half is asked for again before it is relied on. The mount table tells of a
// stage or target that the record does not know of.
func (b *Bridge) doubt(r *volstate.Record) {
	b.log().Warn("a record is that before the last, and is compared with the mount table", "volumeHandle", r.Handle, "csiDriver", r.Driver)
	if r.Attach != volstate.None {
		r.Attach = volstate.Doing
	}
	// The call may still be under way, so that nothing is mounted yet. Whether
	// the driver stages at all is known when it is there.
	if d := b.Drivers[r.FlexDriver]; d != nil && r.StagingPath == "" {
		r.StagingPath = b.stagingPath(d, r.Key())
	}
	if r.StagingPath != "" {
		r.Stage = volstate.Doing
	}
	b.discover(r)
	for dir, t := range r.Targets {
		// A mount that the kubelet can see is always a finished one.
		t.Publish = volstate.Doing
		if mounted, err := b.Mounts.Mounted(dir); err == nil && mounted && t.Private != "" {
			t.Publish = volstate.Done
		} else if err == nil && mounted {
			t.Bound = true // by the driver itself, and the kubelet may have seen it
		}
	}
}

// rebooted: mounts are gone, attachments are not. The kubelet calls mount
// again for what pods still want, and unmount for what they do not. What is
// attached through the cluster may have been detached meanwhile, since the node
// was away, and attached anew as another device.
func rebooted(r *volstate.Record) {
	now := time.Now().UTC()
	if r.Object != "" && r.Attach == volstate.Done {
		r.Attach = volstate.Doing
	}
	if r.Stage == volstate.Done {
		r.Stage = volstate.Doing
	}
	for _, t := range r.Targets {
		if t.Publish == volstate.Done {
			t.Publish = volstate.Doing
		}
		t.Bound, t.Dead, t.Since = false, "", now
	}
	r.StageDead, r.Changed = "", now
}

// BootIDFile is where the kernel says which boot this is (random(4)).
const BootIDFile = "/proc/sys/kernel/random/boot_id"

// BootID tells this boot of the node from others.
func BootID(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	id := strings.TrimSpace(string(data))
	if id == "" || len(id) > 128 {
		return "", fmt.Errorf("%s has %d bytes in it, which is no boot id", file, len(id))
	}
	return id, nil
}
