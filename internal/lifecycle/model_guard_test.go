package lifecycle

// A kubelet that has forgotten a pod deletes what is below its directory, and one of 1.24
// does not see a volume of its own filesystem that is mounted there: it stops at the guard
// alone (docs/adr/0020-a-guard-above-each-target-path.md). The volumes of the model are such.

// A guarding is when the guard of a target path is mounted; a sabotage has another one.
type guarding struct{ never, goesFirst bool }

// guard mounts and unmounts the guard as a step is taken, before the driver is called.
func (g guarding) guard(n *node, k StepKind, p uint8) {
	switch {
	case k == NodePublish && !g.never:
		n.guards[p] = true
	case k == NodeUnpublish && g.goesFirst:
		n.guards[p] = false
	}
}

// unguard follows what has unmounted the target.
func (n *node) unguard(p int) { n.guards[p] = n.guards[p] && n.published[p] != nothing }

// loses adds the blow: the kubelet deletes what it reaches of a pod that it has forgotten, also
// of one that it only takes for unmounted.
func (m *model) loses(g *moves, i, p int) {
	if n := &g.from.nodes[i]; n.kubelet.pods[p] != mounted && m.reaches(n, p) {
		g.add(fault, label{node: i, pod: p + 1, text: "the kubelet deletes what is in the volume"}, func(_ *world, e *event) { e.lost = true })
	}
}

// reaches reports whether the user's data is within reach of a recursive deletion.
func (m *model) reaches(n *node, p int) bool {
	return !m.c.direct && n.published[p] != nothing && !n.guards[p]
}

func withinReach(m *model, _ *world, mv *move) bool {
	for i := range mv.to.nodes {
		for p := range podCount {
			if m.reaches(&mv.to.nodes[i], p) {
				return true
			}
		}
	}
	return mv.event.lost
}
