package lifecycle

import (
	"slices"
	"strings"
	"testing"
)

// A told story is one in which the model has found a fault of the planner. Its lines
// say what happens, without rules; what the daemon does in between goes on by itself.
type toldStory struct {
	name, config string
	bounds       budget
	lines        []string
}

func toldStories() []toldStory {
	return []toldStory{
		{"a bare directory after a stage that died", "dead mounts, one pod", budget{rpc: 1, dead: 1}, []string{
			"node-1 pod a: the pod is created", "node-1 pod a: the kubelet calls mount", "node-1 NodeStageVolume",
			"node-1 pod a: NodePublishVolume", "node-1 the CSI driver restarts", "node-1 pod a: bind", "node-1 pod a: unbind",
			"node-1 pod a: NodeUnpublishVolume: refused",
		}},
		{"a dead bind", "dead targets", budget{dead: 1}, []string{
			"node-1 pod a: the pod is created", "node-1 pod a: the kubelet calls mount", "node-1 pod a: NodePublishVolume",
			"node-1 pod a: apply the fsGroup", "node-1 the CSI driver restarts", "node-1 pod a: bind",
		}},
		{"died while it unstaged what is dead", "dead mounts, one pod", budget{dead: 1, crash: 1}, []string{
			"node-1 pod a: the pod is created", "node-1 pod a: the kubelet calls mount", "node-1 pod a: bind",
			"node-1 the CSI driver restarts", "node-1 the daemon reconciles", "node-1 the daemon reconciles",
			"node-1 pod a: unmount what is dead", "node-1 pod a: NodeUnpublishVolume", "node-1 the daemon dies",
		}},
		{"a dead bind that could not be undone", "dead targets", budget{rpc: 2, dead: 1, crash: 1}, []string{
			"node-1 pod a: the pod is created", "node-1 pod a: the kubelet calls mount", "node-1 pod a: NodePublishVolume",
			"node-1 pod a: apply the fsGroup", "node-1 the CSI driver restarts", "node-1 pod a: bind", "node-1 pod a: unbind: failed",
			"node-1 pod a: unbind: failed", "node-1 the daemon dies",
		}},
		{"a bind undone for a kubelet that has forgotten it", "dead mounts, one pod", budget{crash: 2, dead: 1, leave: 1}, []string{
			"node-1 pod a: the pod is created", "node-1 pod a: the kubelet calls mount", "node-1 pod a: bind: done, and the daemon dies",
			"node-1 the daemon starts", "node-1 the CSI driver restarts", "node-1 pod a: flexdriver repeats mount",
			"node-1 pod a: unbind: done, and the daemon dies", "node-1 pod a: flexdriver waits no longer for a daemon",
		}},
		{"repaired, and found before the fsGroup was applied", "dead targets", budget{restart: 1, dead: 1}, []string{
			"node-1 pod a: the pod is created", "node-1 pod a: the kubelet calls mount", "node-1 pod a: bind", "node-1 the kubelet restarts",
			"node-1 the CSI driver restarts", "node-1 the daemon reconciles", "node-1 the daemon reconciles", "node-1 pod a: bind",
			"node-1 pod a: the kubelet finds the directory mounted",
		}},
		{"repaired, but for the fsGroup", "dead targets", budget{restart: 1, dead: 1, rpc: 1}, []string{
			"node-1 pod a: the pod is created", "node-1 pod a: the kubelet calls mount", "node-1 pod a: bind", "node-1 the kubelet restarts",
			"node-1 the CSI driver restarts", "node-1 the daemon reconciles", "node-1 the daemon reconciles",
			"node-1 pod a: apply the fsGroup: failed", "node-1 pod a: the kubelet calls mount", "node-1 pod a: bind",
		}},
		{"a dead bind where containers have the mount before", "dead targets", budget{restart: 1, dead: 2, rpc: 1}, []string{
			"node-1 pod a: the pod is created", "node-1 pod a: the kubelet calls mount", "node-1 pod a: bind",
			"node-1 pod a: the kubelet starts the containers", "node-1 the kubelet restarts", "node-1 the CSI driver restarts",
			"node-1 the daemon reconciles", "node-1 the daemon reconciles", "node-1 pod a: NodeUnpublishVolume: uncertain, done",
			"node-1 pod a: the kubelet calls mount", "node-1 pod a: apply the fsGroup", "node-1 the CSI driver restarts", "node-1 pod a: bind",
		}},
		{"repaired for a kubelet that has forgotten it", "dead mounts, left", budget{restart: 2, dead: 2, rpc: 2}, []string{
			"node-1 pod a: the pod is created", "node-1 pod a: the kubelet calls mount", "node-1 pod a: bind", "node-1 the kubelet restarts",
			"node-1 the CSI driver restarts", "node-1 the daemon reconciles", "node-1 the daemon reconciles",
			"node-1 pod a: NodePublishVolume: refused", "node-1 pod a: the kubelet calls mount",
			"node-1 pod a: NodePublishVolume: uncertain, not done", "node-1 the kubelet restarts", "node-1 the CSI driver restarts",
			"node-1 pod a: the pod is to end", "node-1 the daemon reconciles", "node-1 the daemon reconciles",
		}},
		{"bound before, and undone for a caller that has left", "dead mounts, left", budget{restart: 2, dead: 1, rpc: 1, crash: 1, leave: 1}, []string{
			"node-1 pod a: the pod is created", "node-1 pod a: the kubelet calls mount", "node-1 pod a: bind", "node-1 the kubelet restarts",
			"node-1 the CSI driver restarts", "node-1 the daemon reconciles", "node-1 the daemon reconciles", "node-1 pod a: bind: failed",
			"node-1 pod a: the kubelet calls mount", "node-1 pod a: record the target", "node-1 pod a: the caller gives up waiting",
			"node-1 the kubelet restarts", "node-1 pod a: bind", "node-1 pod a: unbind",
			"node-1 pod a: apply the fsGroup: done, and the daemon dies",
		}},
		{"repaired for a kubelet that has found no daemon", "dead mounts, left", budget{restart: 2, dead: 2, rpc: 1, crash: 1, leave: 1}, []string{
			"node-1 pod a: the pod is created", "node-1 pod a: the kubelet calls mount", "node-1 pod a: bind", "node-1 the kubelet restarts",
			"node-1 the CSI driver restarts", "node-1 the daemon reconciles", "node-1 the daemon reconciles",
			"node-1 pod a: bind: failed", "node-1 the daemon dies", "node-1 pod a: flexdriver finds no daemon, and mount fails",
			"node-1 the daemon starts", "node-1 the kubelet restarts", "node-1 the CSI driver restarts",
			"node-1 pod a: the pod is to end", "node-1 the daemon reconciles", "node-1 the daemon reconciles",
		}},
		{"repaired half-way, and silent", "silence", budget{crash: 1, dead: 1, rpc: 1, silent: 1}, []string{
			"node-1 pod a: the pod is created", "node-1 pod a: the kubelet calls mount", "node-1 pod a: bind", "node-1 the CSI driver restarts",
			"node-1 the daemon reconciles", "node-1 the daemon reconciles", "node-1 pod a: NodePublishVolume: uncertain, done",
			"node-1 the daemon reconciles", "node-1 what is published does not answer", "node-1 the daemon reconciles",
			"node-1 pod a: unbind", "node-1 the daemon dies", "node-1 the daemon starts", "the grace period passes",
			"node-1 the daemon reconciles", "node-1 what is mounted answers again",
		}},
		{"found by the kubelet, and died while it was repaired", "silence", budget{crash: 2, restart: 1, dead: 2, rpc: 1}, []string{
			"node-1 pod a: the pod is created", "node-1 pod a: the kubelet calls mount", "node-1 pod a: bind", "node-1 the kubelet restarts",
			"node-1 the CSI driver restarts", "node-1 the daemon reconciles", "node-1 the daemon reconciles",
			"node-1 NodeUnstageVolume: uncertain, done", "node-1 pod a: the kubelet calls mount", "node-1 pod a: bind",
			"node-1 the daemon dies", "node-1 the daemon starts", "node-1 the CSI driver restarts", "node-1 the daemon reconciles",
			"node-1 pod a: unbind: done, and the daemon dies",
		}},
		{"unmounted alone while the plugin has it elsewhere", "migration, own stage", budget{swap: 2, crash: 1, restart: 1}, []string{
			"node-1 pod a: the pod is created", "node-1 pod a: the kubelet calls mount", "node-1 NodeStageVolume: done, and the daemon dies",
			"node-1 the kubelet restarts", "the PersistentVolume is deleted", "node-1 pod a: flexdriver unmounts without a daemon",
			"the PersistentVolume is created as a CSI one", "node-1 pod a: the kubelet's CSI plugin writes",
			"node-1 pod a: the kubelet's CSI plugin stages", "node-1 pod a: the kubelet's CSI plugin publishes",
			"the PersistentVolume is deleted", "the PersistentVolume is created as a FlexVolume",
		}},
		{"lost, and published for a pod that has no directory", "lost targets", budget{lost: 1, crash: 1, rpc: 1}, []string{
			"node-1 pod a: the pod is created", "node-1 pod a: the kubelet calls mount", "node-1 NodeStageVolume",
			"node-1 pod a: NodePublishVolume: uncertain, done", "node-1 the daemon dies", "node-1 the records are lost", "node-1 the daemon starts",
			"node-1 pod b: the pod is created", "node-1 pod b: the kubelet calls mount", "node-1 pod b: bind",
			"node-1 pod b: the pod is to end", "node-1 pod b: the kubelet calls unmount", "node-1 pod b: drop the target",
		}},
		{"published directly, uncertainly", "direct", budget{rpc: 1}, []string{
			"node-1 pod a: the pod is created", "node-1 pod a: the kubelet calls mount", "node-1 NodeStageVolume",
			"node-1 pod a: NodePublishVolume: uncertain, done", "node-1 pod a: the pod is to end",
		}},
		{"published directly, and found by the kubelet", "direct, callers leave", budget{leave: 1, rpc: 1}, []string{
			"node-1 pod a: the pod is created", "node-1 pod a: the kubelet calls mount", "node-1 NodeStageVolume",
			"node-1 pod a: the caller gives up waiting", "node-1 pod a: NodePublishVolume", "node-1 pod a: NodeUnpublishVolume: refused",
			"node-1 pod a: the kubelet finds the directory mounted", "node-1 pod a: the kubelet starts the containers",
			"the grace period passes", "node-1 the daemon reconciles",
		}},
		{"the marker is gone when mount comes late", "device, cluster", budget{rpc: 1}, []string{
			"node-1 pod a: the pod is created", "node-1 kube-controller-manager attaches", "node-1 external-attacher attaches",
			"node-1 the kubelet calls mountdevice", "node-1 mount the marker", "the grace period passes", "node-1 the daemon reconciles",
			"node-1 unmount the marker", "node-1 pod a: the kubelet calls mount", "node-1 NodeStageVolume: uncertain, done",
			"node-1 pod a: the pod is to end", "node-1 kube-controller-manager detaches",
		}},
		{"an attachment of others that nothing is left of", "device, cluster", budget{restart: 1}, []string{
			"node-1 pod a: the pod is created", "node-1 kube-controller-manager attaches", "node-1 external-attacher attaches",
			"node-1 the kubelet calls mountdevice", "node-1 mount the marker", "node-1 pod a: the kubelet calls mount",
			"node-1 wait for the VolumeAttachment: not yet", "node-1 the kubelet restarts",
		}},
		{"attach ended uncertain, and the kubelet forgets it", "callouts", budget{rpc: 1}, []string{
			"node-1 pod a: the pod is created", "node-1 the kubelet calls attach", "node-1 ControllerPublishVolume: uncertain, done",
			"node-1 pod a: the pod is to end",
		}},
		{"attached when the kubelet had forgotten it", "callouts", budget{restart: 1}, []string{
			"node-1 pod a: the pod is created", "node-1 the kubelet calls attach", "node-1 the kubelet restarts",
			"node-1 pod a: the pod is to end", "node-1 ControllerPublishVolume",
		}},
		{"attached by a callout, and not needed for a while", "callouts, cluster", budget{rpc: 1}, []string{
			"node-1 pod a: the pod is created", "node-1 the kubelet calls attach",
			"node-1 create the VolumeAttachment and wait: made", "node-1 external-attacher attaches",
			"node-1 the kubelet calls mountdevice", "node-1 pod a: the kubelet calls mount", "node-1 NodeStageVolume",
			"node-1 pod a: NodePublishVolume: refused", "the grace period passes", "node-1 the daemon reconciles",
		}},
		{"unstaged between two looks", "migration", budget{swap: 1, restart: 1}, []string{
			"node-1 pod a: the pod is created", "node-1 pod a: the kubelet calls mount", "node-1 pod a: NodePublishVolume",
			"node-1 the kubelet restarts", "the grace period passes", "node-1 the daemon reconciles", "node-1 pod a: NodeUnpublishVolume",
			"node-1 pod a: the kubelet calls mount", "the PersistentVolume is deleted", "the PersistentVolume is created as a CSI one",
			"node-1 pod a: the kubelet's CSI plugin writes", "node-1 pod a: the pod is to end", "node-1 the kubelet's CSI plugin unstages",
			"node-1 pod a: NodePublishVolume",
		}},
		{"published uncertainly from a stage that was gone", "migration", budget{swap: 2, rpc: 1}, []string{
			"node-1 pod a: the pod is created", "node-1 pod a: the kubelet calls mount", "node-1 NodeStageVolume",
			"the PersistentVolume is deleted", "the PersistentVolume is created as a CSI one",
			"node-1 pod a: the kubelet's CSI plugin writes", "the PersistentVolume is deleted", "node-1 the kubelet's CSI plugin unstages",
			"node-1 pod a: NodePublishVolume: uncertain, done", "the PersistentVolume is created as a FlexVolume",
		}},
		{"published from a stage that was gone, and not undone", "migration", budget{swap: 2, rpc: 1}, []string{
			"node-1 pod a: the pod is created", "node-1 pod a: the kubelet calls mount", "node-1 NodeStageVolume",
			"the PersistentVolume is deleted", "the PersistentVolume is created as a CSI one",
			"node-1 pod a: the kubelet's CSI plugin writes", "the PersistentVolume is deleted", "node-1 the kubelet's CSI plugin unstages",
			"node-1 pod a: NodePublishVolume", "node-1 pod a: unbind: failed", "the PersistentVolume is created as a FlexVolume",
		}},
		{"a pending unmount of a pod that has its volume again", "migration", budget{swap: 1, crash: 1, restart: 1, leave: 1}, []string{
			"node-1 pod a: the pod is created", "node-1 pod a: the kubelet calls mount", "node-1 pod a: bind", "node-1 the daemon dies",
			"node-1 pod a: the kubelet starts the containers", "node-1 the kubelet restarts", "the PersistentVolume is deleted",
			"node-1 pod a: flexdriver leaves a pending unmount, and is killed", "node-1 the daemon starts",
			"the PersistentVolume is created as a FlexVolume", "node-1 pod a: the daemon completes the pending unmount", "node-1 pod a: unbind",
		}},
		{"forgotten with a stage that was half done", "migration", budget{swap: 1, crash: 1, restart: 1, rpc: 1}, []string{
			"node-1 pod a: the pod is created", "node-1 pod a: the kubelet calls mount", "node-1 NodeStageVolume: done, and the daemon dies",
			"node-1 the daemon starts", "the PersistentVolume is deleted", "the PersistentVolume is created as a CSI one",
			"node-1 pod a: the kubelet's CSI plugin writes", "node-1 pod a: flexdriver repeats mount", "node-1 the kubelet restarts",
			"node-1 NodeStageVolume: refused",
		}},
		{"unclear only now, and long after the last change", "migration, device", budget{swap: 1, rpc: 1}, []string{
			"node-1 pod a: the pod is created", "node-1 the kubelet calls mountdevice", "node-1 mount the marker",
			"node-1 pod a: the kubelet calls mount", "node-1 NodeStageVolume: refused", "node-1 pod a: unbind", "node-1 pod a: drop the target",
			"the PersistentVolume is deleted", "the PersistentVolume is created as a CSI one",
			"node-1 pod a: the kubelet's CSI plugin writes", "node-1 pod a: the kubelet's CSI plugin stages",
			"node-1 pod a: the kubelet's CSI plugin publishes", "the grace period passes", "node-1 pod a: the pod is to end",
			"node-1 pod a: the kubelet's CSI plugin unpublishes", "node-1 the daemon reconciles", "node-1 remove vol_data.json",
		}},
		{"a plugin that begins after a long time", "migration, two pods", budget{swap: 1}, []string{
			"node-1 pod b: the pod is created", "node-1 pod b: the kubelet calls mount", "node-1 pod b: bind",
			"the PersistentVolume is deleted", "the PersistentVolume is created as a CSI one", "node-1 pod b: the kubelet's CSI plugin writes",
			"node-1 pod b: the pod is to end", "node-1 pod b: the kubelet calls unmount", "node-1 pod b: drop the target",
			"node-1 the kubelet's CSI plugin unstages", "the grace period passes", "node-1 pod a: the pod is created",
			"node-1 pod a: the kubelet's CSI plugin writes", "node-1 the daemon reconciles",
		}},
	}
}

