package lifecycle

// The kubelet's own CSI plugin, and the control plane for CSI volumes, of a
// PersistentVolume that was migrated, or is on its way back: see
// docs/adr/0015-replace-in-place.md.

// csi adds what they do.
func (m *model) csi(g *moves, i int) {
	m.pluginActs(g, i)
	if m.c.route == ByVolumeAttachment {
		m.csiControl(g, i)
	}
	if i == 0 {
		m.swap(g)
	}
}

// pluginActs: a driver does one thing with a volume at a time. What happens between an
// observation and the system call that follows is outside.
func (m *model) pluginActs(g *moves, i int) {
	switch m.kinds[g.from.nodes[i].op.step.kind] {
	case NodeStage, NodeUnstage, Unbind, RemoveVolData:
		return
	}
	for p := range m.c.pods {
		if m.c.nodeOf(p) == i {
			m.csiPod(g, i, p)
		}
	}
	m.csiDevice(g, i)
}

// pluginBusy reports whether the plugin has something to do: it does not leave that
// for the grace period.
func (m *model) pluginBusy(w *world, i int) bool {
	g := moves{from: *w}
	m.pluginActs(&g, i)
	return len(g.list) > 0
}

// reconciles reports whether the daemon's next look finds something to do: it looks
// more often than the grace period passes.
func (m *model) reconciles(w *world, i int) bool {
	g := moves{from: *w}
	if !w.nodes[i].down {
		m.reconcile(&g, i)
	}
	return len(g.list) > 0
}

// swap: the PersistentVolume is deleted, and made again as another one.
func (m *model) swap(g *moves) {
	at := func(text string) label { return label{node: -1, text: text} }
	set := func(kind moveKind, text string, to pvState, cost uint8) {
		g.add(kind, at(text), func(w *world, _ *event) {
			w.pv = to
			w.left.swap -= cost
		})
	}
	switch {
	case g.from.pv == pvGone:
		set(progress, "the PersistentVolume is created as a CSI one", pvCSI, 0)
		set(choice, "the PersistentVolume is created as a FlexVolume", pvFlex, 0)
	case g.from.left.swap > 0:
		set(fault, "the PersistentVolume is deleted, to be replaced", pvGone, 1)
	}
}

// csiWants reports whether a pod is to have the volume as a CSI one.
func (m *model) csiWants(w *world, i, p int) bool {
	return m.c.nodeOf(p) == i && w.pv == pvCSI && w.pods[p].alive()
}

// csiPod is what the plugin does for a pod.
func (m *model) csiPod(g *moves, i, p int) {
	w := &g.from
	n := &w.nodes[i]
	at := func(text string) label { return label{node: i, pod: p + 1, text: text} }
	wants := m.csiWants(w, i, p)
	ready := m.c.route != ByVolumeAttachment || (n.va.listed && n.va.attached && !n.va.deleting)
	switch {
	case wants && ready && !n.plugin.knows:
		g.add(progress, at("the kubelet's CSI plugin writes vol_data.json, and begins"), func(w *world, _ *event) {
			p := w.nodes[i].plugin
			w.nodes[i].plugin = plugin{file: true, knows: true, pods: p.pods, data: p.data, again: p.again}
		})
	case wants && n.plugin.knows && !m.csiStaged(n):
		g.add(progress, at("the kubelet's CSI plugin stages the volume"), func(w *world, _ *event) {
			m.stageForPlugin(&w.nodes[i], w.secret)
		})
	case wants && n.plugin.knows && n.plugin.pods[p] == nothing:
		g.add(progress, at("the kubelet's CSI plugin publishes the volume"), func(w *world, _ *event) {
			w.nodes[i].plugin.data[p], w.nodes[i].plugin.pods[p], w.nodes[i].plugin.again[p] = true, alive, false
		})
	case !wants && n.plugin.data[p] && (!w.pods[p].alive() || n.plugin.again[p]): // else it does not look at the PersistentVolume again
		g.add(progress, at("the kubelet's CSI plugin unpublishes the volume"), func(w *world, _ *event) {
			w.nodes[i].plugin.data[p], w.nodes[i].plugin.pods[p], w.nodes[i].plugin.again[p] = false, nothing, false
		})
	}
}

// csiStaged reports whether the volume is staged where the plugin has it.
func (m *model) csiStaged(n *node) bool {
	return n.plugin.staged || !m.c.stage
}

func (m *model) stageForPlugin(n *node, secret uint8) {
	n.plugin.staged = true
	if !m.c.ownStage && n.staged == nothing {
		n.staged, n.stagedAs, n.stagedWith = alive, 0, secret
	}
}

// csiDevice: with its last pod the plugin unstages, unless mounts of the same are
// there: of a driver that binds what is staged, what we have published is one.
func (m *model) csiDevice(g *moves, i int) {
	w := &g.from
	n := &w.nodes[i]
	for p := range m.c.pods {
		if m.csiWants(w, i, p) || n.plugin.data[p] {
			return
		}
	}
	if !n.plugin.knows || (!m.c.ownStage && (n.published[0] != nothing || n.published[1] != nothing)) {
		return
	}
	g.add(progress, label{node: i, text: "the kubelet's CSI plugin unstages the volume"}, func(w *world, _ *event) {
		n := &w.nodes[i]
		n.plugin = plugin{pods: n.plugin.pods}
		if !m.c.ownStage {
			n.staged = nothing
		}
	})
}

// csiControl is the attach-detach controller for a CSI volume: it takes over what it
// finds by its name, and deletes it when the kubelet does not use it any more.
func (m *model) csiControl(g *moves, i int) {
	w := &g.from
	n := &w.nodes[i]
	at := func(text string) label { return label{node: i, text: text} }
	switch uses := m.pluginInUse(w, i); {
	case w.away:
	case uses && n.va.there && !n.va.listed && !n.va.deleting:
		g.add(progress, at("kube-controller-manager takes the VolumeAttachment over"), func(w *world, _ *event) { w.nodes[i].va.listed = true })
	case uses && !n.va.there:
		g.add(progress, at("kube-controller-manager makes a VolumeAttachment"), func(w *world, _ *event) {
			w.nodes[i].va = attachment{there: true, listed: true}
		})
	case !uses && n.va.listed:
		g.add(progress, at("kube-controller-manager detaches the CSI volume"), func(w *world, _ *event) {
			w.nodes[i].va.listed = false
			w.nodes[i].va.deleting = w.nodes[i].va.there
		})
	}
}

// pluginInUse reports whether the control plane wants the volume on a node as a CSI
// one, or the kubelet says that it uses it so.
func (m *model) pluginInUse(w *world, i int) bool {
	n := &w.nodes[i]
	if n.plugin.knows {
		return true
	}
	for p := range m.c.pods {
		if m.c.nodeOf(p) == i && (n.plugin.data[p] || m.csiWants(w, i, p)) {
			return true
		}
	}
	return false
}
