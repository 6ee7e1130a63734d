package kube

import (
	"context"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// Detach deletes the attachment if it is ours and was not handed over to the control
// plane, and waits until it is deleted.
func (a *Attachments) Detach(ctx context.Context, want *csivol.Attachment) error {
	op, ctx, cancel := a.operation(ctx, want)
	defer cancel()
	o, _ := op.cached(nil) // if that is old, its UID is not deleted
	if o == nil || op.isDeleted(o) {
		var err error
		if o, err = op.request(ctx); err != nil { // it may have been made a moment ago
			return err
		}
	}
	if o == nil || !op.mayDelete(o) || !isFor(o, want) {
		return nil // another component deletes it, and its informer notes when (waitReusable)
	}
	attached := *want
	attached.Node = o.Spec.NodeName // the node's name when it was attached
	op.want = &attached
	if o.DeletionTimestamp == nil {
		if adopted, err := op.isAdopted(ctx); err != nil || adopted {
			return err
		}
	}
	return op.remove(ctx, o)
}

// remove deletes an attachment and waits until it is deleted.
func (op *operation) remove(ctx context.Context, o *storagev1.VolumeAttachment) error {
	const seen = 10 * time.Minute // the informers have seen it by then
	uid := o.UID
	for o.DeletionTimestamp == nil {
		op.deleted.Set(uid, true, seen)
		err := op.delete(ctx, o)
		if err == nil || apierrors.IsNotFound(err) {
			break
		}
		what := "delete VolumeAttachment " + op.name + " of volume " + aboutVolume(op.want)
		if !apierrors.IsConflict(err) {
			return wrapError(err, what)
		}
		// It has changed meanwhile, or it is another one by now.
		now, getErr := op.request(ctx)
		switch {
		case getErr != nil:
			return getErr
		case now == nil:
			return nil
		case now.UID != uid:
			return wrapError(err, what)
		}
		o = now
	}
	return op.waitDeleted(ctx, o)
}

// delete deletes an attachment if it has the known UID. Without a finalizer it must
// not have changed either: the API server could remove the object just when the
// external-attacher adds its finalizer (k8s.io/apiserver,
// pkg/registry/generic/registry/store.go, Delete). Then the driver would attach a
// volume that is never detached.
func (op *operation) delete(ctx context.Context, o *storagev1.VolumeAttachment) error {
	is := metav1.NewUIDPreconditions(string(o.UID))
	if len(o.Finalizers) == 0 {
		is.ResourceVersion = &o.ResourceVersion
	}
	_, err := request(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, op.cluster.storage.VolumeAttachments().Delete(ctx, op.name, metav1.DeleteOptions{Preconditions: is})
	})
	return err
}

// isAdopted reports whether the control plane owns the attachment now. It adopts it by
// its name when the PersistentVolume has become a CSI one, and then deletes it, too.
func (op *operation) isAdopted(ctx context.Context) (bool, error) {
	n, err := op.cluster.GetNode(ctx, op.want.Node)
	if err != nil {
		return false, err
	}
	unique := objects.CSIVolumeName(op.want.Driver, op.want.Handle)
	if n != nil && (objects.VolumeInUse(n, unique) || objects.VolumeAttached(n, unique)) {
		op.log(ctx).Info("the VolumeAttachment was adopted by the control plane, which will delete it")
		return true, nil
	}
	return op.willBeAdopted(ctx)
}

// willBeAdopted reports whether the PersistentVolume is a CSI one and a pod of this node
// uses it: the control plane is about to adopt the attachment.
func (op *operation) willBeAdopted(ctx context.Context) (bool, error) {
	if op.want.Name == "" {
		return false, nil
	}
	pv, err := op.cluster.freshVolume(ctx, op.want.Name)
	if err != nil && flex.CodeOf(err) != flex.CodeNotFound {
		return false, err
	}
	if err != nil || pv.CSI != op.want.Key() {
		return false, nil //nolint:nilerr // there is no such PersistentVolume
	}
	pods, err := op.cluster.PodsOf(ctx, op.want.Node)
	if err != nil {
		return false, err
	}
	for i := range pods {
		if p := &pods[i]; !objects.PodFinished(p) && objects.PodUsesClaim(p, pv.Claim.Namespace, pv.Claim.Name) {
			op.log(ctx).Info("the PersistentVolume is a CSI one by now, and a pod uses it; the VolumeAttachment is left to the control plane", "usedBy", p.Namespace+"/"+p.Name)
			return true, nil
		}
	}
	return false, nil
}
