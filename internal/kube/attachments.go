package kube

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/tools/cache"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/internal/volumelog"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// Attachments are the VolumeAttachments of one daemon. It creates and deletes those
// that it is responsible for, and watches the others.
type Attachments struct {
	cluster *Cluster
	owner   string
	// managed has the VolumeAttachments of flex2csi, for one node or for all.
	managed *informer
	changed signal // of any of them, but those to other nodes

	mu sync.Mutex
	// onDemand are the informers that run while they are used, by the name of the
	// VolumeAttachment that managed does not select, or by the selector unlabeled.
	onDemand map[string]*informer

	// deleted are the UIDs that we delete. An informer may show them a moment longer, as
	// attached.
	deleted *utilcache.Expiring
	// vanished has when another component deleted an object, by name.
	vanished *utilcache.Expiring
	// exclusive are the UIDs of those of ours with a volume that no other node has.
	exclusive sync.Map
}

// Attachments returns the VolumeAttachments of a node, or of all nodes if it is empty.
// Owner is objects.AttachedByNode or objects.AttachedByController.
func (c *Cluster) Attachments(node, owner string) *Attachments {
	selected := labels.Set{objects.ManagedByLabel: objects.ManagedBy}
	if node != "" {
		selected[objects.NodeLabel] = objects.LabelValue(node)
	}
	a := &Attachments{cluster: c, owner: owner, onDemand: map[string]*informer{}, deleted: utilcache.NewExpiring(), vanished: utilcache.NewExpiring()}
	a.managed = a.newInformer(metav1.ListOptions{LabelSelector: selected.String()}, selected.AsSelector())
	c.keep(a.managed.run)
	return a
}

func (a *Attachments) newInformer(selected metav1.ListOptions, selector labels.Selector) *informer {
	m := newInformer(a.cluster.storage.VolumeAttachments(), selected, &storagev1.VolumeAttachment{}, nil, nil)
	m.selector = selector
	_, _ = m.AddEventHandler(cache.ResourceEventHandlerFuncs{ // it fails after the end
		AddFunc:    func(any) { a.changed.broadcast() },
		UpdateFunc: func(any, any) { a.changed.broadcast() },
		DeleteFunc: func(o any) {
			if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			if o, ok := o.(*storagev1.VolumeAttachment); ok {
				a.noteDeleted(o)
			}
			a.changed.broadcast()
		},
	})
	return m
}

// reuseAfter is how long a name is not used again after another component has deleted
// the object.
const reuseAfter = 10 * time.Second

// noteDeleted forgets a deleted object, and notes when that was unless we deleted it.
func (a *Attachments) noteDeleted(o *storagev1.VolumeAttachment) {
	a.exclusive.Delete(o.UID)
	if !a.isDeleted(o) {
		a.vanished.Set(o.Name, time.Now(), reuseAfter)
	}
}

// isDeleted reports whether we delete an object.
func (a *Attachments) isDeleted(o *storagev1.VolumeAttachment) bool {
	_, is := a.deleted.Get(o.UID)
	return is
}

// unused is when an informer that was not used is stopped.
const unused = 10 * time.Minute

// watch returns the informer of one VolumeAttachment. It is kube-controller-manager's, if the
// same volume also has a CSI PersistentVolume.
func (a *Attachments) watch(name string) *informer {
	return a.use(name, func() *informer {
		return a.newInformer(metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()}, labels.Everything())
	})
}

// use returns an informer that runs while it is used; nil if it does not run, and create is nil.
func (a *Attachments) use(key string, create func() *informer) *informer {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.onDemand[key]
	if m == nil && create != nil {
		m = create()
		m.idle = time.AfterFunc(unused, func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			m.stop()
			if a.onDemand[key] == m {
				delete(a.onDemand, key)
			}
		})
		a.onDemand[key] = m
		a.cluster.keep(m.run)
	}
	if m != nil {
		m.idle.Reset(unused)
	}
	return m
}

// List returns the attachments that this daemon is responsible for, once they are known.
func (a *Attachments) List(ctx context.Context) ([]*csivol.Attachment, error) {
	select {
	case <-a.managed.HasSyncedChecker().Done():
	case <-ctx.Done():
		return nil, errNotSeen
	}
	known, err := a.managed.attachments().List(labels.Everything())
	var all []*csivol.Attachment
	for _, o := range known {
		if a.owns(o) {
			all = append(all, objects.AttachmentVolume(o))
		}
	}
	return all, err
}

var errNotSeen = &flex.Error{Code: flex.CodeUnavailable, Err: errors.New("the VolumeAttachments are not known yet: the API server has not answered")}

// owns reports whether this daemon is responsible for an attachment.
func (a *Attachments) owns(o *storagev1.VolumeAttachment) bool {
	return objects.ManagedAttachment(o) && objects.AttachedBy(o) == a.owner
}

// mayDelete reports whether this daemon may delete an attachment. The controller may
// delete those of all nodes: kube-controller-manager tells it which to detach, and the
// sweeper cleans up for deleted nodes.
func (a *Attachments) mayDelete(o *storagev1.VolumeAttachment) bool {
	return a.owns(o) || (objects.ManagedAttachment(o) && a.owner == objects.AttachedByController)
}

// objectName returns the name of the VolumeAttachment of a volume and a node.
func objectName(want *csivol.Attachment) string {
	return cmp.Or(want.Object, objects.AttachmentName(want.Handle, want.Driver, want.Node))
}

// isFor reports whether an attachment is for the volume and the node. Its name alone
// does not prove that: it is a hash, which no admission policy can compute, so that the
// token of another node is enough to create an object with that name.
func isFor(o *storagev1.VolumeAttachment, want *csivol.Attachment) bool {
	if o.Spec.Attacher != want.Driver || objects.AttachmentName(want.Handle, want.Driver, o.Spec.NodeName) != objectName(want) {
		return false
	}
	spec := o.Spec.Source.InlineVolumeSpec
	if spec == nil {
		return true // made by the control plane; it names a PersistentVolume
	}
	return spec.CSI != nil && spec.CSI.Driver == want.Driver && spec.CSI.VolumeHandle == want.Handle
}

// isAttached reports whether an attachment is for a volume, attached, and stays.
func isAttached(o *storagev1.VolumeAttachment, want *csivol.Attachment) bool {
	return o.DeletionTimestamp == nil && o.Status.Attached && isFor(o, want)
}

// An operation attaches or detaches one volume.
type operation struct {
	*Attachments
	want *csivol.Attachment
	name string // of the VolumeAttachment
	// begun: there may be a VolumeAttachment.
	begun   bool
	lastErr error // of the last request of a wait; nil: it was answered
}

// operation returns an operation with a deadline.
func (a *Attachments) operation(ctx context.Context, want *csivol.Attachment) (*operation, context.Context, context.CancelFunc) {
	const usual = 2 * time.Minute
	op := &operation{Attachments: a, want: want, name: objectName(want)}
	if _, ok := ctx.Deadline(); ok {
		ctx, cancel := context.WithCancel(ctx)
		return op, ctx, cancel
	}
	ctx, cancel := context.WithTimeout(ctx, usual)
	return op, ctx, cancel
}

// log returns the log, with what the caller's context says of the volume.
func (op *operation) log(ctx context.Context) *slog.Logger {
	return volumelog.Logger(ctx, op.cluster.log).With("volumeAttachment", op.name, "node", op.want.Node)
}
