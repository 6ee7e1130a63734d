package lifecycle

import (
	"slices"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
)

// The daemon: what internal/bridge does around the planner. It observes, asks, writes
// the intent, does the step, writes the outcome.

// begin starts an operation.
func (m *model) begin(w *world, i int, g Goal, place uint8, awaited bool, e *event) {
	r := w.nodes[i].saved
	if g == UnmountDevice {
		var known bool
		if r, known = m.lostDevice(w, &w.nodes[i]); !known {
			m.answer(w, i, g, place, false)
			return
		}
	}
	m.beginWith(w, i, r, op{goal: number(goals(), g), dir: place, awaited: awaited}, e)
}

func (m *model) beginWith(w *world, i int, r rec, o op, e *event) {
	n := &w.nodes[i]
	n.mem, n.op = r, o
	m.advance(w, i, e)
}

// advance goes on to the next step that does something, or to the end.
func (m *model) advance(w *world, i int, e *event) {
	n := &w.nodes[i]
	d := m.next(snapshot{n.mem, n.op, m.see(w, i)})
	n.mem, n.op = d.rec, d.op
	e.circles = d.circles || n.op.endless
	e.decided, e.decidedNode = m.kinds[d.op.step.kind], i
	kept := !d.durable || m.save(n)
	if !kept && (m.kinds[d.op.step.kind] != Unbind || d.op.step.keep || m.weak.leavesBind) { // the step is not taken
		d = decision{ended: true}
		e.decided = ""
	}
	if d.ended {
		m.finish(w, i, d, e)
	}
}

// finish ends an operation and answers its caller.
func (m *model) finish(w *world, i int, d decision, e *event) {
	n := &w.nodes[i]
	o := n.op
	e.undoFailed = slices.ContainsFunc(o.failures[:o.failed], func(f failing) bool {
		return m.kinds[f.kind] == Unbind || m.kinds[f.kind] == NodeUnpublish
	})
	d.ok = m.keepOutcome(n, goals()[o.goal], d.ok) && d.ok
	n.op, n.mem = op{}, rec{}
	e.ended, e.goal, e.place, e.ok, e.rule, e.awaited = true, goals()[o.goal], o.dir, d.ok, d.rule, o.awaited
	if o.awaited {
		m.answer(w, i, goals()[o.goal], o.dir, d.ok)
	}
}

// daemon adds what the daemon of a node may do next.
func (m *model) daemon(g *moves, i int) {
	n := &g.from.nodes[i]
	switch {
	case n.down:
		g.add(progress, label{node: i, text: "the daemon starts"}, func(w *world, e *event) {
			w.nodes[i].down = false
			m.restore(&w.nodes[i])
		})
		m.waits(g, i)
		if g.from.left.spoiled > 0 && n.before.there {
			g.add(fault, label{node: i, text: "the record is spoiled, and the one before it is there"}, func(w *world, _ *event) {
				n := &w.nodes[i]
				w.left.spoiled--
				n.disk, n.before, n.oldRecord = n.before, rec{}, true
				n.saved = n.disk
			})
		}
		if g.from.left.lost > 0 && (n.disk.there || n.before.there) {
			g.add(fault, label{node: i, text: "the records are lost"}, func(w *world, _ *event) {
				n := &w.nodes[i]
				w.left.lost--
				n.disk, n.before, n.saved, n.rebooted, n.oldRecord = rec{}, rec{}, rec{}, false, false
			})
		}
		return
	case n.call.goal != 0:
		g.add(progress, label{node: i, pod: podOf(n.call.place), text: "flexdriver repeats " + string(goals()[n.call.goal])}, func(w *world, e *event) {
			c := w.nodes[i].call
			w.nodes[i].call = call{}
			m.begin(w, i, goals()[c.goal], c.place, true, e)
		})
	case n.op.goal != 0:
		m.takeStep(g, i)
	default:
		m.reconcile(g, i)
	}
	m.fills(g, i)
	if g.from.left.crash > 0 && !m.undoesUnseen(n) {
		g.add(fault, label{node: i, text: "the daemon dies"}, func(w *world, e *event) {
			w.left.crash--
			m.die(&w.nodes[i])
		})
	}
}

// undoesUnseen reports whether a mount is to be unbound at once since its caller has left, or
// without a record of that. That the daemon dies then, or cannot unmount, is outside, as in waits.
func (m *model) undoesUnseen(n *node) bool {
	k := m.kinds[n.op.step.kind]
	return goals()[n.op.goal] == Mount && (k == Bind || k == Unbind) && (!n.op.awaited || n.full != room)
}

