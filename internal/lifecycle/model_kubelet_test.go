package lifecycle

import "github.com/flex2csi/flex2csi/internal/volstate"

// The kubelet, as pkg/kubelet/volumemanager and pkg/volume/flexvolume of Kubernetes have it:
// it calls, repeats what failed, forgets a set-up that failed, repeats a tear-down, and
// after a restart knows no more than which directories there are.

func (m *model) kubelet(g *moves, i int) {
	w := &g.from
	n := &w.nodes[i]
	for p := range m.c.pods {
		if m.c.nodeOf(p) != i {
			continue
		}
		m.podLife(g, i, p)
		if n.op.goal == 0 && (n.call.goal == 0 || n.down) {
			m.podCalls(g, i, p)
		} else {
			m.joins(g, i, p)
		}
	}
	if n.op.goal == 0 && n.call.goal == 0 && m.c.device {
		m.deviceCalls(g, i)
	}
	if n.op.goal != 0 && n.op.awaited && w.left.leave > 0 && !m.bindShown(n) {
		g.add(fault, label{node: i, pod: podOf(n.op.dir), text: "the caller gives up waiting"}, func(w *world, e *event) {
			o := w.nodes[i].op
			w.left.leave--
			w.nodes[i].op.awaited = false
			m.answer(w, i, goals()[o.goal], o.dir, false)
		})
	}
	if w.left.restart > 0 {
		g.add(fault, label{node: i, text: "the kubelet restarts"}, func(w *world, _ *event) {
			w.left.restart--
			m.restartKubelet(w, i)
		})
	}
}

// bindShown: that a caller gives up while the kubelet could see a bind is outside, as
// in waits: the kubelet has forgotten it until it is restarted.
func (m *model) bindShown(n *node) bool { return n.op.dir < podCount && n.binds[n.op.dir] != nothing }

// podLife is what becomes of a pod by itself.
func (m *model) podLife(g *moves, i, p int) {
	m.loses(g, i, p)
	n, phase := &g.from.nodes[i], g.from.pods[p].phase
	set := func(kind moveKind, text string, to podPhase) {
		g.add(kind, label{node: i, pod: p + 1, text: text}, func(w *world, _ *event) {
			w.pods[p].phase = to
			w.pods[p].ran = w.pods[p].ran || to == podRunning
		})
	}
	has := (n.kubelet.pods[p] == mounted && m.shownTo(n, p) == alive) || n.plugin.pods[p] == alive
	busy := (n.op.goal != 0 && n.op.awaited && n.op.dir == uint8(p)) || (n.call.goal != 0 && n.call.place == uint8(p))
	switch {
	case phase == podNone:
		set(choice, "the pod is created", podWanted)
	case phase == podWanted && has:
		set(choice, "the kubelet starts the containers", podRunning)
	case phase == podEnding && n.kubelet.pods[p] == notMounted && n.plugin.pods[p] == nothing && m.shownTo(n, p) == nothing && !busy:
		set(progress, "the pod is deleted from the API server", podDeleted)
	case phase == podDeleted && n.kubelet.pods[p] == notMounted && !m.below(n, p):
		g.add(progress, label{node: i, pod: p + 1, text: "the kubelet removes the pod's directory"}, func(w *world, _ *event) {
			w.pods[p].phase = podGone
			w.nodes[i].dirs[p] = false
		})
	}
	if phase == podWanted || phase == podRunning {
		set(choice, "the pod is to end", podEnding)
	}
}

// shownTo is what is mounted at the kubelet's directory.
func (m *model) shownTo(n *node, p int) mnt {
	if m.c.direct {
		return n.published[p]
	}
	return n.binds[p]
}

// below reports whether anything is mounted below a pod's directory.
func (m *model) below(n *node, p int) bool {
	return n.binds[p] != nothing || n.published[p] != nothing || n.plugin.pods[p] != nothing || n.plugin.data[p]
}

func (m *model) podCalls(g *moves, i, p int) {
	n, who := &g.from.nodes[i], g.from.pods[p]
	at := func(text string) label { return label{node: i, pod: p + 1, text: text} }
	believed := n.kubelet.pods[p]
	switch {
	case n.call.goal != 0 && (goals()[n.call.goal] != Unmount || n.call.place != uint8(p)): // it waits for the daemon
	case who.alive() && g.from.pv == pvFlex && believed != mounted && m.reachable(&g.from, i):
		m.mountCall(g, i, p)
	case (who.phase == podEnding || who.phase == podDeleted || (who.alive() && g.from.pv != pvFlex && believed == uncertain)) && believed != notMounted:
		m.unmountCall(g, i, p)
	}
	if believed == mounted && who.alive() && g.from.wanted && !who.expanded && !n.down && p == 0 {
		g.add(progress, at("the kubelet calls expandfs"), func(w *world, e *event) { m.begin(w, i, Expand, uint8(p), true, e) })
	}
}

// reachable reports whether what comes before mount has been done.
func (m *model) reachable(w *world, i int) bool {
	n := &w.nodes[i]
	switch {
	case m.c.callouts && n.kubelet.attached != mounted:
		return false
	case m.c.device && n.kubelet.device != mounted:
		return false
	}
	return true
}

