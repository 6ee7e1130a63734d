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

// Attachments are the VolumeAttachments of one daemon: it makes and deletes
// those that it is responsible for, and looks at the others.
type Attachments struct {
	cluster *Cluster
	owner   string
	// made mirrors what flex2csi has made, for one node or for all.
	made *mirror[*storagev1.VolumeAttachment]

	mu sync.Mutex
	// foreign are single ones that somebody else has made.
	foreign map[string]*foreign
	// doomed are those that were to be deleted, and when. The mirror may show
	// them a moment longer, as if they were attached.
	doomed map[types.UID]time.Time
	// single are those of ours of which no other node has one.
	single map[types.UID]bool
}

// Attachments returns those of a node, or of all nodes if it is empty. Owner is
// attachment.AttachedByNode or attachment.AttachedByController.
func (c *Cluster) Attachments(node, owner string) *Attachments {
	selected := labels.Set{attachment.ManagedByLabel: attachment.ManagedBy}
	if node != "" {
		selected[attachment.NodeLabel] = attachment.LabelValue(node)
	}
	a := &Attachments{
		cluster: c,
		owner:   owner,
		foreign: map[string]*foreign{},
		doomed:  map[types.UID]time.Time{},
		single:  map[types.UID]bool{},
	}
	a.made = newMirror(c.storage.VolumeAttachments(), metav1.ListOptions{LabelSelector: selected.String()},
		&storagev1.VolumeAttachment{}, trimAttachment, a.changed)
	c.keep(a.made)
	return a
}

// changed forgets what was known of an object that is gone.
func (a *Attachments) changed(o *storagev1.VolumeAttachment, gone bool) {
	if gone {
		a.mu.Lock()
		delete(a.single, o.UID)
		a.mu.Unlock()
	}
}

// ours reports whether this daemon is responsible for an attachment.
func (a *Attachments) ours(o *storagev1.VolumeAttachment) bool {
	return attachment.Managed(o) && attachment.AttachedBy(o) == a.owner
}

// mayDelete: of all nodes kube-controller-manager says what is to be detached,
// whoever has made it, and the sweeper cleans up for those that are gone.
func (a *Attachments) mayDelete(o *storagev1.VolumeAttachment) bool {
	return a.ours(o) || attachment.Managed(o) && a.owner == attachment.AttachedByController
}

// Attach asks for an attachment and waits for it. An error that is
// csivol.ErrNotBegun has left nothing behind; after any other what was asked
// for goes on until Detach.
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
			attached.Lent, err = w.untilKept(ctx, o)
		}
		if !errors.Is(err, errVanished) {
			return attached, err
		}
	}
}

// find returns the attachment that is there, or else a new one; nil if it was
// there just now.
func (w *wait) find(ctx context.Context) (o *storagev1.VolumeAttachment, created bool, err error) {
	if o, err = w.known(ctx); err == nil && o == nil {
		o, created, err = w.create(ctx)
	}
	if err == nil && o != nil {
		err = w.rightful(o)
	}
	return o, created, err
}

// errVanished: an attachment went away while it was waited for.
var errVanished = errors.New("the VolumeAttachment was deleted by somebody else")

// settle sees an attachment through: errVanished if it has to be made anew.
func (w *wait) settle(ctx context.Context, o *storagev1.VolumeAttachment, created bool) (csivol.Attached, error) {
	switch {
	case o.DeletionTimestamp != nil:
		if err := w.untilGone(ctx, o); err != nil {
			return csivol.Attached{}, err
		}
		return csivol.Attached{}, errVanished
	case !created && w.ours(o) && !o.Status.Attached && digestOf(o) != digest(attachment.Spec(w.want)):
		// What an earlier try has asked for cannot be changed, and with, say, a
		// wrong secret it would fail for ever.
		w.cluster.log.InfoContext(ctx, "what is asked for has changed; the VolumeAttachment is made anew", "volumeAttachment", w.name, "csiDriver", w.want.Driver, "volumeHandle", w.want.Handle)
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

// Await waits for an attachment that somebody else asks for, and never asks.
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
			attached.Lent, err = w.untilKept(ctx, o)
		}
		if !errors.Is(err, errVanished) {
			return attached, err
		}
		if err := w.untilGone(ctx, o); err != nil {
			return csivol.Attached{}, err
		}
	}
}

// Detach deletes the attachment if it is ours and the control plane has not
// taken it over, and waits until it is gone.
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
	if o == nil || !a.mayDelete(o) || !isFor(o, want) {
		a.drop(w.name)
		return nil
	}
	if o.DeletionTimestamp == nil {
		over, err := w.takenOver(ctx)
		if err != nil || over {
			return err
		}
	}
	return w.remove(ctx, o)
}

// Lost reports whether an attachment that was there is not any more, without a
// request. An error means that this is not known.
func (a *Attachments) Lost(want *csivol.Attachment) (bool, error) {
	name := attachment.Name(want.Handle, want.Driver, want.Node)
	o, ok := a.made.get(name)
	if !ok && !a.made.synced() {
		return false, errNotSeen
	}
	if !ok { // somebody else's, or gone
		f := a.foreigner(name)
		if !f.mirror.synced() {
			return false, errNotSeen
		}
		o, ok = f.mirror.get(name)
	}
	return !ok || o.DeletionTimestamp != nil || !o.Status.Attached || !isFor(o, want), nil
}

var errNotSeen = &flex.Error{Code: flex.CodeUnavailable, Err: errors.New("the API server has not yet told which VolumeAttachments there are")}

// List returns those for which this daemon is responsible, as soon as it is
// known which there are.
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

// bounded gives a call a deadline that has none.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	const usual = 2 * time.Minute
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, usual)
}
