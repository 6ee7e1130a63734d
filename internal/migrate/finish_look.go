package migrate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/internal/report"
)

// finisher looks for what is in the way.
type finisher struct {
	*observed
	daemons map[string]string              // pods of the bridge by their node
	inline  map[string][]string            // who names a driver without a PersistentVolume, by driver
	using   map[string]map[string][]string // pods with FlexVolumes by node and driver
	classes []*objects.FlexClass           // that make FlexVolumes
}

// look goes through all pods.
func (found *finisher) look(ctx context.Context) {
	byClaim := map[string]string{} // the FlexVolume driver of claims
	for _, pv := range found.volumes {
		if driver := pv.flexDriver(); driver != "" && pv.claim() != "" {
			byClaim[pv.claim()] = driver
		}
	}
	all, err := listAll(ctx, found.w, objects.Pods())
	if err != nil {
		found.problem("who uses FlexVolumes is not known: %v", err)
	}
	for _, pod := range all {
		if objects.PodFinished(pod) {
			continue
		}
		node := pod.Spec.NodeName
		if pod.Namespace == found.home && pod.Labels["app.kubernetes.io/component"] == "node" && node != "" {
			found.daemons[node] = pod.Name
		}
		for _, volume := range pod.Spec.Volumes {
			driver := byClaim[pod.Namespace+"/"+objects.ClaimName(pod.Name, &volume)]
			if volume.FlexVolume != nil {
				driver = volume.FlexVolume.Driver
			}
			if driver != "" && node != "" {
				found.use(node, driver, full(pod))
			}
		}
		for _, v := range objects.FlexVolumesInPod(pod) {
			use := objects.FlexUse{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, Volume: v.Name}
			found.inline[v.FlexVolume.Driver] = append(found.inline[v.FlexVolume.Driver], use.Names())
		}
	}
}

func (found *finisher) use(node, driver, pod string) {
	if found.using[node] == nil {
		found.using[node] = map[string][]string{}
	}
	if !slices.Contains(found.using[node][driver], pod) {
		found.using[node][driver] = append(found.using[node][driver], pod)
	}
}

// lookObjects finds what would make pods with FlexVolumes again, even if there is none now.
func (found *finisher) lookObjects(ctx context.Context) {
	uses, unread, err := found.w.flexUses(ctx)
	if err != nil {
		unread = append(unread, err.Error())
	}
	for _, text := range unread {
		found.problem("what makes pods with FlexVolumes: %s", text)
	}
	for _, u := range uses {
		found.inline[u.Driver] = append(found.inline[u.Driver], u.Names())
	}
}

// driver is about one FlexVolume driver.
func (found *finisher) driver(ctx context.Context, name string) DriverEnd {
	end := DriverEnd{FlexDriver: name}
	var left, unfinished []string
	for _, pv := range sorted(found.volumes) {
		if pv.flexDriver() == name {
			left = append(left, pv.Name)
		}
	}
	for _, r := range sorted(found.records) {
		if r.FlexDriver == name && r.Unfinished() {
			unfinished = append(unfinished, r.Volume)
		}
	}
	end.obstacle(unfinished, "migrations that are not finished", "flex2csi migrate resume, or rollback, with these names")
	do := cmp.Or(objects.Unsupported(name, false), "flex2csi migrate plan --driver "+report.Quote(name))
	end.obstacle(left, "PersistentVolumes that are FlexVolumes of it", do)
	end.obstacle(found.inline[name], "volumes in pods and their templates that name it without a PersistentVolume", "write them in another way: flex2csi migrate plan --all shows a replacement for those of running pods")
	end.obstacle(found.classesOf(name), "StorageClasses of which new claims become FlexVolumes", "flex2csi migrate classes shows their replacements; then delete them. An expansion goes by the claim's class: --same-name keeps the name")
	inCluster := len(end.Obstacles) == 0
	for _, node := range found.nodesOf(name) {
		n := NodeEnd{Node: node}
		found.node(ctx, &n, name)
		n.Free = len(n.Obstacles) == 0
		if n.Free && inCluster && found.daemons[node] != "" {
			n.Steps = []string{found.exec(node, "uninstall --driver "+report.Quote(name))}
		}
		end.Nodes = append(end.Nodes, n)
	}
	end.Free = inCluster && !slices.ContainsFunc(end.Nodes, func(n NodeEnd) bool { return !n.Free })
	if end.Free && len(end.Nodes) > 0 {
		end.Steps = []string{"take " + name + " out of config.yaml and apply that; then, on each node, what stands below (docs/uninstall.md, One driver)"}
	}
	return end
}

