package bridgestatus

import (
	"cmp"
	"slices"
	"time"

	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// Of returns the status of a record.
func Of(r *volstate.Record) VolumeStatus {
	v := VolumeStatus{
		PersistentVolume: r.Name, FlexDriver: r.FlexDriver, CSIDriver: r.Driver, VolumeHandle: r.Handle,
		Phase: PhaseOf(r), Changed: When(r.Changed),
		FSType: r.FSType, AccessMode: string(r.AccessMode), Inline: r.Inline,
		DeviceMountPath: r.Device, TakenOver: r.Owner != volstate.Ours, Recovered: r.Recovered, Incomplete: r.Incomplete(), LastError: Clean(r.LastError),
	}
	if r.Attach != volstate.None {
		v.Attachment = &Attachment{Phase: phase(r.Attach, Attaching, Attached, Detaching), By: r.Attachment, NodeID: r.NodeID, Object: r.Object, Unmanaged: r.Unmanaged}
	}
	if r.Stage != volstate.None {
		v.Staging = &stageStatus{Phase: phase(r.Stage, Staging, Staged, Unstaging), Path: r.StagingPath, Corrupted: Clean(r.StageDead)}
	}
	if r.Expand != volstate.None {
		v.Expansion = &Expansion{Phase: phase(r.Expand, expanding, expanded, ""), Bytes: r.ExpandSize}
	}
	if r.Uncertain() {
		v.UncertainSince = When(r.Changed)
	}
	for dir, t := range r.Targets {
		v.Targets = append(v.Targets, target(dir, t))
	}
	slices.SortFunc(v.Targets, func(a, b targetStatus) int { return cmp.Compare(a.Dir, b.Dir) })
	return v
}

func target(dir string, t *volstate.Target) targetStatus {
	to := targetStatus{
		Dir: dir, TargetPath: t.TargetPath, Phase: targetPhase(t), Since: When(t.Since),
		Pod:      PodRef{Namespace: t.Pod.Namespace, Name: t.Pod.Name, UID: t.Pod.UID},
		ReadOnly: t.ReadOnly, FSGroup: t.FSGroup, LastError: Clean(t.LastError), Corrupted: Clean(t.Dead),
	}
	if place, err := kubeletdir.Parse(dir); err == nil && to.Pod.UID == "" {
		to.Pod.UID = place.PodUID
	}
	return to
}

// PhaseOf returns the phase of a volume as a whole.
func PhaseOf(r *volstate.Record) Phase {
	if p := podsPhase(r); p != "" {
		return p
	}
	switch {
	case r.Stage != volstate.None:
		return phase(r.Stage, Staging, Staged, Unstaging)
	case r.Attach != volstate.None:
		return phase(r.Attach, Attaching, Attached, Detaching)
	}
	return Idle
}

// podsPhase returns the phase of the pods. A set-up or tear-down under way comes before
// a pod that has the volume; a pod that waits for the volume comes last.
func podsPhase(r *volstate.Record) Phase {
	found := map[Phase]bool{}
	for _, t := range r.Targets {
		found[targetPhase(t)] = true
	}
	for _, p := range []Phase{Unpublishing, Publishing, Published} {
		if found[p] {
			return p
		}
	}
	if found[Claimed] && r.Stage == volstate.None && r.Attach == volstate.None {
		return Claimed
	}
	return ""
}

// targetPhase returns the phase of a target. It is published when it is bound.
func targetPhase(t *volstate.Target) Phase {
	if t.Publish == volstate.None {
		return Claimed
	}
	if t.Publish == volstate.Done && !t.Bound {
		return Publishing
	}
	return phase(t.Publish, Publishing, Published, Unpublishing)
}

func phase(p volstate.Phase, doing, done, undoing Phase) Phase {
	switch p {
	case volstate.Doing:
		return doing
	case volstate.Undoing:
		return undoing
	}
	return done
}

// corrupted counts the corrupted mounts of a volume.
func (v *VolumeStatus) corrupted() (count int) {
	if v.Staging != nil && v.Staging.Corrupted != "" {
		count++
	}
	for i := range v.Targets {
		if v.Targets[i].Corrupted != "" {
			count++
		}
	}
	return count
}

// When returns nil for the zero time.
func When(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// Clean removes what looks secret.
func Clean(text string) string {
	var byKey *flex.Redactor
	return byKey.Redact(text)
}
