package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// PutNodeVolumes writes the report of this node into the ConfigMap with the node's name.
// The ConfigMap is deleted with the node.
func (c *Cluster) PutNodeVolumes(ctx context.Context, document string) error {
	name := c.options.Node
	what := "write ConfigMap " + bridgestatus.Namespace + "/" + name
	node, err := get(ctx, c.core.Nodes(), name)
	if err != nil {
		return wrapError(err, "look at node "+name)
	}
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name:            name,
			Labels:          map[string]string{objects.ManagedByLabel: objects.ManagedBy, bridgestatus.Label: "true"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: node.UID}},
		},
		Data: map[string]string{bridgestatus.Key: document},
	}
	maps := c.core.ConfigMaps(bridgestatus.Namespace)
	_, err = request(ctx, func(ctx context.Context) (*corev1.ConfigMap, error) {
		return maps.Update(ctx, object, metav1.UpdateOptions{}) // of any version: there is one writer
	})
	if apierrors.IsNotFound(err) {
		_, err = request(ctx, func(ctx context.Context) (*corev1.ConfigMap, error) {
			return maps.Create(ctx, object, metav1.CreateOptions{})
		})
	}
	if err != nil {
		return wrapError(err, what)
	}
	return nil
}

// DropNodeVolumes deletes the ConfigMap of a node when flex2csi is uninstalled there.
// It does not exist where nodes may not write one.
func (c *Cluster) DropNodeVolumes(ctx context.Context, node string) error {
	_, err := request(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.core.ConfigMaps(bridgestatus.Namespace).Delete(ctx, node, metav1.DeleteOptions{})
	})
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil
	}
	return wrapError(err, "delete ConfigMap "+bridgestatus.Namespace+"/"+node)
}
