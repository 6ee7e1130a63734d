package lifecycle

// The API server, external-attacher, and what the daemon asks of them
// (internal/kube): a request goes on without who has made it.

// waitStep adds what may become of a step that waits for the cluster.
func (m *model) waitStep(g *moves, i int, k StepKind) {
	n := &g.from.nodes[i]
	va := n.va
	done := func(outcome string, got StepResult) {
		g.add(progress, m.stepLabel(i, n, outcome), func(w *world, e *event) {
			m.called(w, i, e)
			m.conclude(&w.nodes[i], got, nil)
			m.advance(w, i, e)
		})
	}
	leaves := va.listed && !n.plugin.file
	switch {
	case k == DeleteAttachment:
		m.deleteStep(g, i, done)
	case n.renamed && k == AskAttachment: // the record gets the new name
		g.add(progress, m.stepLabel(i, n, ": made"), func(w *world, e *event) {
			m.called(w, i, e)
			w.nodes[i].va, w.nodes[i].renamed, e.forgotten = attachment{there: true, ours: true}, false, true
		})
	case va.stale && !va.deleting && !m.weak.usesStale: // internal/kube, settle: it was asked for by no record of this node
		g.add(progress, m.stepLabel(i, n, ": replaced"), func(w *world, e *event) {
			m.called(w, i, e)
			w.nodes[i].va.deleting, w.nodes[i].op.begun = true, true
		})
	case va.there && va.attached && !va.deleting && !leaves:
		done("", StepResult{Ours: va.ours, AttachedAsCSI: va.listed && n.plugin.file, PublishContext: map[string]string{"device": "x"}})
	case k == AskAttachment && !va.there && !g.from.away && m.free(&g.from, i):
		g.add(progress, m.stepLabel(i, n, ": made"), func(w *world, e *event) {
			m.called(w, i, e)
			w.nodes[i].va = attachment{there: true, ours: true}
			w.nodes[i].op.begun = true
		})
	}
	m.giveUp(g, i, k)
}

// giveUp: the daemon waits no longer than its caller.
func (m *model) giveUp(g *moves, i int, k StepKind) {
	n := &g.from.nodes[i]
	class, kind := GoesOn, patience
	if k == AskAttachment && !n.op.begun && !n.op.before && !n.va.there && (g.from.away || !m.free(&g.from, i)) {
		class = NotBegun
	}
	g.add(kind, m.stepLabel(i, n, ": not yet"), func(w *world, e *event) {
		m.conclude(&w.nodes[i], StepResult{}, &failing{class: number(classes(), class)})
		m.advance(w, i, e)
	})
}

// free reports whether the volume may come to a node.
func (m *model) free(w *world, i int) bool {
	return m.c.shared || m.c.nodes == 1 || !w.nodes[1-i].va.there
}

func (m *model) deleteStep(g *moves, i int, done func(string, StepResult)) {
	n := &g.from.nodes[i]
	va := n.va
	switch {
	case g.from.away:
	case !va.there, !va.ours && !va.deleting, !va.deleting && m.handedOver(&g.from, i):
		done("", StepResult{})
	case !va.deleting:
		g.add(progress, m.stepLabel(i, n, ": asked for"), func(w *world, e *event) {
			m.called(w, i, e)
			w.nodes[i].va.deleting = true
		})
	}
}

// handedOver reports whether the control plane has the attachment, or is about to.
func (m *model) handedOver(w *world, i int) bool {
	return w.nodes[i].va.listed || (m.c.migrates && m.pluginInUse(w, i))
}