// reconcile adds what the reconciler does, if it does anything.
func (m *model) reconcile(g *moves, i int) {
	n := &g.from.nodes[i]
	for p := range m.c.pods {
		if n.stones[p] {
			g.add(progress, label{node: i, pod: p + 1, text: "the daemon completes the pending unmount"}, func(w *world, e *event) {
				m.begin(w, i, CompleteUnmount, uint8(p), false, e)
			})
		}
	}
	if n.saved.there {
		g.addChanged(progress, label{node: i, text: "the daemon reconciles"}, func(w *world, e *event) {
			m.begin(w, i, Reconcile, noPlace, false, e)
		})
	}
	if m.c.route == ByVolumeAttachment && !g.from.away && n.va.there && n.va.ours && !n.saved.object && !m.shows(&g.from, i) {
		g.add(progress, label{node: i, text: "the daemon finds an attachment that no record knows"}, func(w *world, e *event) {
			r := m.c.record(w.nodes[i].saved)
			Found(r, &csivol.Attachment{FlexDriver: "v/d", Name: "a"}, "csi-0")
			m.beginWith(w, i, m.c.pack(r), op{goal: number(goals(), Reconcile), dir: noPlace}, e)
		})
	}
}

// shows reports whether a node shows anything of the volume (bridge/reconcile.go, sweep).
func (m *model) shows(w *world, i int) bool {
	n := &w.nodes[i]
	for p := range m.c.pods {
		if n.dirs[p] || n.published[p] != nothing || n.plugin.data[p] {
			return true
		}
	}
	return n.staged != nothing || n.plugin.staged
}

// die: the record stays as it was saved last. flexdriver waits for the next daemon,
// and asks it for the same (internal/wire, Call).
func (m *model) die(n *node) {
	o := n.op
	n.op, n.mem, n.down = op{}, rec{}, true
	n.saved, n.lost = n.disk, [podCount]bool{}
	if o.goal != 0 && o.awaited {
		n.call = call{o.goal, o.dir}
	}
}

// waits: flexdriver does not wait for ever. That it gives up just between a bind and
// the answer is outside of the model: the kubelet has forgotten what it can see then,
// until it is restarted.
func (m *model) waits(g *moves, i int) {
	n := &g.from.nodes[i]
	c := n.call
	if c.goal == 0 || g.from.left.leave == 0 || goals()[c.goal] == Unmount || (c.place < podCount && m.shownTo(n, int(c.place)) != nothing) {
		return
	}
	g.add(fault, label{node: i, pod: podOf(c.place), text: "flexdriver waits no longer for a daemon"}, func(w *world, e *event) {
		w.left.leave--
		w.nodes[i].call = call{}
		m.answer(w, i, goals()[c.goal], c.place, false)
	})
}

// restore takes up the record, as bridge/restore.go does.
func (m *model) restore(n *node) {
	if n.saved.there {
		r := m.c.record(n.saved)
		Reset(r, now())
		if n.oldRecord && !m.weak.trustsOldRecord {
			Doubt(r, m.stagesAt(), m.shownTargets(n), m.isMounted(n))
		}
		switch {
		case n.rebooted:
			Rebooted(r, now())
		case !m.weak.recognizesNothing:
			Recognize(r, m.isMounted(n))
		}
		n.saved = m.c.pack(r)
	}
	for p := range podCount {
		n.lost[p] = !m.c.direct && !n.saved.targets[p].there && (n.published[p] != nothing || n.guards[p])
	}
}

func (m *model) stagesAt() string {
	if m.c.stage {
		return m.c.stagingPath()
	}
	return ""
}

func (m *model) isMounted(n *node) func(string) bool {
	return func(dir string) bool {
		p := m.placeOf(dir)
		return p < podCount && m.shownTo(n, int(p)) != nothing
	}
}

// shownTargets are those that the node shows, by what is there.
func (m *model) shownTargets(n *node) map[string]*volstate.Target {
	shown := map[string]*volstate.Target{}
	for p := range podCount {
		if n.published[p] != nothing {
			shown[podDir(m.c, p)] = &volstate.Target{Publish: volstate.Doing, Since: now(), TargetPath: m.c.private(p)}
		}
	}
	return shown
}
