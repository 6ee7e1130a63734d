package lifecycle

// The CSI driver and the mount table: what each step does to the world.

// takeStep adds the ways in which the step that is decided may end.
func (m *model) takeStep(g *moves, i int) {
	n := &g.from.nodes[i]
	k := m.kinds[n.op.step.kind]
	switch k {
	case AskAttachment, AwaitAttachment, DeleteAttachment:
		m.waitStep(g, i, k)
		return
	case Drop:
		m.dropStep(g, i)
		return
	}
	var failed *failing
	g.add(progress, m.stepLabel(i, n, ""), func(w *world, e *event) {
		var got StepResult
		got, failed = m.effect(w, i, e)
		m.conclude(&w.nodes[i], got, failed)
		m.advance(w, i, e)
	})
	if g.from.left.rpc > 0 && !m.undoesUnseen(n) {
		m.badEnds(g, i, k, failed == nil)
	}
	if g.from.left.crash > 0 && failed == nil && !m.undoesUnseen(n) {
		g.add(fault, m.stepLabel(i, n, ": done, and the daemon dies"), func(w *world, e *event) {
			m.effect(w, i, e)
			w.left.crash--
			m.die(&w.nodes[i])
		})
	}
}

func (m *model) stepLabel(i int, n *node, outcome string) label {
	return label{node: i, pod: podOf(n.op.step.place), text: string(m.kinds[n.op.step.kind]), rule: n.op.step.rule, outcome: outcome}
}

// badEnds adds the errors that a step may end with.
func (m *model) badEnds(g *moves, i int, k StepKind, can bool) {
	n := &g.from.nodes[i]
	end := func(outcome string, class Class, done bool) {
		g.add(fault, m.stepLabel(i, n, outcome), func(w *world, e *event) {
			w.left.rpc--
			if done {
				m.effect(w, i, e)
			} else {
				m.called(w, i, e)
			}
			m.conclude(&w.nodes[i], StepResult{}, &failing{class: number(classes(), class)})
			m.advance(w, i, e)
		})
	}
	if !rpc(k) {
		end(": failed", Local, false)
		return
	}
	end(": refused", Final, false)
	end(": uncertain, not done", Uncertain, false)
	if can {
		end(": uncertain, done", Uncertain, true)
	}
}

func rpc(k StepKind) bool {
	switch k {
	case ControllerPublish, ControllerUnpublish, NodeStage, NodeUnstage, NodePublish, NodeUnpublish, Republish, ControllerExpand, NodeExpand:
		return true
	}
	return false
}

// called notes that a step was taken, whatever comes of it.
func (m *model) called(w *world, i int, e *event) {
	n := &w.nodes[i]
	e.step, e.stepPlace, e.stepNode = m.kinds[n.op.step.kind], n.op.step.place, i
	if e.step == NodeStage {
		n.tried = w.secret
	}
	m.guard(n, e.step, e.stepPlace)
}

// effect does what the step is for.
func (m *model) effect(w *world, i int, e *event) (StepResult, *failing) {
	m.called(w, i, e)
	n := &w.nodes[i]
	p := n.op.step.place
	switch e.step {
	case ControllerPublish, ControllerUnpublish:
		return m.controller(w, i, e.step)
	case NodeStage:
		return m.nodeStage(w, n)
	case NodeUnstage:
		if n.staged == dead && m.c.clumsy {
			return StepResult{}, refusal(otherCode)
		}
		n.staged = nothing
	case NodePublish:
		return StepResult{}, m.nodePublish(n, p)
	case NodeUnpublish:
		if n.published[p] == dead && m.c.clumsy {
			return StepResult{}, refusal(otherCode)
		}
		n.published[p], n.group[p] = nothing, false
		n.unguard(int(p))
	case ControllerExpand:
		w.grown = true
		return StepResult{NodeExpansionRequired: m.c.expand.node}, nil
	case NodeExpand:
		w.fsGrown = w.fsGrown || w.grown || !m.c.expand.lies
	case RemoveVolData:
		n.plugin.file, n.plugin.age = false, fresh
	default:
		return StepResult{}, m.mounts(w, n, e.step, p)
	}
	return StepResult{}, nil
}

func refusal(code uint8) *failing { return &failing{class: number(classes(), Final), code: code} }

func unanswered() *failing { return &failing{class: number(classes(), Uncertain)} }

