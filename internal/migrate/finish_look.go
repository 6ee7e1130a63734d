package migrate

import (
	"context"
	"fmt"
	"slices"

	"github.com/flex2csi/flex2csi/internal/clusterview"
	"github.com/flex2csi/flex2csi/internal/nodevolumes"
	"github.com/flex2csi/flex2csi/internal/shell"
)

// finisher looks for what is in the way.
type finisher struct {
	*observed
	daemons map[string]string              // pods of the bridge by their node
	inline  map[string][]string            // who names a driver without a PersistentVolume, by driver
	using   map[string]map[string][]string // pods with FlexVolumes by node and driver
}

// look goes through all pods.
func (f *finisher) look(ctx context.Context) {
	byClaim := map[string]string{} // the FlexVolume driver of claims
	for _, pv := range f.volumes {
		if driver := pv.text("spec", "flexVolume", "driver"); driver != "" && claimOf(pv) != "" {
			byClaim[claimOf(pv)] = driver
		}
	}
	all, err := f.w.all(ctx, pods())
	if err != nil {
		f.problem("who uses FlexVolumes is not known: %v", err)
	}
	for _, pod := range all {
		node := pod.text("spec", "nodeName")
		labels := pod.pairs("metadata", "labels")
		if pod.namespace() == Namespace && labels["app.kubernetes.io/component"] == "node" && node != "" && !finished(pod.tree) {
			f.daemons[node] = pod.name()
		}
		if finished(pod.tree) {
			continue
		}
		for _, volume := range pod.list("spec", "volumes") {
			claim := volume.text("persistentVolumeClaim", "claimName")
			if volume.has("ephemeral") {
				claim = pod.name() + "-" + volume.text("name")
			}
			driver := volume.text("flexVolume", "driver")
			if driver == "" && claim != "" {
				driver = byClaim[pod.namespace()+"/"+claim]
			}
			if driver != "" && node != "" {
				f.use(node, driver, pod.full())
			}
		}
		if controllerOf(pod.tree) == nil { // else it is its owner's template
			f.name("Pod", pod, pod.sub("spec"))
		}
	}
}

func (f *finisher) use(node, driver, pod string) {
	if f.using[node] == nil {
		f.using[node] = map[string][]string{}
	}
	if !slices.Contains(f.using[node][driver], pod) {
		f.using[node][driver] = append(f.using[node][driver], pod)
	}
}

// name notes the FlexVolumes of a pod's specification.
func (f *finisher) name(kind string, o *Object, spec tree) {
	for _, volume := range spec.list("volumes") {
		if driver := volume.text("flexVolume", "driver"); driver != "" {
			f.inline[driver] = append(f.inline[driver], fmt.Sprintf("%s %s, volume %s", kind, o.full(), volume.text("name")))
		}
	}
}

// A workload is a kind of objects that make pods, and where their template is.
type workload struct {
	kind     string
	resource clusterview.Resource
	spec     []string
}

func workloads() []workload {
	template := []string{"spec", "template", "spec"}
	return []workload{
		{"Deployment", resource(apps, "deployments"), template},
		{"StatefulSet", statefulSets(), template},
		{"DaemonSet", daemonSets(), template},
		{"ReplicaSet", replicaSets(), template},
		{"ReplicationController", resource(core, "replicationcontrollers"), template},
		{"CronJob", resource("batch", "cronjobs"), []string{"spec", "jobTemplate", "spec", "template", "spec"}},
		{"Job", resource("batch", "jobs"), template},
	}
}

// lookTemplates finds who would make pods with FlexVolumes again, even if there
// is none now.
func (f *finisher) lookTemplates(ctx context.Context) {
	for _, kind := range workloads() {
		all, err := f.w.all(ctx, kind.resource)
		if err != nil {
			f.problem("whether a %s makes pods with FlexVolumes is not known: %v", kind.kind, err)
			continue
		}
		for _, o := range all {
			if controllerOf(o.tree) == nil {
				f.name(kind.kind, o, o.sub(kind.spec...))
			}
		}
	}
}

