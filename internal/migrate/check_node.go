package migrate

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/distribution"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// nodeChecks are about the nodes of the pods.
func nodeChecks() []check {
	return []check{
		{"node", "that the nodes of the pods are there and Ready, run a release that can take the volume over, and leave attaching to the control plane where the driver attaches", (*subject).rendered, (*subject).checkNodes},
		{"csi-node", "that the CSI driver is registered with the kubelets of the pods", (*subject).rendered, (*subject).checkRegistered},
		{"bridge", "that each pod has the volume from the bridge, and how it is staged", (*subject).rendered, (*subject).checkBridges},
	}
}

func (s *subject) checkNodes(ctx context.Context, f *findings) error {
	for _, name := range s.v.nodes() {
		node, err := get(ctx, s.w, objects.Nodes(), "", name)
		if err != nil {
			return err
		}
		s.checkNode(f, name, node)
	}
	return nil
}

func (s *subject) checkNode(f *findings, name string, node *corev1.Node) {
	if node == nil {
		f.fails("delete its pods", "node %s is gone, and still has pods of the claim", name)
		return
	}
	if !objects.NodeReady(node) {
		s.v.unready = true
		f.notLive("plan again when it is", "node %s is not Ready: its kubelet can neither mount nor stop a pod", name)
	}
	checkRelease(f, name, node.Status.NodeInfo.KubeletVersion)
	if s.attaches() && objects.AttachesItself(node) {
		f.fails("set enableControllerAttachDetach: true in the kubelet's configuration, when the old driver does not need false any more",
			"the kubelet of node %s attaches by itself (no annotation %s), which it may not do for CSI driver %s", name, objects.ControllerAttaches, s.v.CSIDriver)
	}
}

// checkRelease: not every kubelet can take a volume over while a pod has it.
func checkRelease(f *findings, node, version string) {
	const what = "the kubelet of node %s is %s"
	minor, ok := distribution.ParseMinor(version)
	switch {
	case !ok:
		f.decide("find out what it is", what+", which is no release of Kubernetes that is known", node, orNone(version))
	case !minor.Has(distribution.StagingPath()):
		f.fails(fmt.Sprintf("upgrade the node to %s, or leave the volume on the bridge", distribution.StagingPath().Since),
			what+": %s", node, version, distribution.StagingPath().Without)
	case !minor.Has(distribution.Reconstruction()):
		f.notLive(fmt.Sprintf("let the pod restart for it (--rolling) or stop it (--offline), or upgrade the node to %s", distribution.Reconstruction().Since),
			what+": %s", node, version, distribution.Reconstruction().Without)
	case !slices.Contains(distribution.TestedMinors(), minor):
		f.decide("try it on a volume that you can lose", what+"; flex2csi is tested with %s", node, version, distribution.TestedText())
	}
}

// checkRegistered: the kubelet mounts with drivers that have registered with it.
func (s *subject) checkRegistered(ctx context.Context, f *findings) error {
	nodes := s.v.nodes()
	if len(nodes) == 0 {
		return s.checkSomewhere(ctx, f)
	}
	for _, name := range nodes {
		o, err := get(ctx, s.w, objects.CSINodes(), "", name)
		switch {
		case err != nil:
			return err
		case o == nil || !registered(o, s.v.CSIDriver):
			f.fails("look at the CSI driver's pod on that node", "CSI driver %s is not registered with the kubelet of node %s (CSINode)", s.v.CSIDriver, name)
		default:
			f.ok("CSI driver %s is registered on node %s", s.v.CSIDriver, name)
		}
	}
	return nil
}

func registered(n *storagev1.CSINode, driver string) bool {
	return slices.ContainsFunc(n.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == driver })
}

// checkSomewhere: where no pod runs, it is enough that the driver is there at all.
func (s *subject) checkSomewhere(ctx context.Context, f *findings) error {
	all, err := listAll(ctx, s.w, objects.CSINodes())
	if err != nil {
		return err
	}
	var with int
	for _, o := range all {
		if registered(o, s.v.CSIDriver) {
			with++
		}
	}
	switch {
	case with == 0:
		f.fails("install the CSI driver", "CSI driver %s is registered on none of %d nodes (CSINode)", s.v.CSIDriver, len(all))
	case with < len(all):
		f.note("", "CSI driver %s is registered on %d of %d nodes: pods of the claim can start on these only", s.v.CSIDriver, with, len(all))
	default:
		f.ok("CSI driver %s is registered on all %d nodes", s.v.CSIDriver, with)
	}
	return nil
}

func (s *subject) checkBridges(ctx context.Context, f *findings) error {
	for _, p := range s.v.Pods {
		if p.Node == "" {
			continue
		}
		if node, err := get(ctx, s.w, objects.Nodes(), "", p.Node); err == nil && node != nil { // else checkNodes says so
			s.checkBridge(f, p, node, s.w.bridge(ctx, p.Node))
		}
	}
	return nil
}

// forBridge is what to do about a pod that does not have its volume from the bridge.
const forBridge = "restart the pod (all pods with the driver's volumes at once where the old driver attaches: docs/install.md), which then has it from the bridge, and plan again a minute later; or stop it, and use --offline"

// checkBridge: the pod must have its volume from the bridge, staged where the
// kubelet would stage it: then the kubelet's NodeStageVolume repeats what is
// done already, and the first of the two to let go leaves it to the other.
func (s *subject) checkBridge(f *findings, p Pod, node *corev1.Node, b *bridgeOf) {
	object := "ConfigMap " + bridgestatus.Namespace + "/" + p.Node
	notLive := func(evidence string, args ...any) {
		f.notLive(forBridge, evidence, args...)
	}
	switch {
	case b.problem != "":
		notLive("what the bridge of node %s has cannot be read: %s (%s)", p.Node, b.problem, object)
		return
	case b.document == nil:
		f.notLive("kubectl apply -k install/migrate, if that was not done, and plan again a minute later; where there is no bridge, stop the pod, and use --offline",
			"nothing says that pod %s has the volume from the bridge: the bridge of node %s has written no %s", p.Name, p.Node, object)
		return
	case !ofThisBoot(b.document, node):
		notLive("%s is of before node %s was started the last time", object, p.Node)
		return
	}
	v := b.document.Find(s.v.CSIDriver, s.v.Handle)
	switch {
	case (v == nil || !v.Has(p.UID)) && p.Phase == "Pending":
		notLive("pod %s is not running yet: it may be about to mount the volume", p.Name)
	case v == nil || !v.Has(p.UID):
		notLive("pod %s does not have the volume from the bridge of node %s, so from a driver that would not hand it over (%s, written %s)", p.Name, p.Node, object, b.document.Written.Format("15:04:05"))
	case v.PersistentVolume != s.v.Name:
		notLive("the bridge of node %s has the volume for PersistentVolume %s", p.Node, v.PersistentVolume)
	case v.Uncertain:
		notLive("something is under way, or has failed half-way, with the volume on node %s: flex2csi status there says what", p.Node)
	case v.Staged == bridgestatus.StagedElsewhere:
		notLive("the bridge of node %s has it staged where the kubelet would not; delete its pods there, and it is staged again", p.Node)
	default:
		f.ok("pod %s has it from the bridge of node %s, %s (%s)", p.Name, p.Node, staged(v), object)
	}
}

func staged(v *bridgestatus.NodeVolume) string {
	if v.Staged == bridgestatus.NotStaged {
		return "and the CSI driver does not stage"
	}
	return "staged where the kubelet would stage it"
}