func local() *failing { return &failing{class: number(classes(), Local)} }

func (m *model) controller(w *world, i int, k StepKind) (StepResult, *failing) {
	n := &w.nodes[i]
	if k == ControllerUnpublish {
		n.attached = false
		return StepResult{}, nil
	}
	if !m.c.shared && m.c.nodes > 1 && w.nodes[1-i].attached {
		f := refusal(preconditionCode)
		if !n.op.before {
			f.class = number(classes(), NotBegun)
		}
		return StepResult{}, f
	}
	n.attached = true
	return StepResult{PublishContext: map[string]string{"device": "x"}}, nil
}

// nodeStage: what is staged stays as it was staged first.
func (m *model) nodeStage(w *world, n *node) (StepResult, *failing) {
	switch {
	case n.staged == silent:
		return StepResult{}, unanswered()
	case m.c.route != NoAttach && !n.attached, n.staged == dead:
		return StepResult{}, refusal(otherCode)
	case n.staged == nothing:
		n.staged, n.stagedAs, n.stagedWith = alive, n.mem.pv, w.secret
	}
	return StepResult{StageMounted: true}, nil
}

// nodePublish: without anything staged some drivers publish the bare directory, and say
// OK once more for that.
func (m *model) nodePublish(n *node, p uint8) *failing {
	switch {
	case n.published[p] == silent || n.staged == silent:
		return unanswered()
	case n.published[p] == dead || (m.c.stage && n.staged == dead):
		return refusal(otherCode)
	case !m.c.stage && m.c.route != NoAttach && !n.attached:
		return refusal(otherCode)
	case n.published[p] != nothing:
	case m.c.stage && n.staged == nothing:
		n.published[p] = bare
		if n.mem.stageMounted {
			return local() // bridge/steps.go looks that it was staged all the while
		}
	default:
		n.published[p] = alive
	}
	if m.c.direct {
		n.readOnly[p] = m.c.volumeOf(int(p)).ReadOnly
		n.dirs[p] = true
	}
	return nil
}

// mounts does what the daemon does by itself.
func (m *model) mounts(w *world, n *node, k StepKind, p uint8) *failing {
	switch k {
	case ApplyFSGroup:
		if n.published[p] != alive && n.published[p] != bare {
			return local()
		}
		n.group[p] = true
	case Bind:
		return m.bind(w, n, p)
	case Unbind:
		n.binds[p] = nothing
	case PlaceMarker:
		n.marker = true
	case RemoveMarker:
		n.marker = false
	case RemoveDead:
		if p == noPlace {
			n.staged = nothing
		} else {
			n.published[p] = nothing
		}
	case Tidy:
		if p < podCount {
			n.binds[p], n.published[p], n.stones[p], n.group[p] = nothing, nothing, false, false
			n.unguard(int(p))
			n.lost[p] = false
		}
	}
	return nil
}

// bind replaces what is there, and makes the directory.
func (m *model) bind(w *world, n *node, p uint8) *failing {
	if m.c.direct {
		return nil
	}
	if !w.pods[p].dirThere() || n.published[p] == nothing {
		return local()
	}
	n.dirs[p] = true
	n.binds[p], n.readOnly[p] = n.published[p], m.c.volumeOf(int(p)).ReadOnly
	return nil
}

// dropStep: the record is written before the pending unmount is removed.
func (m *model) dropStep(g *moves, i int) {
	n := &g.from.nodes[i]
	p := n.op.step.place
	g.add(progress, m.stepLabel(i, n, ""), func(w *world, e *event) {
		n := &w.nodes[i]
		m.called(w, i, e)
		m.conclude(n, StepResult{}, nil)
		if !m.save(n) {
			m.finish(w, i, decision{ended: true}, e)
			return
		}
		n.stones[p], n.lost[p] = false, false
		m.advance(w, i, e)
	})
	if g.from.left.crash > 0 && n.stones[p] {
		g.add(fault, m.stepLabel(i, n, ": written, and the daemon dies"), func(w *world, e *event) {
			n := &w.nodes[i]
			m.called(w, i, e)
			m.conclude(n, StepResult{}, nil)
			m.save(n)
			w.left.crash--
			m.die(&w.nodes[i])
		})
	}
}

func podOf(place uint8) int {
	if place < podCount {
		return int(place) + 1
	}
	return 0
}
