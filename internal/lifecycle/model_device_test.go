package lifecycle

// The kubelet, and kube-controller-manager, with attach: true.

// inUse reports whether the kubelet lists the volume in volumesInUse.
func (m *model) inUse(w *world, i int) bool {
	return w.nodes[i].kubelet.device != notMounted || m.wants(w, i)
}

// wants reports whether a pod of the node is to have the volume as a FlexVolume.
func (m *model) wants(w *world, i int) bool {
	for p := range m.c.pods {
		if m.c.nodeOf(p) == i && w.pods[p].alive() && w.pv == pvFlex {
			return true
		}
	}
	return false
}

func (m *model) deviceCalls(g *moves, i int) {
	w := &g.from
	n := &w.nodes[i]
	k := n.kubelet
	at := func(text string) label { return label{node: i, text: text} }
	call := func(goal Goal, text string) {
		if n.down {
			return
		}
		g.add(progress, at(text), func(w *world, e *event) { m.begin(w, i, goal, devicePlace, true, e) })
	}
	wants, used := m.wants(w, i), false
	for p := range m.c.pods {
		used = used || (m.c.nodeOf(p) == i && k.pods[p] != notMounted)
	}
	ready := (m.c.callouts && k.attached == mounted) || (!m.c.callouts && (m.c.route != ByVolumeAttachment || (n.va.attached && !n.va.deleting)))
	switch {
	case m.c.callouts && wants && k.attached != mounted:
		call(Attach, "the kubelet calls attach")
	case wants && k.device != mounted && n.marker:
		g.add(progress, at("the kubelet finds the device mount path mounted, and calls nothing"), func(w *world, _ *event) { w.nodes[i].kubelet.device, w.nodes[i].kubelet.forgot = mounted, false })
	case wants && k.device != mounted && ready:
		call(MountDevice, "the kubelet calls mountdevice")
	case !wants && !used && k.device != notMounted && !n.marker:
		g.add(progress, at("the kubelet finds nothing at the device mount path, and calls nothing"), func(w *world, _ *event) { w.nodes[i].kubelet.device = notMounted })
	case !wants && !used && k.device != notMounted:
		call(UnmountDevice, "the kubelet calls unmountdevice")
	case !wants && !used && m.c.callouts && k.attached != notMounted:
		call(Detach, "the kubelet calls detach")
	}
}