// driver is about one FlexVolume driver.
func (f *finisher) driver(ctx context.Context, name string) DriverEnd {
	end := DriverEnd{FlexDriver: name}
	var left, unfinished []string
	for _, pv := range sorted(f.volumes) {
		if pv.text("spec", "flexVolume", "driver") == name {
			left = append(left, pv.name())
		}
	}
	for _, r := range sorted(f.records) {
		if r.FlexDriver == name && r.Unfinished() {
			unfinished = append(unfinished, r.Volume)
		}
	}
	end.obstacle(unfinished, "migrations that are not finished", "flex2csi migrate resume, or rollback, with these names")
	end.obstacle(left, "PersistentVolumes that are FlexVolumes of it", "flex2csi migrate plan --driver "+name)
	end.obstacle(f.inline[name], "volumes in pods and their templates that name it without a PersistentVolume", "write them in another way: flex2csi migrate plan --all shows a replacement for those of running pods")
	inCluster := len(end.Obstacles) == 0
	for _, node := range f.nodesOf(name) {
		n := NodeEnd{Node: node}
		f.node(ctx, &n, name)
		n.Free = len(n.Obstacles) == 0
		if n.Free && inCluster && f.daemons[node] != "" {
			n.Steps = []string{f.exec(node, "uninstall --driver "+shell.Quote(name))}
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
func (f *finisher) exec(node, command string) string {
	return fmt.Sprintf("kubectl -n %s exec %s -c serve -- /flex2csi %s", Namespace, f.daemons[node], command)
}

// obstacle notes what stands in the way, if anything does.
func (e *End) obstacle(objects []string, what, do string) {
	if len(objects) > 0 {
		e.Obstacles = append(e.Obstacles, Obstacle{What: what, Objects: objects, Do: do})
	}
}

// nodesOf are those that have to do with a driver, or of which that is not known.
func (f *finisher) nodesOf(driver string) []string {
	all := map[string]bool{}
	told := map[string]bool{}
	for _, d := range f.documents {
		told[d.Node] = true
		if d.Serves(driver) || slices.ContainsFunc(d.Volumes, func(v nodevolumes.Volume) bool { return v.FlexDriver == driver }) {
			all[d.Node] = true
		}
	}
	for node := range f.silent {
		all[node] = true
	}
	for node := range f.daemons {
		all[node] = all[node] || !told[node]
	}
	for node, drivers := range f.using {
		all[node] = all[node] || len(drivers[driver]) > 0
	}
	var names []string
	for node, is := range all {
		if is {
			names = append(names, node)
		}
	}
	slices.Sort(names)
	return names
}

// node is what needs a driver on a node.
func (f *finisher) node(ctx context.Context, n *NodeEnd, driver string) {
	n.obstacle(f.using[n.Node][driver], "pods with FlexVolumes of it", "migrate their volumes, or stop them")
	if why := f.silent[n.Node]; why != "" {
		n.obstacle([]string{why}, "what the bridge of the node has is not known", "look at its pod: kubectl -n "+Namespace+" get pods -o wide")
		return
	}
	i := slices.IndexFunc(f.documents, func(d *nodevolumes.Document) bool { return d.Node == n.Node })
	if i < 0 {
		n.obstacle([]string{"ConfigMap " + nodevolumes.Namespace + "/" + n.Node + " is not there"}, "what the bridge of the node has is not known", "kubectl apply -k install/migrate, and a minute later once more; unless flex2csi was uninstalled on the node, which takes it away")
		return
	}
	var mounts, doubts []string
	for _, v := range f.documents[i].Volumes {
		if v.FlexDriver != driver {
			continue
		}
		for _, p := range v.Pods {
			mounts = append(mounts, fmt.Sprintf("%s, volume %s", f.mountOf(ctx, p.UID), v.PersistentVolume))
		}
		// What the kubelet's CSI plugin has as well is its own when no pod is left.
		if len(v.Pods) == 0 && !v.TakenOver || v.InDoubt {
			doubts = append(doubts, v.PersistentVolume)
		}
	}
	n.obstacle(mounts, "pods that have a mount of the bridge", "restart them when it suits: the new pod has the CSI volume alone, if it is migrated. One that is gone: flex2csi status on the node")
	n.obstacle(doubts, "volumes that the bridge has no pod for, or with which something is under way", "wait a moment; if it lasts: flex2csi status on the node says why")
}

// mountOf names the pod of a mount.
func (f *finisher) mountOf(ctx context.Context, uid string) string {
	if name := f.pod(ctx, "", uid); name != "" {
		return "pod " + name
	}
	return "a pod that is gone (uid " + uid + ")"
}