func (m *model) mountCall(g *moves, i, p int) {
	n := &g.from.nodes[i]
	at := func(text string) label { return label{node: i, pod: p + 1, text: text} }
	switch shown := m.shownTo(n, p); {
	case shown == dead || shown == silent || (p == 1 && n.other && n.dirs[p]):
		// It fails before any call, or continues as the mount of another volume.
	case shown != nothing:
		g.add(progress, at("the kubelet finds the directory mounted, and calls nothing"), func(w *world, e *event) {
			w.nodes[i].kubelet.pods[p] = mounted
			e.ended, e.goal, e.place, e.ok, e.awaited, e.found = true, Mount, uint8(p), true, true, true
		})
	case n.down && n.dirs[p] && g.from.left.leave > 0:
		g.add(fault, at("flexdriver finds no daemon, and mount fails"), func(w *world, _ *event) {
			w.left.leave--
			m.answer(w, i, Mount, uint8(p), false)
		})
	case n.down:
	default:
		g.add(progress, at("the kubelet calls mount"), func(w *world, e *event) {
			w.nodes[i].dirs[p] = true
			m.begin(w, i, Mount, uint8(p), true, e)
		})
		if g.from.left.leave > 0 {
			g.add(fault, at("the caller of mount leaves before it is its turn"), func(w *world, e *event) {
				w.left.leave--
				m.begin(w, i, Mount, uint8(p), false, e)
			})
		}
	}
}

func (m *model) unmountCall(g *moves, i, p int) {
	at := func(text string) label { return label{node: i, pod: p + 1, text: text} }
	if !g.from.nodes[i].dirs[p] { // pkg/volume/flexvolume/unmounter.go, TearDownAt, Kubernetes v1.37.1
		g.add(progress, at("the kubelet finds no directory, and calls nothing"), func(w *world, _ *event) { w.nodes[i].kubelet.pods[p] = notMounted })
		return
	}
	if !g.from.nodes[i].down {
		g.add(progress, at("the kubelet calls unmount"), func(w *world, e *event) { m.begin(w, i, Unmount, uint8(p), true, e) })
		return
	}
	alone := func(w *world, e *event) {
		n := &w.nodes[i]
		n.stones[p], n.binds[p], n.published[p] = true, nothing, nothing
		n.group[p], n.call = false, call{}
		n.unguard(p)
	}
	g.add(progress, at("flexdriver unmounts without a daemon, and leaves a pending unmount"), func(w *world, e *event) {
		alone(w, e)
		m.answer(w, i, Unmount, uint8(p), true)
		e.ended, e.goal, e.place, e.ok, e.awaited = true, Unmount, uint8(p), true, true
	})
	if g.from.left.leave > 0 {
		g.add(fault, at("flexdriver leaves a pending unmount, and is killed"), func(w *world, _ *event) {
			w.left.leave--
			w.nodes[i].stones[p] = true
			w.nodes[i].kubelet.pods[p] = uncertain
			w.nodes[i].call = call{}
		})
	}
}

// joins: a call that repeats what is under way waits for the same.
func (m *model) joins(g *moves, i, p int) {
	n := &g.from.nodes[i]
	o := n.op
	if o.awaited || o.dir != uint8(p) {
		return
	}
	who := g.from.pods[p]
	again := (goals()[o.goal] == Mount && who.alive() && g.from.pv == pvFlex && n.kubelet.pods[p] != mounted && m.shownTo(n, p) == nothing) ||
		(goals()[o.goal] == Unmount && who.phase == podEnding && n.kubelet.pods[p] != notMounted)
	if again {
		g.add(progress, label{node: i, pod: p + 1, text: "the kubelet calls " + string(goals()[o.goal]) + " again, and waits for the same"}, func(w *world, _ *event) {
			w.nodes[i].op.awaited = true
			w.nodes[i].dirs[p] = true
		})
	}
}

// answer is what the kubelet makes of an answer.
func (m *model) answer(w *world, i int, g Goal, place uint8, ok bool) {
	n := &w.nodes[i]
	k := &n.kubelet
	switch g {
	case Mount:
		p := int(place)
		if ok {
			k.pods[p] = mounted
			return
		}
		n.dirs[p] = m.shownTo(n, p) != nothing // rmdir
	case Unmount:
		p := int(place)
		if !ok || m.shownTo(n, p) != nothing { // rmdir fails, too
			k.pods[p] = uncertain
			return
		}
		k.pods[p], n.dirs[p] = notMounted, false
	case MountDevice:
		if ok {
			k.device, k.forgot = mounted, false
		}
	case UnmountDevice:
		k.device = uncertain
		if ok && !n.marker {
			k.device = notMounted
		}
	case Attach: // one that failed is forgotten (pkg/kubelet/volumemanager/cache, MarkVolumeAsUncertain, Kubernetes v1.37.1)
		if ok {
			k.attached = mounted
		}
	case Detach:
		k.attached = uncertain
		if ok {
			k.attached = notMounted
		}
	case Expand:
		w.pods[place].expanded = ok
	}
}

// restartKubelet: of each directory it thinks that it may be mounted, and it
// remembers nothing else. Its child processes die with it.
func (m *model) restartKubelet(w *world, i int) {
	n := &w.nodes[i]
	any, known := false, false
	for p := range m.c.pods {
		if m.c.nodeOf(p) != i {
			continue
		}
		n.kubelet.pods[p] = notMounted
		if n.dirs[p] {
			n.kubelet.pods[p], any = uncertain, true
		}
		known = known || n.plugin.data[p]
		n.plugin.again[p] = n.plugin.data[p] && w.pv != pvCSI
	}
	ours := n.saved
	if n.op.goal != 0 {
		ours = n.mem
	}
	n.plugin.orphan = n.plugin.orphan || (n.plugin.knows && !known && (ours.stage == 0 || owners()[ours.owner] == volstate.Kubelet))
	n.plugin.knows, n.plugin.staged = n.plugin.knows && known, n.plugin.staged && known
	n.kubelet.forgot = m.c.device && !any
	n.kubelet.device = notMounted
	if any && m.c.device {
		n.kubelet.device = uncertain
	}
	if n.kubelet.attached != notMounted {
		n.kubelet.attached = uncertain
	}
	n.op.awaited, n.call = false, call{}
}