// cluster adds what goes on by itself.
func (m *model) cluster(g *moves, i int) {
	w := &g.from
	va := w.nodes[i].va
	if m.c.route != ByVolumeAttachment {
		return
	}
	at := func(text string) label { return label{node: i, text: text} }
	switch {
	case va.there && va.deleting:
		g.add(progress, at("external-attacher detaches the volume"), func(w *world, e *event) {
			w.nodes[i].va, w.nodes[i].attached = attachment{listed: w.nodes[i].va.listed}, false
		})
	case va.there && !va.attached:
		g.add(progress, at("external-attacher attaches the volume"), func(w *world, _ *event) {
			w.nodes[i].va.attached, w.nodes[i].attached = true, true
		})
	}
	if w.left.taken > 0 && va.there && !va.deleting {
		g.add(fault, at("a person deletes the VolumeAttachment"), func(w *world, _ *event) {
			w.left.taken--
			w.nodes[i].va.deleting = true
		})
	}
	if w.left.renamed > 0 && w.nodes[i].disk.object {
		g.add(fault, at("the node gets another name"), func(w *world, _ *event) {
			w.left.renamed--
			m.die(&w.nodes[i])
			m.restartKubelet(w, i)
			w.nodes[i].renamed = true
		})
	}
	if w.left.recreated > 0 && va.ours && va.attached && !va.deleting {
		g.add(fault, at("the node is made again on another machine"), func(w *world, _ *event) {
			w.left.recreated--
			va.stale = true
			w.nodes[i] = node{va: va}
			for p := range m.c.pods {
				if m.c.nodeOf(p) == i && w.pods[p].phase != podNone {
					w.pods[p].phase = podGone
				}
			}
		})
	}
	if m.c.device && !m.c.callouts {
		m.controlPlane(g, i)
	}
}

// controlPlane is kube-controller-manager with attach: true, and flex2csi
// controller, which it has attach and detach.
func (m *model) controlPlane(g *moves, i int) {
	w := &g.from
	va := w.nodes[i].va
	at := func(text string) label { return label{node: i, text: text} }
	switch {
	case w.away:
	case m.wants(w, i) && !va.there && m.free(w, i):
		g.add(progress, at("kube-controller-manager attaches"), func(w *world, _ *event) { w.nodes[i].va = attachment{there: true} })
	case !m.inUse(w, i) && va.there && !va.deleting && !va.listed && !m.pluginInUse(w, i):
		g.add(progress, at("kube-controller-manager detaches"), func(w *world, e *event) {
			w.nodes[i].va.deleting = true
			// A kubelet that has forgotten what it had mounted (kubernetes/kubernetes#85476)
			// tells no controller that the volume is in use: that is outside.
			e.detached, e.stepNode = !w.nodes[i].kubelet.forgot && !w.nodes[i].plugin.orphan, i
		})
	}
}

// happens adds what befalls the world.
func (m *model) happens(g *moves) {
	w := &g.from
	at := func(text string) label { return label{node: -1, text: text} }
	if w.left.away > 0 && !w.away {
		g.add(fault, at("the API server is away"), func(w *world, _ *event) { w.away = true; w.left.away-- })
	}
	if w.away {
		g.add(progress, at("the API server is back"), func(w *world, _ *event) { w.away = false })
	}
	if (m.c.expand.controller || m.c.expand.node) && !w.wanted {
		g.add(choice, at("the claim is to grow"), func(w *world, _ *event) { w.wanted = true })
	}
	m.timePasses(g)
	for i := range m.c.nodes {
		m.befalls(g, i)
	}
}

// timePasses: everything that was left half-done is older than the grace period.
func (m *model) timePasses(g *moves) {
	w := &g.from
	for i := range m.c.nodes {
		if w.nodes[i].op.goal != 0 || (m.c.migrates && !m.settles && (m.pluginBusy(w, i) || m.reconciles(w, i))) {
			return
		}
	}
	ages := []uint8{stale}
	if m.c.migrates {
		ages = []uint8{waited, stale}
	}
	for _, age := range ages {
		kind := hours
		if age == waited {
			kind = choice
		}
		g.addChanged(kind, label{node: -1, text: []string{"", "a minute passes", "the grace period passes"}[age]}, func(w *world, _ *event) {
			for i := range m.c.nodes {
				grow(&w.nodes[i].saved, age)
				grow(&w.nodes[i].disk, age)
				if p := &w.nodes[i].plugin; p.file {
					p.age = max(p.age, age)
				}
			}
		})
	}
}

func grow(r *rec, age uint8) {
	if !r.there {
		return
	}
	r.age = max(r.age, age)
	for p := range r.targets {
		if r.targets[p].there {
			r.targets[p].age = max(r.targets[p].age, age)
		}
	}
}

