package kube

import (
	"context"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// replace deletes an attachment that no record of this node has made: errVanished when it
// can be created again. A node that was re-created under its name is another machine for
// the storage, where the volume is not attached and the publish context may be that of
// another disk (kubernetes#67853). The control plane detaches what it has adopted.
func (w *wait) replace(ctx context.Context, o *storagev1.VolumeAttachment) error {
	if over, err := w.adopted(ctx); err != nil || over {
		return err
	}
	w.log(ctx).Warn("no record of this node has made the VolumeAttachment; re-creating it")
	if err := w.remove(ctx, o); err != nil {
		return flex.Errorf(flex.CodeOf(err), "VolumeAttachment %s was made before node %s was re-created, or before its records were lost, and is detached before the volume is used: %w", w.name, w.want.Node, err)
	}
	return errVanished
}

// remove deletes an attachment and waits until it is deleted.
func (w *wait) remove(ctx context.Context, o *storagev1.VolumeAttachment) error {
	uid := o.UID
	for o.DeletionTimestamp == nil {
		w.doom(uid)
		err := w.deleteAs(ctx, o)
		if err == nil || apierrors.IsNotFound(err) {
			break
		}
		what := "delete VolumeAttachment " + w.name + " of volume " + aboutVolume(w.want)
		if !apierrors.IsConflict(err) {
			return failed(err, what)
		}
		// It has changed meanwhile, or it is another one by now.
		now, getErr := w.get(ctx)
		switch {
		case getErr != nil:
			return getErr
		case now == nil:
			return nil
		case now.UID != uid:
			return failed(err, what)
		}
		o = now
	}
	return w.untilGone(ctx, o)
}

// deleteAs deletes an attachment if it has the known UID. Without a finalizer it must
// not have changed either: the API server could remove the object just when the
// external-attacher adds its finalizer (k8s.io/apiserver,
// pkg/registry/generic/registry/store.go, Delete). Then the driver would attach a
// volume that is never detached.
func (w *wait) deleteAs(ctx context.Context, o *storagev1.VolumeAttachment) error {
	is := metav1.NewUIDPreconditions(string(o.UID))
	if len(o.Finalizers) == 0 {
		is.ResourceVersion = &o.ResourceVersion
	}
	_, err := request(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, w.cluster.storage.VolumeAttachments().Delete(ctx, w.name, metav1.DeleteOptions{Preconditions: is})
	})
	return err
}
