package kube

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/csivol"
)

// A Node is what there is to know of one.
type Node struct {
	Name  string
	Ready bool
	// OutOfService: a person has said that it is, and that its volumes may be
	// taken off it (taint node.kubernetes.io/out-of-service).
	OutOfService bool
	// InUse is what the kubelet uses or is about to, Attached what the control
	// plane has attached: unique names of volumes.
	InUse, Attached []string
}

// Node asks for a node; nil if there is none.
func (c *Cluster) Node(ctx context.Context, name string) (*Node, error) {
	o, err := request(ctx, func(ctx context.Context) (*corev1.Node, error) {
		return c.core.Nodes().Get(ctx, name, metav1.GetOptions{})
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // there is none
	case err != nil:
		return nil, failed(err, "look at node "+name)
	}
	n := &Node{Name: name}
	for _, condition := range o.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			n.Ready = condition.Status == corev1.ConditionTrue
		}
	}
	for _, taint := range o.Spec.Taints {
		n.OutOfService = n.OutOfService || taint.Key == corev1.TaintNodeOutOfService
	}
	for _, v := range o.Status.VolumesInUse {
		n.InUse = append(n.InUse, string(v))
	}
	for _, v := range o.Status.VolumesAttached {
		n.Attached = append(n.Attached, string(v.Name))
	}
	return n, nil
}

// csiPrefix begins the unique names of the volumes of a CSI driver
// (pkg/volume/csi/csi_plugin.go, GetVolumeName; pkg/volume/util/util.go,
// GetUniqueVolumeName, Kubernetes v1.37.1).
func csiPrefix(driver string) string { return "kubernetes.io/csi/" + driver + "^" }

// csiVolumes counts the volumes of a CSI driver that the control plane has
// attached.
func (n *Node) csiVolumes(driver string) (count int) {
	for _, name := range n.Attached {
		if strings.HasPrefix(name, csiPrefix(driver)) {
			count++
		}
	}
	return count
}

// registered asks for what the kubelet says of a CSI driver on a node: whether
// it is there, and how many volumes it can have, 0 if that is not said.
func (c *Cluster) registered(ctx context.Context, node, driver string) (found bool, limit int, err error) {
	o, err := request(ctx, func(ctx context.Context) (*storagev1.CSINode, error) {
		return c.storage.CSINodes().Get(ctx, node, metav1.GetOptions{})
	})
	if apierrors.IsNotFound(err) {
		return false, 0, nil
	}
	if err != nil {
		return false, 0, failed(err, "look at CSINode "+node)
	}
	for _, d := range o.Spec.Drivers {
		if d.Name != driver {
			continue
		}
		if d.Allocatable != nil && d.Allocatable.Count != nil {
			limit = int(*d.Allocatable.Count)
		}
		return true, limit, nil
	}
	return false, 0, nil
}

// podsOf asks for the pods of a node that use a claim and are not over.
func (c *Cluster) podsOf(ctx context.Context, node string, claim csivol.ObjectRef) ([]string, error) {
	list, err := request(ctx, func(ctx context.Context) (*corev1.PodList, error) {
		return c.core.Pods(claim.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	})
	if err != nil {
		return nil, failed(err, "look for pods on node "+node+" in namespace "+claim.Namespace)
	}
	var names []string
	for i := range list.Items {
		p := &list.Items[i]
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		for _, v := range p.Spec.Volumes {
			if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.Name {
				names = append(names, p.Namespace+"/"+p.Name)
			}
		}
	}
	return names, nil
}
