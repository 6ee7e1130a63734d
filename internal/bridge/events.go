package bridge

import (
	"fmt"
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
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

// notify tells of a volume, at a pod if its name is known. A pod may have several volumes, so
// the message names it.
func (b *Bridge) notify(r *volstate.Record, pod csivol.Pod, reason, format string, args ...any) {
	if b.Notify == nil {
		return
	}
	b.Notify(csivol.Event{
		Pod: pod, PersistentVolume: r.Name, Volume: r.Key(),
		Reason: reason, Message: named(r.Name, r.Inline) + ": " + fmt.Sprintf(format, args...),
	})
}

// named names a volume as its pod's owner knows it.
func named(name string, inline bool) string {
	if inline {
		return "volume " + name
	}
	return "PersistentVolume " + name
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

// noticeAway tells of a CSI driver that cannot be reached on this node.
func (b *Bridge) noticeAway(want *csivol.Volume, err error) {
	if want == nil || flex.CodeOf(coded(err)) != flex.CodeUnavailable {
		return
	}
	b.notify(&volstate.Record{Name: want.Name, Inline: want.Inline, Driver: want.Driver, Handle: want.Handle}, want.Pod, "CSIDriverUnavailable", "the CSI driver %s cannot be reached on node %s: %s", want.Driver, b.NodeName, err)
}
