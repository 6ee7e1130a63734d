package kube

import (
	"context"
	"errors"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/attachment"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// Attachments are the VolumeAttachments of one daemon. It creates and deletes those
// that it is responsible for, and watches the others.
type Attachments struct {
	cluster *Cluster
	owner   string
	// made has the VolumeAttachments of flex2csi, for one node or for all.
	made *informer[*storagev1.VolumeAttachment]

	mu sync.Mutex
	// unmanaged are those of other components, by name.
	unmanaged map[string]*unmanaged
	elsewhere *elsewhere // nil: not needed lately
	// doomed has when we deleted an object. The informer may show it a moment
	// longer, as attached.
	doomed map[types.UID]time.Time
	// vanished has when another component deleted an object, by name.
	vanished map[string]time.Time
	// single are those of ours with a volume that no other node has.
	single map[types.UID]bool
}

// Attachments returns the VolumeAttachments of a node, or of all nodes if it is empty.
// Owner is attachment.AttachedByNode or attachment.AttachedByController.
func (c *Cluster) Attachments(node, owner string) *Attachments {
	selected := labels.Set{attachment.ManagedByLabel: attachment.ManagedBy}
	if node != "" {
		selected[attachment.NodeLabel] = attachment.LabelValue(node)
	}
	a := &Attachments{
		cluster:   c,
		owner:     owner,
		unmanaged: map[string]*unmanaged{},
		doomed:    map[types.UID]time.Time{},
		vanished:  map[string]time.Time{},
		single:    map[types.UID]bool{},
	}
	a.made = newInformer(c.storage.VolumeAttachments(), metav1.ListOptions{LabelSelector: selected.String()},
		&storagev1.VolumeAttachment{}, trimAttachment, a.changed)
	c.keep(a.made)
	return a
}

// changed forgets a deleted object, and notes when that was.
func (a *Attachments) changed(o *storagev1.VolumeAttachment, gone bool) {
	if gone {
		a.vanish(o)
		a.mu.Lock()
		delete(a.single, o.UID)
		a.mu.Unlock()
	}
}

// Attach creates an attachment and waits until it is attached. The error
// csivol.ErrNotBegun leaves nothing behind; after any other the attachment stays
// until Detach.
func (a *Attachments) Attach(ctx context.Context, want *csivol.Attachment) (csivol.Attached, error) {
	w := a.wait(want)
	defer w.end()
	ctx, cancel := bounded(ctx)
	defer cancel()
	begun := false
	for {
		o, created, err := w.find(ctx)
		if err != nil && !begun && !errors.Is(err, errUnanswered) {
			err = notBegun{err}
		}
		if err != nil {
			return csivol.Attached{}, err
		}
		if o == nil {
			continue // gone since
		}
		begun = true
		attached, err := w.settle(ctx, o, created)
		if err == nil && !created {
			attached.AttachedAsCSI, err = w.untilKept(ctx, o)
		}
		if !errors.Is(err, errVanished) {
			return attached, err
		}
	}
}

// find returns the existing attachment, or a new one; nil if it existed just now.
func (w *wait) find(ctx context.Context) (o *storagev1.VolumeAttachment, created bool, err error) {
	if o, err = w.known(ctx); err == nil && o == nil {
		o, created, err = w.create(ctx)
	}
	if err == nil && o != nil {
		err = w.rightful(o)
	}
	return o, created, err
}

// errVanished: an attachment was deleted during a wait for it.
var errVanished = errors.New("the VolumeAttachment was deleted by another component")

// settle waits for the end of an attach: errVanished if it has to be re-created.
func (w *wait) settle(ctx context.Context, o *storagev1.VolumeAttachment, created bool) (csivol.Attached, error) {
	switch {
	case o.DeletionTimestamp != nil:
		if err := w.untilGone(ctx, o); err != nil {
			return csivol.Attached{}, err
		}
		return csivol.Attached{}, errVanished
	case !created && w.ours(o) && !w.want.Keep && o.Annotations[attachment.RequestAnnotation] != w.want.Request:
		if err := w.replace(ctx, o); err != nil {
			return csivol.Attached{}, err
		}
	case !created && w.ours(o) && !o.Status.Attached && digestOf(o) != digest(attachment.Spec(w.want)):
		// The spec of an earlier try cannot be changed. With a wrong secret, for
		// example, it would fail for ever.
		w.log(ctx).Info("the wanted spec has changed; re-creating the VolumeAttachment")
		if err := w.remove(ctx, o); err != nil {
			return csivol.Attached{}, err
		}
		return csivol.Attached{}, errVanished
	}
	if exclusive(w.want) && w.ours(o) && !w.isSingle(o) {
		return w.alone(ctx, o, created)
	}
	return w.untilAttached(ctx, o)
}

// Await waits for an attachment of another component, and creates none.
func (a *Attachments) Await(ctx context.Context, want *csivol.Attachment) (csivol.Attached, error) {
	w := a.wait(want)
	defer w.end()
	ctx, cancel := bounded(ctx)
	defer cancel()
	for {
		o, err := w.untilThere(ctx)
		if err != nil {
			return csivol.Attached{}, err
		}
		if err := w.rightful(o); err != nil {
			return csivol.Attached{}, err
		}
		attached, err := w.untilAttached(ctx, o)
		if err == nil {
			attached.AttachedAsCSI, err = w.untilKept(ctx, o)
		}
		if !errors.Is(err, errVanished) {
			return attached, err
		}
		if err := w.untilGone(ctx, o); err != nil {
			return csivol.Attached{}, err
		}
	}
}

// Detach deletes the attachment if it is ours and was not handed over to the control
// plane, and waits until it is deleted.
func (a *Attachments) Detach(ctx context.Context, want *csivol.Attachment) error {
	w := a.wait(want)
	defer w.end()
	ctx, cancel := bounded(ctx)
	defer cancel()
	o, ok, _ := w.cached() // if that is old, its UID is not deleted
	if !ok || w.isDoomed(o.UID) {
		var err error
		if o, err = w.get(ctx); err != nil { // it may have been made a moment ago
			return err
		}
	}
	if o == nil {
		a.drop(w.name)
		return nil
	}
	if !a.mayDelete(o) || !isFor(o, want) {
		return nil // another component deletes it, and its informer notes when (reuse.go)
	}
	there := *want
	there.Node = o.Spec.NodeName // the node's name when it was attached
	w.want = &there
	if o.DeletionTimestamp == nil {
		over, err := w.adopted(ctx)
		if err != nil || over {
			return err
		}
	}
	return w.remove(ctx, o)
}

// Lost reports whether an attachment no longer exists. An error means that this is not known: while no
// watch runs, the cache may not have what was created since. A watch may lag, too, as after a restart
// of the API server: a loss is confirmed by a request.
func (a *Attachments) Lost(want *csivol.Attachment) (bool, error) {
	name, seen := objectName(want), a.made
	o, ok := seen.get(name)
	if !ok && !seen.synced() {
		return false, errNotSeen
	}
	if !ok { // of another component, or deleted
		seen = a.watchUnmanaged(name).informer
		o, ok = seen.get(name)
	}
	switch {
	case ok && isAttached(o, want):
		return false, nil
	case !a.made.upToDate() || !seen.upToDate():
		return false, errNotSeen
	}
	ctx, cancel := context.WithTimeout(context.Background(), confirmWait)
	defer cancel()
	o, err := get(ctx, a.cluster.storage.VolumeAttachments(), name)
	o, err = orNone(o, err, "look for VolumeAttachment "+name)
	return err == nil && (o == nil || !isAttached(o, want)), err
}

// confirmWait bounds the request that confirms a loss.
const confirmWait = 3 * time.Second

// isAttached reports whether an attachment is for a volume, attached, and stays.
func isAttached(o *storagev1.VolumeAttachment, want *csivol.Attachment) bool {
	return o.DeletionTimestamp == nil && o.Status.Attached && isFor(o, want)
}

var errNotSeen = &flex.Error{Code: flex.CodeUnavailable, Err: errors.New("the VolumeAttachments are not known yet: the API server has not answered")}

// List returns the attachments that this daemon is responsible for, once they are known.
func (a *Attachments) List(ctx context.Context) ([]*csivol.Attachment, error) {
	select {
	case <-a.made.controller.HasSyncedChecker().Done():
	case <-ctx.Done():
		return nil, errNotSeen
	}
	var all []*csivol.Attachment
	for _, o := range a.made.all() {
		if a.ours(o) {
			all = append(all, attachment.Volume(o))
		}
	}
	return all, nil
}

// bounded gives a call a deadline if it has none.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	const usual = 2 * time.Minute
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, usual)
}
