package faults

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/flex2csi/flex2csi/test/csidriver/calls"
)

// An order is what the CSI specification wants of the caller for one driver,
// checked against the driver's log (spec.md, "RPC Interactions" and
// "Concurrency").
type order struct {
	staging, attaching bool
	// daemons are the times at which the caller died, and forgot that it was
	// waiting; reboots those at which nothing was mounted any more.
	daemons, reboots []time.Time
	lost             []lostTarget
}

// A lostTarget is a target path that the caller cannot know of any more: only the version
// of a record that was spoilt had it, and nothing is mounted there. The kubelet has
// forgotten a mount that failed, too, and has removed the directory.
type lostTarget struct {
	at           time.Time
	volume, path string
}

func (w *world) order() *order {
	return &order{staging: !w.NoStage, attaching: w.Attach, daemons: w.history.times(daemonGone), reboots: w.history.times(rebooted), lost: w.history.lostTargets()}
}

// standing is a volume as the caller may know it.
type standing struct {
	attached, staged certainty
	unattached       bool            // before the ControllerPublishVolume that is under way
	published        map[string]bool // and not certainly unpublished
	open             []calls.Call
}

// certainty is what the caller knows of one step.
type certainty int

const (
	no certainty = iota
	maybe
	yes
)

func (c certainty) String() string { return [...]string{"no", "maybe", "yes"}[c] }

// moment is the begin or the end of a call, a reboot, or the loss of a target.
type moment struct {
	at    time.Time
	call  calls.Call
	kind  momentKind
	index int
}

type momentKind int

const (
	begin momentKind = iota
	finish
	reboot
	loss
)

// check returns what was not in order.
func (o *order) check(list []calls.Call) []string {
	var moments []moment
	for i, c := range list {
		moments = append(moments, moment{at: c.Start, call: c, kind: begin, index: i})
		if c.Ended() {
			moments = append(moments, moment{at: c.End, call: c, kind: finish, index: i})
		}
	}
	for _, at := range o.reboots {
		moments = append(moments, moment{at: at, kind: reboot})
	}
	for _, f := range o.lost {
		moments = append(moments, moment{at: f.at, kind: loss, call: calls.Call{Volume: f.volume, Path: f.path}})
	}
	slices.SortStableFunc(moments, func(a, b moment) int { return a.at.Compare(b.at) })
	volumes := map[string]*standing{}
	var faults []string
	for _, m := range moments {
		if m.kind == reboot {
			for _, s := range volumes {
				s.staged, s.published, s.open = no, map[string]bool{}, nil
			}
			continue
		}
		s := volumes[m.call.Volume]
		if s == nil {
			s = &standing{published: map[string]bool{}}
			volumes[m.call.Volume] = s
		}
		switch m.kind {
		case finish:
			s.finish(m.call)
			continue
		case loss:
			delete(s.published, m.call.Path)
			continue
		}
		if why := o.begin(s, m.call); why != "" {
			faults = append(faults, fmt.Sprintf("%s %s of volume %s (%s): %s", m.at.UTC().Format("15:04:05.000"), m.call.Method, m.call.Volume, m.call.Path, why))
		}
	}
	for id, s := range volumes {
		if s.attached != no || s.staged != no || len(s.published) > 0 {
			faults = append(faults, fmt.Sprintf("volume %s was never taken down: attached %v, staged %v, published %v", id, s.attached, s.staged, slices.Collect(maps.Keys(s.published))))
		}
	}
	return faults
}

// begin checks what has to be before a call. From here on its step is uncertain.
func (o *order) begin(s *standing, c calls.Call) (why string) {
	if !changes(c.Method) {
		return ""
	}
	for _, other := range s.open {
		if !o.givenUp(other, c.Start) {
			why = "while " + other.Method + " is under way"
		}
	}
	if c.Ended() { // or else the driver died on it
		s.open = append(s.open, c)
	}
	switch c.Method {
	case "ControllerPublishVolume":
		s.unattached = s.attached == no
		s.attached = maybe
	case "NodeStageVolume":
		if o.attaching && s.attached != yes {
			why = "before ControllerPublishVolume has succeeded"
		}
		s.staged = maybe
	case "NodePublishVolume":
		if o.staging && s.staged != yes {
			why = "before NodeStageVolume has succeeded"
		}
		s.published[c.Path] = true
	case "NodeUnstageVolume":
		for path := range s.published {
			why = "while it may be published at " + path
		}
		s.staged = maybe
	case "ControllerUnpublishVolume":
		if s.staged != no || len(s.published) > 0 {
			why = "while it may be staged or published"
		}
		s.attached = maybe
	}
	return why
}

// givenUp reports whether the caller of a call could have stopped waiting.
func (o *order) givenUp(c calls.Call, now time.Time) bool {
	return c.Left || slices.ContainsFunc(o.daemons, func(at time.Time) bool { return at.After(c.Start) && at.Before(now) })
}

// finish is the answer to a call.
func (s *standing) finish(c calls.Call) {
	s.open = slices.DeleteFunc(s.open, func(o calls.Call) bool { return o.Start.Equal(c.Start) && o.Method == c.Method })
	gone := c.Code == codes.OK.String() || c.Code == codes.NotFound.String() || c.Code == codes.Unimplemented.String()
	switch {
	case c.Method == "ControllerPublishVolume" && c.Code == codes.OK.String():
		s.attached = yes
	case c.Method == "ControllerPublishVolume" && c.Code == codes.FailedPrecondition.String() && s.unattached:
		s.attached = no // another node has it (spec.md, "ControllerPublishVolume Errors")
	case c.Method == "NodeStageVolume" && c.Code == codes.OK.String():
		s.staged = yes
	case c.Method == "NodeUnpublishVolume" && gone:
		delete(s.published, c.Path)
	case c.Method == "NodeUnstageVolume" && gone:
		s.staged = no
	case c.Method == "ControllerUnpublishVolume" && gone:
		s.attached = no
	}
}

// changes reports whether a call is one of those that come one at a time.
func changes(method string) bool {
	return strings.HasSuffix(method, "PublishVolume") || strings.HasSuffix(method, "UnpublishVolume") || strings.HasSuffix(method, "StageVolume") || strings.HasSuffix(method, "UnstageVolume") || strings.HasSuffix(method, "ExpandVolume")
}
