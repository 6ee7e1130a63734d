package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/flex2csi/flex2csi/internal/objects"
)

// These methods make a request each time. They are for the sweeper, status and doctor.

// pageSize keeps answers small where there are thousands of objects.
const pageSize = 500

// listEach lists objects page by page, each page with its own deadline. what is what failed
// if one fails.
func listEach[T any, L interface {
	runtime.Object
	metav1.ListInterface
}](ctx context.Context, what string, o metav1.ListOptions, list func(context.Context, metav1.ListOptions) (L, error), do func(*T)) error {
	o.Limit = pageSize
	for {
		l, err := request(ctx, func(ctx context.Context) (L, error) { return list(ctx, o) })
		if err == nil {
			err = meta.EachListItem(l, func(item runtime.Object) error {
				do(any(item).(*T))
				return nil
			})
		}
		if err != nil {
			return wrapError(err, what)
		}
		if o.Continue = l.GetContinue(); o.Continue == "" {
			return nil
		}
	}
}

// orNone returns nil for an object that does not exist.
func orNone[T any](o *T, err error, what string) (*T, error) {
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // there is none
	case err != nil:
		return nil, wrapError(err, what)
	}
	return o, nil
}

// ListAttachments asks for all VolumeAttachments, or for those of flex2csi.
func (c *Cluster) ListAttachments(ctx context.Context, ours bool) ([]storagev1.VolumeAttachment, error) {
	selected := labels.Set{}
	if ours {
		selected[objects.ManagedByLabel] = objects.ManagedBy
	}
	return c.attachmentsWith(ctx, selected, "list VolumeAttachments")
}

// FindAttachments asks for flex2csi's VolumeAttachments of a PersistentVolume to a node.
func (c *Cluster) FindAttachments(ctx context.Context, persistentVolume, node string) ([]storagev1.VolumeAttachment, error) {
	return c.attachmentsWith(ctx, labels.Set{
		objects.ManagedByLabel:        objects.ManagedBy,
		objects.NodeLabel:             objects.LabelValue(node),
		objects.PersistentVolumeLabel: objects.LabelValue(persistentVolume),
	}, "look for VolumeAttachments of "+persistentVolume+" to node "+node)
}

func (c *Cluster) attachmentsWith(ctx context.Context, selected labels.Set, what string) (all []storagev1.VolumeAttachment, err error) {
	err = listEach(ctx, what, metav1.ListOptions{LabelSelector: selected.String()}, c.storage.VolumeAttachments().List, func(o *storagev1.VolumeAttachment) {
		all = append(all, slimAttachment(o))
	})
	return all, err
}

// GetAttachment asks for a VolumeAttachment by name; nil if there is none.
func (c *Cluster) GetAttachment(ctx context.Context, name string) (*storagev1.VolumeAttachment, error) {
	o, err := get(ctx, c.storage.VolumeAttachments(), name)
	return orNone(o, err, "look at VolumeAttachment "+name)
}

// slimAttachment returns a VolumeAttachment without volume attributes and attachment
// metadata.
func slimAttachment(o *storagev1.VolumeAttachment) storagev1.VolumeAttachment {
	slim := *o
	slim.ManagedFields, slim.Status.AttachmentMetadata = nil, nil
	if spec := o.Spec.Source.InlineVolumeSpec; spec != nil {
		slim.Spec.Source.InlineVolumeSpec = &corev1.PersistentVolumeSpec{AccessModes: spec.AccessModes}
		if spec.CSI != nil {
			slim.Spec.Source.InlineVolumeSpec.CSI = &corev1.CSIPersistentVolumeSource{Driver: spec.CSI.Driver, VolumeHandle: spec.CSI.VolumeHandle}
		}
	}
	return slim
}

// ListNodes asks for all nodes, and keeps only the parts of [slimNode]: there may be
// thousands.
func (c *Cluster) ListNodes(ctx context.Context) (all []corev1.Node, err error) {
	err = listEach(ctx, "list nodes", metav1.ListOptions{}, c.core.Nodes().List, func(o *corev1.Node) {
		all = append(all, slimNode(o))
	})
	return all, err
}

// GetNode asks for a node; nil if there is none.
func (c *Cluster) GetNode(ctx context.Context, name string) (*corev1.Node, error) {
	o, err := get(ctx, c.core.Nodes(), name)
	return orNone(o, err, "look at node "+name)
}

// slimNode returns a node without its large parts: labels, images, addresses and
// resources.
func slimNode(o *corev1.Node) corev1.Node {
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: o.Name, UID: o.UID},
		Spec:       corev1.NodeSpec{Taints: o.Spec.Taints},
		Status: corev1.NodeStatus{
			Conditions: o.Status.Conditions, NodeInfo: corev1.NodeSystemInfo{KubeletVersion: o.Status.NodeInfo.KubeletVersion},
			VolumesInUse: o.Status.VolumesInUse, VolumesAttached: o.Status.VolumesAttached,
		},
	}
}

// PodsOf asks for the pods of a node, and keeps only the parts of [slimPod].
func (c *Cluster) PodsOf(ctx context.Context, node string) (all []corev1.Pod, err error) {
	err = listEach(ctx, "list pods of node "+node, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node}, c.core.Pods("").List, func(o *corev1.Pod) {
		all = append(all, slimPod(o))
	})
	return all, err
}

// slimPod returns a pod without its containers. Of its volumes it keeps those with a
// claim and inline FlexVolumes.
func slimPod(o *corev1.Pod) corev1.Pod {
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: o.UID, DeletionTimestamp: o.DeletionTimestamp},
		Spec:       corev1.PodSpec{NodeName: o.Spec.NodeName},
		Status:     corev1.PodStatus{Phase: o.Status.Phase},
	}
	if uid := o.Annotations[objects.ConfigHash]; uid != "" {
		p.Annotations = map[string]string{objects.ConfigHash: uid}
	}
	for _, v := range o.Spec.Volumes {
		if v.Ephemeral != nil {
			v.Ephemeral = &corev1.EphemeralVolumeSource{} // the claim's name is enough
		}
		if v.PersistentVolumeClaim != nil || v.Ephemeral != nil || v.FlexVolume != nil {
			p.Spec.Volumes = append(p.Spec.Volumes, v)
		}
	}
	return p
}
