package kube

import (
	"context"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// cached returns what the informers have of the VolumeAttachment, and the informer. If o was
// seen before, it returns o while they are behind it, and nil if they saw it deleted or
// replaced.
func (op *operation) cached(o *storagev1.VolumeAttachment) (now *storagev1.VolumeAttachment, from *informer) {
	for _, m := range []*informer{op.managed, op.use(op.name, nil)} {
		if m == nil {
			continue
		}
		seen := o != nil && m.hasSeen(o) // first: the object may come to the cache between the two
		known, _ := m.attachments().Get(op.name)
		switch {
		case known == nil && seen:
			return nil, m
		case known == nil:
		case o == nil:
			return known, m
		case isAsNew(known.ResourceVersion, o.ResourceVersion) && known.UID != o.UID:
			return nil, m
		case isAsNew(known.ResourceVersion, o.ResourceVersion):
			return known, m
		}
	}
	return o, nil
}

// get returns the VolumeAttachment; nil if there is none. It makes a request only if no
// informer with a running watch has it: meanwhile another object may have replaced it, with
// another publish context. During a short outage of the API server it returns what was last
// seen.
func (op *operation) get(ctx context.Context) (*storagev1.VolumeAttachment, error) {
	known, from := op.cached(nil)
	if known != nil && op.isDeleted(known) {
		known = nil
	}
	if known != nil && from.isLive() {
		return known, nil
	}
	o, err := op.request(ctx)
	if err != nil && known != nil && from.wasLive() && flex.CodeOf(err) == flex.CodeUnavailable {
		return known, nil
	}
	return o, err
}

// request asks the API server for the VolumeAttachment; nil if there is none. One that no
// informer has is watched from now on.
func (op *operation) request(ctx context.Context) (*storagev1.VolumeAttachment, error) {
	o, err := get(ctx, op.cluster.storage.VolumeAttachments(), op.name)
	o, err = orNone(o, err, "look for VolumeAttachment "+op.name+" of volume "+aboutVolume(op.want))
	if o != nil && !objects.ManagedAttachment(o) {
		op.watch(op.name)
	}
	return o, err
}

// Lost reports whether an attachment no longer exists. An error means that this is not known: while no
// watch runs, the cache may not have what was created since. A watch may lag, too, as after a restart
// of the API server: a loss is confirmed by a request.
func (a *Attachments) Lost(want *csivol.Attachment) (bool, error) {
	op := &operation{Attachments: a, want: want, name: objectName(want)}
	known, from := op.cached(nil)
	if known == nil && a.managed.HasSynced() { // of another component, or deleted
		from = a.watch(op.name)
		known, _ = from.attachments().Get(op.name)
	}
	switch {
	case known != nil && isAttached(known, want):
		return false, nil
	case !a.managed.isLive() || !from.isLive():
		return false, errNotSeen
	}
	ctx, cancel := context.WithTimeout(context.Background(), confirmTimeout)
	defer cancel()
	o, err := op.request(ctx)
	return err == nil && (o == nil || !isAttached(o, want)), err
}

// confirmTimeout bounds the request that confirms a loss.
const confirmTimeout = 3 * time.Second