// exec is a command in the bridge's pod of a node.
func (found *finisher) exec(node, command string) string {
	return fmt.Sprintf("kubectl -n %s exec %s -c serve -- /flex2csi %s", found.home, found.daemons[node], command)
}

// obstacle notes what stands in the way, if anything does.
func (e *End) obstacle(objects []string, what, do string) {
	if len(objects) > 0 {
		e.Obstacles = append(e.Obstacles, Obstacle{What: what, Objects: objects, Do: do})
	}
}

// passing notes what should be gone in a moment.
func (e *End) passing(objects []string, what string) {
	if e.obstacle(objects, what, "wait a moment; if it lasts: flex2csi status on the node says why"); len(objects) > 0 {
		e.Obstacles[len(e.Obstacles)-1].Passing = true
	}
}

// nodesOf are those that have to do with a driver, or of which that is not known.
func (found *finisher) nodesOf(driver string) (all []string) {
	told := map[string]bool{}
	for _, d := range found.documents {
		told[d.Node] = true
		if d.Serves(driver) || slices.ContainsFunc(d.Volumes, func(v bridgestatus.NodeVolume) bool { return v.FlexDriver == driver }) {
			all = append(all, d.Node)
		}
	}
	all = slices.AppendSeq(all, maps.Keys(found.silent))
	for node := range found.daemons {
		if !told[node] {
			all = append(all, node)
		}
	}
	for node, drivers := range found.using {
		if len(drivers[driver]) > 0 {
			all = append(all, node)
		}
	}
	return compact(all)
}

// node is what needs a driver on a node.
func (found *finisher) node(ctx context.Context, n *NodeEnd, driver string) {
	n.obstacle(found.using[n.Node][driver], "pods with FlexVolumes of it", "migrate their volumes, or stop them")
	if why := found.silent[n.Node]; why != "" {
		n.obstacle([]string{why}, "what the bridge of the node has is not known", "look at its pod: kubectl -n "+found.home+" get pods -o wide")
		return
	}
	i := slices.IndexFunc(found.documents, func(d *bridgestatus.NodeVolumes) bool { return d.Node == n.Node })
	if i < 0 {
		n.obstacle([]string{"ConfigMap " + bridgestatus.Namespace + "/" + n.Node + " is not there"}, "what the bridge of the node has is not known", "kubectl apply -k install/migrate, and a minute later once more; unless flex2csi was uninstalled on the node, which takes it away")
		return
	}
	var mounts, gone, doubts []string
	for _, v := range found.documents[i].Volumes {
		if v.FlexDriver != driver {
			continue
		}
		for _, p := range v.Pods {
			switch pod := found.pod(ctx, "", p.UID); {
			case pod == nil:
				gone = append(gone, fmt.Sprintf("uid %s, volume %s", p.UID, v.PersistentVolume))
			case pod.DeletionTimestamp != nil || objects.PodFinished(pod):
				gone = append(gone, fmt.Sprintf("pod %s, volume %s", full(pod), v.PersistentVolume))
			default:
				mounts = append(mounts, fmt.Sprintf("pod %s, volume %s", full(pod), v.PersistentVolume))
			}
		}
		// What the kubelet's CSI plugin has as well is its own when no pod is left.
		if (len(v.Pods) == 0 && !v.TakenOver) || v.Uncertain {
			doubts = append(doubts, v.PersistentVolume)
		}
	}
	n.obstacle(mounts, "pods that have a mount of the bridge", "restart them when it suits: the new pod has the CSI volume alone, if it is migrated")
	n.passing(gone, "pods that are ending or gone, and have a mount of the bridge")
	n.passing(doubts, "volumes that the bridge has no pod for, or with which something is under way")
}
