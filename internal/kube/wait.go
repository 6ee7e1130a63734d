package kube

import (
	"context"
	"errors"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// An object that no live informer has is requested after firstPause, and then with growing
// pauses.
const (
	firstPause = 3 * time.Second
	maxPause   = 10 * time.Second
)

// wait calls done with each state of the VolumeAttachment, of which o is the last known one,
// until it returns true or the object was deleted, which is nil. If o is nil, there is none
// yet. Requests that fail do not end it: the API server may be available again in time.
func (op *operation) wait(ctx context.Context, o *storagev1.VolumeAttachment, done func(*storagev1.VolumeAttachment) bool) error {
	pause := firstPause
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		changed := op.changed.next()
		now, from := op.cached(o)
		live := from != nil && from.isLive()
		switch {
		case now == nil && o != nil:
			op.noteDeleted(o)
			done(nil)
			return nil
		case o != nil || live: // else the cache may have another one that is gone
			o = now
		}
		if done(o) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
			continue
		case <-timer.C:
		}
		timer.Reset(pause)
		pause = min(2*pause, maxPause)
		if live {
			continue
		}
		got, err := op.request(ctx)
		if ctx.Err() == nil {
			op.lastErr = err
		}
		switch {
		case err != nil:
		case o == nil || (got != nil && got.UID == o.UID):
			o = got
		default:
			op.noteDeleted(o)
			done(nil)
			return nil
		}
	}
}

// soon returns a context that ends before ctx, to leave time for a message.
func soon(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-min(time.Until(deadline)/5, 2*time.Second)))
}

// errVanished: an attachment was deleted during a wait for it.
var errVanished = errors.New("the VolumeAttachment was deleted by another component")

// waitAttached waits until the attachment is attached; errVanished if that will never
// happen.
func (op *operation) waitAttached(ctx context.Context, o *storagev1.VolumeAttachment) (csivol.Attached, error) {
	early, cancel := soon(ctx)
	defer cancel()
	reported := false
	err := op.wait(early, o, func(now *storagev1.VolumeAttachment) bool {
		o = now
		if now == nil || now.DeletionTimestamp != nil || now.Status.Attached {
			return true
		}
		if now.Status.AttachError != nil && !reported {
			reported = true
			op.report(ctx, now)
		}
		return false
	})
	switch {
	case err != nil:
		return csivol.Attached{}, op.errUnfinished(ctx, o)
	case o == nil || o.DeletionTimestamp != nil:
		return csivol.Attached{}, errVanished
	}
	got := csivol.Attached{Object: o.Name, PublishContext: o.Status.AttachmentMetadata, Ours: op.owns(o)}
	if got.Ours {
		got.Name = o.Annotations[objects.PersistentVolumeAnnotation]
	}
	return got, nil
}

// waitDeleted waits until an attachment was deleted. It confirms what the watch says: the
// labels that the watch selects may have been removed.
func (op *operation) waitDeleted(ctx context.Context, o *storagev1.VolumeAttachment) error {
	early, cancel := soon(ctx)
	defer cancel()
	uid := o.UID
	err := op.wait(early, o, func(now *storagev1.VolumeAttachment) bool {
		if now != nil {
			o = now
		}
		return now == nil
	})
	if err != nil {
		return op.errUndeleted(o)
	}
	left, err := op.request(ctx)
	switch {
	case err != nil:
		return err
	case left == nil || left.UID != uid:
		return nil
	}
	return flex.Errorf(flex.CodeAborted, "VolumeAttachment %s of volume %s is being deleted, and is not flex2csi's any more: its labels were changed", op.name, aboutVolume(op.want))
}

// waitCreated waits for an attachment of another component.
func (op *operation) waitCreated(ctx context.Context) (*storagev1.VolumeAttachment, error) {
	early, cancel := soon(ctx)
	defer cancel()
	o, err := op.get(early)
	if o != nil {
		return o, nil
	}
	op.lastErr = err
	var ended error
	for ended == nil && o == nil { // what was deleted since the API server's answer is none
		ended = op.wait(early, nil, func(now *storagev1.VolumeAttachment) bool {
			o = now
			return now != nil
		})
	}
	switch {
	case ended == nil:
		return o, nil
	case op.lastErr != nil:
		return nil, op.lastErr
	}
	return nil, flex.Errorf(flex.CodeDeadlineExceeded, "volume %s: there is no VolumeAttachment %s, which flex2csi controller creates for kube-controller-manager; check its log", aboutVolume(op.want), op.name)
}
