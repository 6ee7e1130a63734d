package migrate

import (
	"context"
	"slices"
	"strings"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/kubeobject"
	"github.com/flex2csi/flex2csi/internal/nodevolumes"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// tested are the kubelets that a hand-over under running pods was tested with.
// TestTested in test/cluster/migrate compares them with the project's.
func tested() []string { return []string{"v1.36.", "v1.37."} }

// controllerAttaches is how a kubelet says on its Node that it leaves attaching
// to the control plane (enableControllerAttachDetach; pkg/volume/util/util.go,
// ControllerManagedAttachAnnotation, Kubernetes v1.37.1).
const controllerAttaches = "volumes.kubernetes.io/controller-managed-attach-detach"

// checkNodes looks at each node that has a pod of the claim.
func (j *judge) checkNodes(ctx context.Context) {
	seen := map[string]bool{}
	for _, p := range j.v.Pods {
		if p.Node == "" {
			continue
		}
		if !seen[p.Node] {
			seen[p.Node] = true
			j.checkNode(ctx, p.Node)
		}
		j.checkBridge(ctx, p)
	}
	if len(seen) == 0 {
		j.checkSomewhere(ctx)
	}
}

func (j *judge) checkNode(ctx context.Context, name string) {
	node, err := get(ctx, j.w, objects.Nodes(), "", name)
	if err != nil {
		j.unknown("node", err)
		return
	}
	if node == nil {
		j.check("node", Fails, "delete its pods", "node %s is gone, and still has pods of the claim", name)
		return
	}
	if !kubeobject.NodeReady(node) {
		j.check("node", NotLive, "plan again when it is", "node %s is not Ready", name)
	}
	version := node.Status.NodeInfo.KubeletVersion
	if !slices.ContainsFunc(tested(), func(v string) bool { return strings.HasPrefix(version, v) }) {
		j.check("node", Decide, "try it on a volume that nobody misses", "the kubelet of node %s is %s; handing over was tested with %s*", name, orNone(version), strings.Join(tested(), "*, "))
	}
	if j.attaches() && node.Annotations[controllerAttaches] != "true" {
		j.check("node", Fails, "set enableControllerAttachDetach: true in the kubelet's configuration, when the old driver does not need false any more",
			"the kubelet of node %s attaches by itself (no annotation %s), which it may not do for CSI driver %s", name, controllerAttaches, j.v.CSIDriver)
	}
	j.checkRegistered(ctx, name)
}

// checkRegistered: the kubelet mounts with drivers that have registered with it.
func (j *judge) checkRegistered(ctx context.Context, name string) {
	o, err := get(ctx, j.w, objects.CSINodes(), "", name)
	switch {
	case err != nil:
		j.unknown("csi-node", err)
	case o == nil || !registered(o, j.v.CSIDriver):
		j.check("csi-node", Fails, "look at the CSI driver's pod on that node", "CSI driver %s is not registered with the kubelet of node %s (CSINode)", j.v.CSIDriver, name)
	default:
		j.check("csi-node", OK, "", "CSI driver %s is registered on node %s", j.v.CSIDriver, name)
	}
}

func registered(n *storagev1.CSINode, driver string) bool {
	return slices.ContainsFunc(n.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == driver })
}

// checkSomewhere: where no pod runs, it is enough that the driver is there at all.
func (j *judge) checkSomewhere(ctx context.Context) {
	all, err := every(ctx, j.w, objects.CSINodes())
	if err != nil {
		j.unknown("csi-node", err)
		return
	}
	var with int
	for _, o := range all {
		if registered(o, j.v.CSIDriver) {
			with++
		}
	}
	switch {
	case with == 0:
		j.check("csi-node", Fails, "install the CSI driver", "CSI driver %s is registered on none of %d nodes (CSINode)", j.v.CSIDriver, len(all))
	case with < len(all):
		j.check("csi-node", Note, "", "CSI driver %s is registered on %d of %d nodes: pods of the claim can start on these only", j.v.CSIDriver, with, len(all))
	default:
		j.check("csi-node", OK, "", "CSI driver %s is registered on all %d nodes", j.v.CSIDriver, with)
	}
}

// checkBridge: the pod must have its volume from the bridge, staged where the
// kubelet would stage it: then the kubelet's NodeStageVolume repeats what is
// done already, and whoever lets go first leaves it to the other.
func (j *judge) checkBridge(ctx context.Context, p Pod) {
	node, err := get(ctx, j.w, objects.Nodes(), "", p.Node)
	if err != nil || node == nil {
		return // checkNode has said so
	}
	b := j.w.bridge(ctx, p.Node)
	object := "ConfigMap " + nodevolumes.Namespace + "/" + p.Node
	notLive := func(evidence string, args ...any) {
		j.check("bridge", NotLive, "stop the pod for it", evidence, args...)
	}
	switch {
	case b.problem != "":
		notLive("what the bridge of node %s has cannot be read: %s (%s)", p.Node, b.problem, object)
		return
	case b.document == nil:
		j.check("bridge", NotLive, "kubectl apply -k install/migrate, if that was not done, and plan again a minute later; where there is no bridge, stop the pod for it",
			"nothing says that pod %s has the volume from the bridge: that of node %s has written no %s", p.Name, p.Node, object)
		return
	case !ofThisBoot(b.document, node):
		notLive("%s is of before node %s was started the last time", object, p.Node)
		return
	}
	v := b.document.Find(j.v.CSIDriver, j.v.Handle)
	switch {
	case (v == nil || !v.Has(p.UID)) && p.Phase == "Pending":
		notLive("pod %s is not running yet: it may be about to mount the volume", p.Name)
	case v == nil || !v.Has(p.UID):
		notLive("pod %s does not have the volume from the bridge of node %s, so from a driver that would not hand it over (%s, written %s)", p.Name, p.Node, object, b.document.Written.Format("15:04:05"))
	case v.PersistentVolume != j.v.Name:
		notLive("the bridge of node %s has the volume for PersistentVolume %s", p.Node, v.PersistentVolume)
	case v.InDoubt:
		notLive("something is under way, or has failed half-way, with the volume on node %s: flex2csi status there says what", p.Node)
	case v.Staged == nodevolumes.StagedElsewhere:
		notLive("the bridge of node %s has it staged where the kubelet would not (stagingRoot)", p.Node)
	default:
		j.check("bridge", OK, "", "pod %s has it from the bridge of node %s, %s (%s)", p.Name, p.Node, staged(v), object)
	}
}

func staged(v *nodevolumes.Volume) string {
	if v.Staged == nodevolumes.StagedByNobody {
		return "and the CSI driver does not stage"
	}
	return "staged where the kubelet would stage it"
}
