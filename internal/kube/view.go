package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/flex2csi/flex2csi/internal/attachment"
	"github.com/flex2csi/flex2csi/internal/clusterview"
	"github.com/flex2csi/flex2csi/internal/csivol"
)

// What follows asks the API server each time, for those who look at a cluster
// now and then: the sweeper, status and doctor.

// pageSize keeps answers small where there are thousands of objects.
const pageSize = 500

// pages asks for a list piece by piece, each with a deadline of its own.
func pages[L metav1.ListInterface](ctx context.Context, o metav1.ListOptions, list func(context.Context, metav1.ListOptions) (L, error), each func(L)) error {
	o.Limit = pageSize
	for {
		l, err := request(ctx, func(ctx context.Context) (L, error) { return list(ctx, o) })
		if err != nil {
			return err
		}
		each(l)
		if o.Continue = l.GetContinue(); o.Continue == "" {
			return nil
		}
	}
}

// ListAttachments asks for all VolumeAttachments, or for those that flex2csi has
// made.
func (c *Cluster) ListAttachments(ctx context.Context, ours bool) ([]clusterview.Attachment, error) {
	selected := labels.Set{}
	if ours {
		selected[attachment.ManagedByLabel] = attachment.ManagedBy
	}
	return c.attachmentsWith(ctx, selected, "list VolumeAttachments")
}

// FindAttachments asks for those of flex2csi that attach a PersistentVolume to a
// node.
func (c *Cluster) FindAttachments(ctx context.Context, persistentVolume, node string) ([]clusterview.Attachment, error) {
	return c.attachmentsWith(ctx, labels.Set{
		attachment.ManagedByLabel:        attachment.ManagedBy,
		attachment.NodeLabel:             attachment.LabelValue(node),
		attachment.PersistentVolumeLabel: attachment.LabelValue(persistentVolume),
	}, "look for VolumeAttachments of "+persistentVolume+" to node "+node)
}

func (c *Cluster) attachmentsWith(ctx context.Context, selected labels.Set, what string) (all []clusterview.Attachment, err error) {
	err = pages(ctx, metav1.ListOptions{LabelSelector: selected.String()}, c.storage.VolumeAttachments().List, func(l *storagev1.VolumeAttachmentList) {
		for i := range l.Items {
			all = append(all, attachmentView(&l.Items[i]))
		}
	})
	if err != nil {
		return nil, failed(err, what)
	}
	return all, nil
}

// GetAttachment asks for the VolumeAttachment of a name; nil if there is none.
func (c *Cluster) GetAttachment(ctx context.Context, name string) (*clusterview.Attachment, error) {
	o, err := request(ctx, func(ctx context.Context) (*storagev1.VolumeAttachment, error) {
		return c.storage.VolumeAttachments().Get(ctx, name, metav1.GetOptions{})
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // there is none
	case err != nil:
		return nil, failed(err, "look at VolumeAttachment "+name)
	}
	a := attachmentView(o)
	return &a, nil
}

func attachmentView(o *storagev1.VolumeAttachment) clusterview.Attachment {
	t := told(o)
	a := clusterview.Attachment{
		Name: o.Name, Driver: o.Spec.Attacher, Node: o.Spec.NodeName,
		Ours: managed(o), FlexDriver: t.FlexDriver, By: o.Labels[attachment.AttachedByLabel],
		Pod:              o.Annotations[attachment.PodAnnotation],
		PersistentVolume: t.Name, Handle: t.Handle, Attached: o.Status.Attached,
		AttachError: textOf(o.Status.AttachError), DetachError: textOf(o.Status.DetachError),
		Created: o.CreationTimestamp.Time, Finalizers: o.Finalizers,
	}
	if name := o.Spec.Source.PersistentVolumeName; name != nil && a.PersistentVolume == "" {
		a.PersistentVolume = *name
	}
	if spec := o.Spec.Source.InlineVolumeSpec; spec != nil {
		a.AccessModes = accessModes(spec.AccessModes)
	}
	if o.DeletionTimestamp != nil {
		a.Deleted = o.DeletionTimestamp.Time
	}
	return a
}

// textOf is the CSI driver's word; empty if there is none.
func textOf(e *storagev1.VolumeError) string {
	if e == nil {
		return ""
	}
	return driverText(e)
}

func accessModes(modes []corev1.PersistentVolumeAccessMode) (all []csivol.AccessMode) {
	for _, m := range modes {
		all = append(all, csivol.AccessMode(m))
	}
	return all
}

// ListNodes asks for all nodes.
func (c *Cluster) ListNodes(ctx context.Context) (all []clusterview.Node, err error) {
	err = pages(ctx, metav1.ListOptions{}, c.core.Nodes().List, func(l *corev1.NodeList) {
		for i := range l.Items {
			all = append(all, nodeView(&l.Items[i]))
		}
	})
	if err != nil {
		return nil, failed(err, "list nodes")
	}
	return all, nil
}

// GetNode asks for a node; nil if there is none.
func (c *Cluster) GetNode(ctx context.Context, name string) (*clusterview.Node, error) {
	o, err := request(ctx, func(ctx context.Context) (*corev1.Node, error) {
		return c.core.Nodes().Get(ctx, name, metav1.GetOptions{})
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // there is none
	case err != nil:
		return nil, failed(err, "look at node "+name)
	}
	n := nodeView(o)
	return &n, nil
}

func nodeView(o *corev1.Node) clusterview.Node {
	n := clusterview.Node{Name: o.Name, KubeletVersion: o.Status.NodeInfo.KubeletVersion, Devices: map[string]string{}}
	for _, condition := range o.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			n.Ready = condition.Status == corev1.ConditionTrue
		}
	}
	for _, taint := range o.Spec.Taints {
		n.OutOfService = n.OutOfService || taint.Key == corev1.TaintNodeOutOfService
	}
	for _, v := range o.Status.VolumesInUse {
		n.VolumesInUse = append(n.VolumesInUse, string(v))
	}
	for _, v := range o.Status.VolumesAttached {
		n.VolumesAttached = append(n.VolumesAttached, string(v.Name))
		n.Devices[string(v.Name)] = v.DevicePath
	}
	return n
}

// configHash is what a kubelet calls a static pod by
// (pkg/kubelet/types/pod_update.go, ConfigHashAnnotationKey, Kubernetes v1.37.1).
const configHash = "kubernetes.io/config.hash"

// PodsOf asks for the pods of a node.
func (c *Cluster) PodsOf(ctx context.Context, node string) (all []clusterview.Pod, err error) {
	err = pages(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node}, c.core.Pods("").List, func(l *corev1.PodList) {
		for i := range l.Items {
			all = append(all, podView(&l.Items[i]))
		}
	})
	if err != nil {
		return nil, failed(err, "list pods of node "+node)
	}
	return all, nil
}

func podView(o *corev1.Pod) clusterview.Pod {
	p := clusterview.Pod{
		Namespace: o.Namespace, Name: o.Name, Node: o.Spec.NodeName, UIDs: []string{string(o.UID)},
		Terminating: o.DeletionTimestamp != nil,
		Finished:    o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed,
	}
	if uid := o.Annotations[configHash]; uid != "" {
		p.UIDs = append(p.UIDs, uid)
	}
	for _, v := range o.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			p.Claims = append(p.Claims, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			// pkg/volume/util (component-helpers), VolumeClaimName.
			p.Claims = append(p.Claims, o.Name+"-"+v.Name)
		case v.FlexVolume != nil:
			p.FlexVolumes = append(p.FlexVolumes, clusterview.FlexVolume{Driver: v.FlexVolume.Driver, Name: v.Name})
		}
	}
	return p
}
