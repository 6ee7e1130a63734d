package kube

import (
	"context"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/attachment"
	"github.com/flex2csi/flex2csi/internal/csivol"
)

// A census has all VolumeAttachments of the cluster at one moment. They cannot be
// selected by volume: those of the control plane, and those that a rollback puts in
// their place, have no label. But the name of each is a hash of volume and node.
type census struct {
	byName map[string]*storagev1.VolumeAttachment
	nodes  map[string][]string // nodes with volumes, by CSI driver
}

func (c *census) add(o *storagev1.VolumeAttachment) {
	if c.byName == nil {
		c.byName, c.nodes = map[string]*storagev1.VolumeAttachment{}, map[string][]string{}
	}
	c.byName[o.Name] = &storagev1.VolumeAttachment{ // without large fields
		ObjectMeta: metav1.ObjectMeta{Name: o.Name, UID: o.UID, CreationTimestamp: o.CreationTimestamp, DeletionTimestamp: o.DeletionTimestamp},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: o.Spec.Attacher, NodeName: o.Spec.NodeName},
		Status:     storagev1.VolumeAttachmentStatus{DetachError: o.Status.DetachError},
	}
}

// index is called when all objects were added.
func (c *census) index() {
	type place struct{ driver, node string }
	seen := map[place]bool{}
	for _, o := range c.byName {
		p := place{o.Spec.Attacher, o.Spec.NodeName}
		if !seen[p] {
			seen[p] = true
			c.nodes[p.driver] = append(c.nodes[p.driver], p.node)
		}
	}
}

// others returns the attachments of a volume to nodes other than the wanted one.
func (c *census) others(want *csivol.Attachment) (live, leaving []storagev1.VolumeAttachment) {
	for _, node := range c.nodes[want.Driver] {
		o := c.byName[attachment.Name(want.Handle, want.Driver, node)]
		switch {
		case node == want.Node || o == nil || o.Spec.NodeName != node || o.Spec.Attacher != want.Driver:
		case o.DeletionTimestamp != nil:
			leaving = append(leaving, *o)
		default:
			live = append(live, *o)
		}
	}
	return live, leaving
}

// takeCensus lists without a resourceVersion: the answer comes from etcd.
func (c *Cluster) takeCensus(ctx context.Context) (*census, error) {
	taken := &census{}
	err := each(ctx, "list VolumeAttachments", metav1.ListOptions{}, c.storage.VolumeAttachments().List, taken.add)
	taken.index()
	return taken, err
}