func (m *model) befalls(g *moves, i int) {
	w := &g.from
	at := func(text string) label { return label{node: i, text: text} }
	if w.left.dead > 0 {
		g.addChanged(fault, at("the CSI driver restarts, and its mounts are dead"), func(w *world, _ *event) {
			w.left.dead--
			kill(&w.nodes[i])
		})
	}
	m.hangs(g, i)
	if w.left.reboot > 0 {
		g.add(fault, at("the node reboots"), func(w *world, e *event) {
			w.left.reboot--
			m.die(&w.nodes[i])
			m.reboot(w, i)
		})
	}
	if w.left.driver > 0 && !w.nodes[i].driverAway {
		g.add(fault, at("the CSI driver is away"), func(w *world, _ *event) {
			w.left.driver--
			w.nodes[i].driverAway = true
		})
	}
	if w.left.secret > 0 && w.nodes[i].op.goal == 0 {
		g.add(fault, at("the secret changes"), func(w *world, _ *event) {
			w.left.secret--
			w.secret++
		})
	}
	if w.left.taken > 0 && m.c.route == NoAttach && w.nodes[i].op.goal == 0 {
		m.byHand(g, i)
	}
	if w.nodes[i].driverAway {
		g.add(progress, at("the CSI driver is back"), func(w *world, _ *event) { w.nodes[i].driverAway = false })
	}
	if w.nodes[i].other {
		g.add(progress, at("the other volume is gone from the directory"), func(w *world, _ *event) { w.nodes[i].other = false })
	}
}

// hangs: the server of a filesystem does not answer for a while. That this begins before
// the answer of a mount is outside: the kubelet forgets what it may find then, as in waits.
func (m *model) hangs(g *moves, i int) {
	at := func(text string) label { return label{node: i, text: text} }
	turn := func(n *node, from, to mnt, staged, published bool) {
		for _, is := range []struct {
			at    *mnt
			meant bool
		}{{&n.staged, staged}, {&n.published[0], published}, {&n.published[1], published}, {&n.binds[0], published}, {&n.binds[1], published}} {
			if is.meant && *is.at == from {
				*is.at = to
			}
		}
	}
	if m.bounds.silent == 0 {
		return
	}
	n := &g.from.nodes[i]
	told := n.op.goal == 0 || goals()[n.op.goal] == Reconcile
	for p := range podCount {
		told = told && (n.binds[p] == nothing || n.kubelet.pods[p] == mounted)
	}
	if g.from.left.silent > 0 {
		for _, staged := range []bool{true, false} {
			if !staged && !told {
				continue
			}
			text := map[bool]string{true: "what is staged does not answer", false: "what is published does not answer"}[staged]
			g.addChanged(fault, at(text), func(w *world, _ *event) {
				w.left.silent--
				turn(&w.nodes[i], alive, silent, staged, !staged)
			})
		}
	}
	g.addChanged(progress, at("what is mounted answers again"), func(w *world, _ *event) { turn(&w.nodes[i], silent, alive, true, true) })
}

// byHand: a person unmounts what the driver has published, and no pod has seen.
func (m *model) byHand(g *moves, i int) {
	g.addChanged(fault, label{node: i, pod: 1, text: "a person unmounts the driver's mount"}, func(w *world, _ *event) {
		w.left.taken--
		if w.nodes[i].binds[0] == nothing {
			w.nodes[i].published[0] = nothing
		}
	})
}

func kill(n *node) {
	for _, at := range []*mnt{&n.staged, &n.published[0], &n.published[1], &n.binds[0], &n.binds[1]} {
		if *at != nothing {
			*at = dead
		}
	}
}

func (m *model) reboot(w *world, i int) {
	n := &w.nodes[i]
	n.rebooted, n.staged, n.marker, n.plugin.staged = n.saved.there, nothing, false, false
	for p := range podCount {
		n.binds[p], n.published[p], n.plugin.pods[p], n.group[p] = nothing, nothing, nothing, false
		n.unguard(p)
	}
	m.restartKubelet(w, i)
}
