package bridge

import (
	"fmt"
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/lifecycle"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// What a callout fails with, the kubelet tells the pod. Notices are for what
// happens between callouts, or lasts. Who takes them sees to it that the same is
// not said too often.

const (
	// stuckAfter is when a step that does not end is something for a person.
	stuckAfter = 5 * time.Minute
	// noticeEvery is how often the same is said of a volume.
	noticeEvery = 30 * time.Minute
)

// notify tells of a volume, at a pod if its name is known.
func (b *Bridge) notify(r *volstate.Record, pod csivol.Pod, reason, format string, args ...any) {
	if b.Notify == nil {
		return
	}
	n := csivol.Notice{Reason: reason, Message: fmt.Sprintf(format, args...)}
	if pod.Name != "" {
		n.Pod = pod
	} else {
		n.PersistentVolume = r.Name
	}
	b.Notify(n)
}

// notifyPods tells all pods that have a volume.
func (b *Bridge) notifyPods(r *volstate.Record, reason, format string, args ...any) {
	told := false
	for _, t := range r.Targets {
		if t.Publish != volstate.None && t.Pod.Name != "" {
			b.notify(r, t.Pod, reason, format, args...)
			told = true
		}
	}
	if !told {
		b.notify(r, csivol.Pod{}, reason, format, args...)
	}
}

// noticeStuck reports a volume with a step that has been uncertain for a long time.
func (b *Bridge) noticeStuck(r *volstate.Record) {
	b.mu.Lock()
	var since time.Time
	if v := b.volumes[r.Key()]; v != nil {
		since = v.uncertainSince
	}
	b.mu.Unlock()
	if since.IsZero() || time.Since(since) < stuckAfter || !b.due(r.Key(), "stuck", noticeEvery) {
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

// noticeAway tells of a CSI driver that cannot be reached on this node.
func (b *Bridge) noticeAway(want *csivol.Volume, err error) {
	if want == nil || flex.CodeOf(coded(err)) != flex.CodeUnavailable {
		return
	}
	b.notify(&volstate.Record{Name: want.Name}, want.Pod, "CSIDriverAway", "the CSI driver %s cannot be reached on node %s: %s", want.Driver, b.NodeName, err)
}

// report says which mounts do not work, or only do not answer.
func (x *execution) report() {
	_, targets := lifecycle.Ailments(x.v.record, &x.o)
	for dir, why := range targets {
		t := x.v.record.Targets[dir]
		log := x.v.log.With("dir", dir, "pod", lifecycle.PodName(t, dir), "why", why)
		if x.o.Facts[lifecycle.Fact{What: lifecycle.TheDir, Dir: dir}].Mount == lifecycle.Silent {
			log.Warn("a mount does not answer")
			x.b.notify(x.v.record, t.Pod, "VolumeSilent", "what is mounted for the volume does not answer: %s; it is left as it is", why)
			continue
		}
		log.Warn("a mount is dead")
		x.b.notify(x.v.record, t.Pod, "VolumeCorrupted", "what is mounted for the volume does not work any more: %s; if it is not mounted again soon, delete the pod", why)
	}
}
