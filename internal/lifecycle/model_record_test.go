package lifecycle

import (
	"slices"
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
)

// A rec is a volstate.Record in a few bytes, so that states of the world can be
// compared. The planner gets the real one: see record and pack.
type rec struct {
	there                                    bool // false: there is no record
	described                                bool // what the volume is was filled in
	pv                                       uint8
	attach, attachment, stage, expand, owner uint8
	object, foreign, nodeID                  bool
	staging, stageMounted, stageDead, device bool
	age                                      uint8 // of Changed
	size                                     uint8
	targets                                  [podCount]tgt
}

// A tgt is a volstate.Target.
type tgt struct {
	there, claimed, bound, dead, missing bool
	publish                              uint8
	age                                  uint8 // of Since
}

// The ages: how long ago something was written down.
const (
	fresh  uint8 = iota
	waited       // longer than a pod may take to have the volume as a CSI one
	stale        // longer than the grace period
)

const (
	grace      = 5 * time.Minute
	deadText   = "transport endpoint is not connected"
	stagingDir = "/k/plugins/kubernetes.io/csi/d/h/globalmount"
	ownDir     = "/k/plugins/kubernetes.io/csi/flex2csi/h"
	deviceDir  = "/k/plugins/kubernetes.io/flexvolume/v/d/mounts/a"
)

// now is when everything happens that the model does.
func now() time.Time { return time.Unix(1_000_000, 0).UTC() }

func timeOf(age uint8) time.Time {
	switch age {
	case waited:
		return now().Add(-grace / 5)
	case stale:
		return now().Add(-grace)
	}
	return now()
}

func ageOf(t time.Time) uint8 {
	switch since := now().Sub(t); {
	case since >= grace:
		return stale
	case since >= grace/5:
		return waited
	}
	return fresh
}

func phases() []volstate.Phase {
	return []volstate.Phase{volstate.None, volstate.Doing, volstate.Done, volstate.Undoing}
}

func attachers() []string { return []string{"", byNode, byControlPlane} }

func owners() []volstate.Owner {
	return []volstate.Owner{volstate.Ours, volstate.Unclear, volstate.Kubelet}
}

func number[T comparable](all []T, v T) uint8 { return uint8(slices.Index(all, v)) }

// volumeOf is what the options of a call for a pod make of the volume.
func (c *config) volumeOf(pod int) *csivol.Volume {
	v := &csivol.Volume{
		FlexDriver: "v/d", Driver: "d", Handle: "h", Name: "a", FSType: "ext4",
		AccessMode: csivol.ReadWriteOnce, AccessModes: []csivol.AccessMode{csivol.ReadWriteOnce},
		Pod: csivol.Pod{Namespace: "n", Name: podName(pod), UID: podName(pod)}, ReadOnly: pod == 1,
	}
	if pod == 0 {
		group := int64(7)
		v.FSGroup = &group
	}
	if pod == 1 && c.twoVolumes {
		v.Name, v.FSType = "b", "xfs"
	}
	return v
}

// record returns the real record.
func (c *config) record(p rec) *volstate.Record {
	r := &volstate.Record{Driver: "d", Handle: "h", Changed: timeOf(p.age), Targets: map[string]*volstate.Target{}}
	if p.described {
		fill(r, c.volumeOf(int(p.pv)))
	}
	r.Attach, r.Attachment, r.Unmanaged = phases()[p.attach], attachers()[p.attachment], p.foreign
	r.Stage, r.Expand, r.Owner = phases()[p.stage], phases()[p.expand], owners()[p.owner]
	r.StageMounted, r.ExpandSize = p.stageMounted, int64(p.size)
	for field, is := range map[*string]bool{&r.Object: p.object, &r.NodeID: p.nodeID, &r.StageDead: p.stageDead, &r.Device: p.device, &r.StagingPath: p.staging} {
		if is {
			*field = c.text(r, field)
		}
	}
	for i, t := range p.targets {
		if t.there {
			r.Targets[podDir(c, i)] = c.realTarget(i, t)
		}
	}
	return r
}

func (c *config) text(r *volstate.Record, field *string) string {
	switch field {
	case &r.Object:
		return "csi-0"
	case &r.NodeID:
		return "node"
	case &r.StageDead:
		return deadText
	case &r.Device:
		return deviceDir
	}
	return c.stagingPath()
}

func (c *config) stagingPath() string {
	if c.ownStage {
		return ownDir
	}
	return stagingDir
}

func (c *config) realTarget(pod int, t tgt) *volstate.Target {
	real := &volstate.Target{Publish: phases()[t.publish], Bound: t.bound, Since: timeOf(t.age), TargetPath: c.private(pod)}
	if t.claimed {
		v := c.volumeOf(pod)
		real.Pod, real.ReadOnly, real.FSGroup = v.Pod, v.ReadOnly, v.FSGroup
	}
	if t.dead {
		real.Dead = deadText
	}
	if t.missing {
		real.Dead = missingMount
	}
	return real
}

// pack is the reverse of record.
func (c *config) pack(r *volstate.Record) rec {
	p := rec{
		there: !r.Idle(), described: r.Name != "", attach: number(phases(), r.Attach), attachment: number(attachers(), r.Attachment),
		stage: number(phases(), r.Stage), expand: number(phases(), r.Expand), owner: number(owners(), r.Owner),
		object: r.Object != "", foreign: r.Unmanaged, nodeID: r.NodeID != "", staging: r.StagingPath != "",
		stageMounted: r.StageMounted, stageDead: r.StageDead != "", device: r.Device != "", age: ageOf(r.Changed), size: uint8(r.ExpandSize),
	}
	if r.Name == "b" {
		p.pv = 1
	}
	for i := range p.targets {
		if t := r.Targets[podDir(c, i)]; t != nil {
			p.targets[i] = tgt{
				there: true, claimed: t.Pod.UID != "", bound: t.Bound, publish: number(phases(), t.Publish),
				dead: t.Dead == deadText, missing: t.Dead == missingMount, age: ageOf(t.Since),
			}
		}
	}
	return p
}

// idle reports whether nothing is held, so that there is no record.
func (p *rec) idle() bool {
	return p.attach == 0 && p.stage == 0 && !p.device && !p.targets[0].there && !p.targets[1].there
}

// same compares without the time of writing.
func (p rec) same(o rec) bool {
	p.age, o.age = 0, 0
	return p == o
}
