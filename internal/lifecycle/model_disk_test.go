package lifecycle

import "github.com/flex2csi/flex2csi/internal/volstate"

// The disk with the record: a write may fail, and what was written may be lost.

// save writes the record down, and shows it.
func (m *model) save(n *node) bool {
	if n.full != room {
		if n.full == once {
			n.full = room
		}
		return false
	}
	n.mem.age = fresh
	n.mem.there = !n.mem.idle()
	if !n.mem.there {
		n.mem = rec{}
	}
	switch {
	case !n.mem.there:
		n.before = rec{} // both files are removed
	case m.bounds.spoiled > 0:
		n.before = n.disk
	}
	n.disk = n.mem
	n.rebooted, n.oldRecord = false, false
	m.show(n)
	return true
}

// show shows the record as it is in memory (bridge/registry.go, show).
func (m *model) show(n *node) {
	n.saved = n.mem
	for p := range podCount {
		n.lost[p] = n.lost[p] && !n.saved.targets[p].there
	}
}

// keepOutcome writes down what an operation has come to (bridge/volume.go, run), and
// reports whether it could.
func (m *model) keepOutcome(n *node, g Goal, ok bool) bool {
	if n.mem.idle() {
		n.mem = rec{}
	}
	switch t := n.op.dir; {
	case n.mem.same(n.saved):
		return true
	case ok && g == Mount && n.mem.targets[t].there && !m.c.direct && !m.weak.writesAfterBind:
		m.show(n) // after the bind nothing is written
		return true
	case m.save(n):
		return true
	}
	if m.weak.believesUnwritten {
		m.show(n)
	}
	r := TakeBack(m.c.record(n.mem), m.c.record(n.saved))
	Recognize(r, m.isMounted(n))
	n.saved = m.c.pack(r)
	return false
}

// fills adds that writes fail.
func (m *model) fills(g *moves, i int) {
	n := &g.from.nodes[i]
	set := func(kind moveKind, text string, to fullness) {
		g.add(kind, label{node: i, text: text}, func(w *world, _ *event) {
			w.nodes[i].full = to
			if kind == fault {
				w.left.full--
			}
		})
	}
	if g.from.left.full > 0 && n.full == room {
		set(fault, "the next write of the record fails", once)
		set(fault, "the disk is full", full)
	}
	if n.full == full {
		set(progress, "the disk has room again", room)
	}
}

// lostDevice is what unmountdevice knows of a volume that no record has (bridge/lost.go).
func (m *model) lostDevice(w *world, n *node) (r rec, known bool) {
	if n.saved.there || m.weak.forgetsLostDevice || ((n.staged == nothing || n.plugin.file) && n.lost == [podCount]bool{}) {
		return n.saved, true
	}
	found := m.c.record(n.saved)
	Recall(found, m.c.volumeOf(0), deviceDir)
	Doubt(found, m.stagesAt(), m.shownTargets(n), m.isMounted(n))
	return m.c.pack(found), !w.away
}

// adopt takes up what is left of a lost record (bridge/lost.go).
func (m *model) adopt(r *volstate.Record, s seen, dir string) {
	staged, targets := "", map[string]*volstate.Target{}
	if s.lostStage && !m.weak.leavesLostStage {
		staged = m.c.stagingPath()
	}
	for p, lost := range s.lostTargets {
		if lost && m.c.volumeName(p) == r.Name && (!m.weak.leavesUnseenTargets || s.there[p]) && (!m.weak.leavesOwnTarget || podDir(m.c, p) != dir) {
			targets[podDir(m.c, p)] = &volstate.Target{Publish: volstate.Doing, Since: now(), TargetPath: m.c.private(p)}
		}
	}
	TakeUp(r, staged, targets)
	Recognize(r, func(dir string) bool { return s.dirs[m.placeOf(dir)] != nothing })
}