// TestStories tells them again: no invariant is broken, and all ends well.
func TestStories(t *testing.T) {
	for _, s := range toldStories() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			told, v := newModel(configOf(s.config)).tell(s)
			switch {
			case v != nil:
				t.Error(v)
			case len(told) < len(s.lines)/2:
				t.Errorf("only this could be told: %s", strings.Join(told, "\n"))
			}
		})
	}
}

func configOf(name string) *config {
	all := configs()
	return all[slices.IndexFunc(all, func(c *config) bool { return c.name == name })]
}

// tell follows the lines. What is not possible any more is left out: the planner does
// something else since the fault was mended.
func (m *model) tell(s toldStory) (told []string, v *violation) {
	m.bounds = s.bounds
	w := m.c.start(s.bounds)
	for _, line := range s.lines {
		for range 20 {
			mv, goesOn := m.find(w, line)
			meant := mv != nil
			if !meant {
				mv = goesOn
			}
			if mv == nil {
				break
			}
			told = append(told, m.line(mv.label))
			for _, inv := range invariants() {
				if inv.broken(m, &w, mv) {
					return told, &violation{inv, told}
				}
			}
			w = mv.to
			if meant {
				break
			}
		}
	}
	for p := -1; p < m.c.pods; p++ {
		if !m.promised(&w, p) {
			continue
		}
		if lines := m.settle(m.prepare(w, p), p); lines != nil {
			return told, &violation{promise(p), append(told, lines...)}
		}
	}
	return told, nil
}

// find returns the move that a line means, and that with which the daemon goes on.
func (m *model) find(w world, line string) (meant, goesOn *move) {
	var g moves
	list := m.moves(w, &g)
	for i := range list {
		l := list[i].label
		if l.rule != 0 && l.outcome == "" && goesOn == nil {
			goesOn = &list[i]
		}
		l.rule = 0
		text := m.line(l)
		whole := strings.Contains(line, ": refused") || strings.HasSuffix(line, ": failed") || strings.Contains(line, "uncertain") || strings.HasSuffix(line, ": not yet") || strings.HasSuffix(line, ": made")
		if meant == nil && (text == line || (!whole && l.outcome == "" && strings.HasPrefix(text, line))) {
			meant = &list[i]
		}
	}
	return meant, goesOn
}
