package lifecycle

import "fmt"

// From every state: if faults stop, what is wanted is so after a bounded number of
// steps. The world goes on in one way that is always the same, round by round: what
// is under way ends, the kubelet does what it wants, the control plane, the daemon,
// and then the grace period passes.

const (
	rounds      = 8
	roundLength = 400
	told        = 30 // lines of what goes on
	repeats     = 3  // of the same call within a round
)

// liveness looks at both promises. What is reached in the middle of an operation goes
// on to where none is, which is looked at, too; of these states one in sixteen is.
func (m *model) liveness(w world, id int32) *violation {
	if w.busy() && m.hash(w)%16 != 0 {
		return nil
	}
	for p := -1; p < m.c.pods; p++ {
		if !m.promised(&w, p) {
			continue
		}
		if lines := m.settle(m.prepare(w, p), p); lines != nil {
			inv := promise(p)
			return &violation{inv, append(append(m.story(id), "— no more faults —"), lines...)}
		}
	}
	return nil
}

// promised reports whether a promise holds. What was lost is taken up by the next mount, on that
// node; and the sweep may detach what a kubelet that attaches by itself takes for attached.
func (m *model) promised(w *world, p int) bool {
	lost := w.left.lost < m.bounds.lost
	if p < 0 {
		return !lost
	}
	return m.mayWant(w, p) && !(lost && (m.c.callouts || m.c.nodes > 1))
}

// mayWant reports whether a pod is to get the volume. One that runs and has what is
// dead has to be deleted.
func (m *model) mayWant(w *world, p int) bool {
	n := &w.nodes[m.c.nodeOf(p)]
	switch w.pods[p].phase {
	case podNone, podWanted:
		return true
	case podRunning:
		return m.shownTo(n, p) == alive || m.shownTo(n, p) == silent
	}
	return false
}

func promise(p int) invariant {
	if p < 0 {
		return invariant{name: "ends", sentence: "if faults stop and pods go, record, stage and attachment are gone after a bounded number of steps"}
	}
	return invariant{name: "mounts", sentence: "if faults stop and a pod wants the volume, mount succeeds"}
}

// prepare: all pods go but one.
func (m *model) prepare(w world, p int) world {
	w.left = budget{}
	for i := range w.nodes {
		w.nodes[i].full = room
	}
	if p < 0 && m.c.direct {
		// Only a kubelet that was restarted finds what it had forgotten in its directory.
		m.restartKubelet(&w, 0)
	}
	if w.pv == pvGone {
		w.pv = pvCSI
	}
	for i := range m.c.pods {
		switch phase := &w.pods[i].phase; {
		case i == p && *phase == podNone:
			*phase = podWanted
		case i == p:
		case *phase == podNone:
			*phase = podGone
		case *phase == podWanted || *phase == podRunning:
			*phase = podEnding
		}
	}
	return w
}

// settle returns nil if it ends well, and otherwise what happened.
func (m *model) settle(w world, p int) (lines []string) {
	ok := m.settled[p+1]
	var passed []uint64
	for range rounds {
		h := m.hash(w)
		if ok[h] || m.reached(&w, p) {
			for _, h := range append(passed, h) {
				ok[h] = true
			}
			return nil
		}
		passed = append(passed, h)
		w, lines = m.round(w, lines)
	}
	if len(lines) > told {
		lines = append(lines[:told:told], "… and so on")
	}
	return append(lines, m.rest(&w))
}

// reached reports whether what is wanted is so.
func (m *model) reached(w *world, p int) bool {
	if p >= 0 {
		n := &w.nodes[m.c.nodeOf(p)]
		if m.c.route != NoAttach && !n.attached {
			return false
		}
		return (n.kubelet.pods[p] == mounted && m.shownTo(n, p) == alive) || (n.plugin.pods[p] == alive && w.pv == pvCSI)
	}
	for i := range m.c.nodes {
		n := &w.nodes[i]
		// What the kubelet has forgotten (kubernetes/kubernetes#85476) stays, and stays
		// attached while it is mounted.
		kubelets := n.plugin.orphan && n.staged != nothing
		if n.saved.there || n.op.goal != 0 || n.plugin.staged || (!kubelets && (n.staged != nothing || n.attached || n.va.there)) {
			return false
		}
	}
	for p := range m.c.pods {
		if w.pods[p].phase != podGone {
			return false
		}
	}
	return true
}

// round does everything that can be done, and has the grace period pass.
func (m *model) round(w world, lines []string) (world, []string) {
	done := map[label]int{}
	var g moves
	m.settles = true
	defer func() { m.settles = false }()
	for range roundLength {
		mv := m.pick(m.moves(w, &g), done)
		if mv == nil {
			break
		}
		l := mv.label
		l.outcome = ""
		done[l]++
		lines = append(lines, m.line(mv.label))
		if mv.event.circles {
			lines = append(lines, "and the planner goes in circles")
		}
		w = mv.to
		w.left = budget{}
	}
	for _, mv := range m.moves(w, &g) {
		if mv.kind == hours {
			return mv.to, append(lines, m.line(mv.label))
		}
	}
	return w, lines
}

func (m *model) pick(list []move, done map[label]int) *move {
	for _, kind := range []moveKind{progress, patience} {
		for i := range list {
			l := list[i].label
			l.outcome = ""
			if list[i].kind == kind && (done[l] < repeats || l.rule != 0) {
				return &list[i]
			}
		}
	}
	return nil
}

// rest says what is left.
func (m *model) rest(w *world) string {
	s := "left:"
	for i := range m.c.nodes {
		n := &w.nodes[i]
		s += fmt.Sprintf(" node-%d: record %+v, staged %d, published %v, bound %v, attached %t, %+v, kubelet %+v, plugin %+v;", i+1, n.saved, n.staged, n.published, n.binds, n.attached, n.va, n.kubelet, n.plugin)
	}
	return s + fmt.Sprintf(" pods %+v", w.pods)
}

func (w *world) busy() bool { return w.nodes[0].op.goal != 0 || w.nodes[1].op.goal != 0 }
