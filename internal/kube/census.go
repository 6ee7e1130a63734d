package kube

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/attachment"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/shared"
)

// places are the nodes with volumes, by CSI driver. With a node the name of an attachment
// is known: a hash of volume and node.
type places struct {
	mu    sync.Mutex
	nodes map[string]map[string]bool
}

func (p *places) add(o *storagev1.VolumeAttachment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.nodes == nil {
		p.nodes = map[string]map[string]bool{}
	}
	if p.nodes[o.Spec.Attacher] == nil {
		p.nodes[o.Spec.Attacher] = map[string]bool{}
	}
	p.nodes[o.Spec.Attacher][o.Spec.NodeName] = true
}

// others returns the attachments of a volume to nodes other than the wanted one.
func (p *places) others(want *csivol.Attachment, get func(name string) (*storagev1.VolumeAttachment, bool)) (live, leaving []storagev1.VolumeAttachment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for node := range p.nodes[want.Driver] {
		o, ok := get(attachment.Name(want.Handle, want.Driver, node))
		switch {
		case node == want.Node || !ok || o.Spec.NodeName != node || o.Spec.Attacher != want.Driver:
		case o.DeletionTimestamp != nil:
			leaving = append(leaving, *o)
		default:
			live = append(live, *o)
		}
	}
	return live, leaving
}

// A census has VolumeAttachments of all nodes at one moment.
type census struct {
	places
	byName map[string]*storagev1.VolumeAttachment
}

func (c *census) add(o *storagev1.VolumeAttachment) {
	if c.byName == nil {
		c.byName = map[string]*storagev1.VolumeAttachment{}
	}
	trimElsewhere(o)
	c.byName[o.Name] = o
	c.places.add(o)
}

func (c *census) others(want *csivol.Attachment) (live, leaving []storagev1.VolumeAttachment) {
	return c.places.others(want, func(name string) (*storagev1.VolumeAttachment, bool) {
		o, ok := c.byName[name]
		return o, ok
	})
}

// trimElsewhere keeps what identifies an attachment to another node.
func trimElsewhere(o *storagev1.VolumeAttachment) {
	o.ObjectMeta = metav1.ObjectMeta{
		Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
		CreationTimestamp: o.CreationTimestamp, DeletionTimestamp: o.DeletionTimestamp,
	}
	o.Spec.Source = storagev1.VolumeAttachmentSource{}
	o.Status = storagev1.VolumeAttachmentStatus{DetachError: o.Status.DetachError}
}

// everywhere says which nodes have a volume. The lists have no resourceVersion: they are
// consistent. Concurrent callers share them.
type everywhere struct {
	ours, others shared.Answer[*census]

	mu    sync.Mutex
	asked map[string]int // callers, by the label of their volume
}

func (e *everywhere) ask(volume string, callers int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.asked == nil {
		e.asked = map[string]int{}
	}
	if e.asked[volume] += callers; e.asked[volume] == 0 {
		delete(e.asked, volume)
	}
}

// volumesInRequest bounds the length of a URL: a proxy in front of the API server may
// accept no more than 8 KiB.
const volumesInRequest = 100

// listOurs lists flex2csi's attachments of the volumes that callers ask for. The answer
// does not grow with the cluster. It has no limit, which the API server would read from
// etcd (k8s.io/apiserver/pkg/storage/cacher/delegator.go, Kubernetes v1.31).
func (c *Cluster) listOurs(ctx context.Context) (*census, error) {
	c.everywhere.mu.Lock()
	volumes := slices.Sorted(maps.Keys(c.everywhere.asked))
	c.everywhere.mu.Unlock()
	taken := &census{}
	for some := range slices.Chunk(volumes, volumesInRequest) {
		selected := metav1.ListOptions{LabelSelector: attachment.VolumeLabel + " in (" + strings.Join(some, ",") + ")"}
		list, err := request(ctx, func(ctx context.Context) (*storagev1.VolumeAttachmentList, error) {
			return c.storage.VolumeAttachments().List(ctx, selected)
		})
		if err != nil {
			return nil, failed(err, "list VolumeAttachments")
		}
		for i := range list.Items {
			taken.add(&list.Items[i])
		}
	}
	return taken, nil
}

// unlabeled selects the attachments that flex2csi has not made: those of the control
// plane, and those that a rollback puts in their place.
const unlabeled = "!" + attachment.VolumeLabel

func (c *Cluster) listOthers(ctx context.Context) (*census, error) {
	taken := &census{}
	return taken, each(ctx, "list VolumeAttachments", metav1.ListOptions{LabelSelector: unlabeled}, c.storage.VolumeAttachments().List, taken.add)
}
