package lifecycle

import (
	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/csivol"
)

// A seen is all that a daemon sees, in a few bytes: see facts.
type seen struct {
	driverAway, pluginPods, pluginStaged, pluginMounted bool
	stage, device                                       mnt
	dirs, targets                                       [podCount]mnt
	there                                               [podCount]bool
	age                                                 uint8 // of vol_data.json
	pods                                                [podCount]podPhase
	ran                                                 [podCount]bool
	pvStates                                            [podCount]observedPV
	deviceNext                                          bool
	stones, same, turn, lostTargets                     [podCount]bool
	lostStage                                           bool // no record says what is staged
	renamed                                             bool
	other, lost, secrets, noClaim                       bool
	unknown                                             bool // what a call would say
	grown                                               bool // the filesystem has the new size
}

// An observedPV is a csivol.PVState.
type observedPV struct{ replaced, gone, lives, next bool }

// see is what the daemon of a node sees of the world.
func (m *model) see(w *world, i int) seen {
	n := &w.nodes[i]
	s := seen{
		driverAway: n.driverAway, pluginStaged: n.plugin.file, pluginMounted: n.plugin.file && (n.plugin.staged || (!m.c.ownStage && n.staged != nothing)), age: n.plugin.age, stage: n.staged, stones: n.stones, there: n.dirs,
		other: n.other, grown: w.fsGrown, secrets: w.secret != n.tried,
		lost:    !w.away && (!n.va.there || n.va.deleting || !n.va.attached),
		noClaim: true, lostTargets: n.lost, renamed: n.renamed, lostStage: !n.saved.there && n.staged != nothing && !n.plugin.file,
	}
	if n.marker {
		s.device = alive
	}
	for p := range m.c.pods {
		if m.c.nodeOf(p) != i {
			continue
		}
		s.pluginPods = s.pluginPods || n.plugin.data[p]
		s.dirs[p], s.targets[p], s.pods[p] = n.binds[p], n.published[p], w.pods[p].phase
		s.pvStates[p] = m.observedPV(w, i, p)
		s.ran[p] = w.pods[p].ran
		s.same[p] = n.plugin.pods[p] == alive && n.published[p] == alive
		s.noClaim = s.noClaim && !w.pods[p].alive()
	}
	s.deviceNext = m.observedPV(w, i, podCount).next
	return s
}

// observedPV is what the API server says of the PersistentVolume and the pods of a node.
// If that is not known, it is as if nothing had changed.
func (m *model) observedPV(w *world, i, pod int) (f observedPV) {
	if w.away || w.pv == pvFlex {
		return f
	}
	f.replaced, f.gone = true, w.pv == pvGone
	for p := range m.c.pods {
		switch lives := m.c.nodeOf(p) == i && w.pods[p].alive(); {
		case p == pod:
			f.lives = lives
		case lives && w.pv == pvCSI:
			f.next = true
		}
	}
	return f
}

func (f observedPV) real() csivol.PVState {
	r := csivol.PVState{Gone: f.gone}
	if f.replaced {
		r.Replaced = "is another one by now"
	}
	if f.lives {
		r.Pod = "n/a"
	}
	if f.next {
		r.Next = "n/b"
	}
	return r
}

// facts are those that the planner asks for.
func (m *model) facts(s seen) map[Fact]Seen {
	f := map[Fact]Seen{
		{What: TheDriver}:                         m.theDriver(s),
		{What: ThePlugin}:                         {Plugin: PluginState{Pods: s.pluginPods, Staged: s.pluginStaged, Mounted: s.pluginMounted, Since: timeOf(s.age)}},
		{What: TheStage}:                          at(s.stage, true),
		{What: TheDevice}:                         at(s.device, true),
		{What: TheDir, Dir: deviceDir}:            at(s.device, true),
		{What: TheTarget, Dir: deviceDir}:         at(s.device, true),
		{What: ThePVState, Dir: deviceDir}:        {PVState: observedPV{next: s.deviceNext}.real()},
		{What: ThePVState}:                        {},
		{What: TheAttachment}:                     {Yes: s.lost},
		{What: TheSecrets}:                        {Yes: s.secrets},
		{What: TheCall}:                           m.theCall(s),
		{What: TheClaim}:                          {},
		{What: TheOther, Dir: deviceDir}:          {},
		{What: ThePendingUnmount, Dir: deviceDir}: {},
		{What: TheCall, Dir: deviceDir}:           m.theCall(s),
		{What: ThePendingUnmount}:                 {},
	}
	if s.noClaim {
		f[Fact{What: TheClaim}] = Seen{Err: errAway}
	}
	for p := range podCount {
		m.podFacts(f, s, p)
	}
	return f
}

func (m *model) podFacts(f map[Fact]Seen, s seen, p int) {
	dir := podDir(m.c, p)
	f[Fact{TheDir, dir}] = at(s.dirs[p], s.there[p])
	f[Fact{TheTarget, dir}] = at(s.targets[p], true)
	if m.c.direct {
		f[Fact{TheDir, dir}] = at(s.targets[p], s.there[p])
	}
	f[Fact{ThePod, dir}] = Seen{Pod: PodState{
		Known: true, Gone: s.pods[p] == podGone, Volumes: s.pods[p] != podGone && s.pods[p] != podNone, NoContainer: !s.ran[p],
	}}
	f[Fact{ThePVState, dir}] = Seen{PVState: s.pvStates[p].real(), SameFilesystem: s.same[p]}
	f[Fact{ThePendingUnmount, dir}] = Seen{Yes: s.stones[p]}
	f[Fact{TheCall, dir}] = m.theCall(s)
	f[Fact{TheTurn, dir}] = Seen{Yes: s.turn[p]}
	f[Fact{TheSize, dir}] = Seen{Filesystem: 1}
	if s.grown {
		f[Fact{TheSize, dir}] = Seen{Filesystem: 2}
	}
	f[Fact{TheOther, dir}] = Seen{}
	if p == 1 && s.other {
		f[Fact{TheOther, dir}] = Seen{Err: errAway}
	}
}

func at(what mnt, there bool) Seen {
	switch {
	case !there:
		return Seen{Mount: NoDir}
	case what == nothing:
		return Seen{Mount: NotMounted}
	case what == dead:
		return Seen{Mount: Dead, Err: errDead}
	case what == silent:
		return Seen{Mount: Silent, Err: errDead}
	}
	return Seen{Mount: Alive}
}

func (m *model) theCall(s seen) Seen {
	if s.unknown {
		return Seen{Err: errAway}
	}
	return Seen{}
}

func (m *model) theDriver(s seen) Seen {
	if s.driverAway {
		return Seen{Err: errAway}
	}
	c := m.c
	device := ""
	if c.device {
		device = deviceDir
	}
	return Seen{Driver: &DriverFacts{
		Device: device,
		Features: csivol.Features{
			Stage: c.stage, Attach: c.route == ByControllerService,
			ControllerExpand: c.expand.controller, NodeExpand: c.expand.node,
		},
		Route: c.route, CanCluster: c.route == ByVolumeAttachment, FSGroup: storagev1.FileFSGroupPolicy,
		RepairInUse: c.repairs,
	}}
}
