package kube

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/kubeobject"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// PVState returns the state of the PersistentVolume of a volume that this node has mounted as a FlexVolume,
// and the state of a pod of the node. It is one request unless the PersistentVolume
// was replaced.
func (c *Cluster) PVState(ctx context.Context, persistentVolume string, key csivol.Key, podUID string) (f csivol.PVState, err error) {
	pv, err := c.freshVolume(ctx, persistentVolume)
	switch {
	case err != nil && flex.CodeOf(err) == flex.CodeNotFound:
		f.Replaced, f.Gone = "is gone, or is being replaced", true
	case err != nil:
		return f, err
	case pv.CSI == csivol.Key{}:
		return f, nil
	default:
		f.Replaced = "is the CSI volume " + pv.CSI.String() + " by now"
	}
	pods, err := c.PodsOf(ctx, c.options.Node)
	if err != nil {
		return csivol.PVState{}, err
	}
	for i := range pods {
		p := &pods[i]
		switch {
		case kubeobject.PodFinished(p):
		case slices.Contains(kubeobject.PodUIDs(p), podUID):
			if kubeobject.InlineFlexVolume(p, persistentVolume) != nil {
				return csivol.PVState{}, nil // an inline volume of the pod, without a PersistentVolume
			}
			if p.DeletionTimestamp == nil {
				f.Pod = p.Namespace + "/" + p.Name
			}
		case pv != nil && pv.CSI == key && p.DeletionTimestamp == nil && kubeobject.PodUsesClaim(p, pv.Claim.Namespace, pv.Claim.Name):
			f.Next = p.Namespace + "/" + p.Name
		}
	}
	return f, nil
}

// ClaimUsed reports whether a pod of a node uses a claim, and has not finished.
func (c *Cluster) ClaimUsed(ctx context.Context, claim csivol.ObjectRef, node string) (used bool, err error) {
	what := "list pods of node " + node + " in namespace " + claim.Namespace
	err = each(ctx, what, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node}, c.core.Pods(claim.Namespace).List, func(p *corev1.Pod) {
		used = used || !kubeobject.PodFinished(p) && kubeobject.PodUsesClaim(p, claim.Namespace, claim.Name)
	})
	return used && err == nil, err
}
