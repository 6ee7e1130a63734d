package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// Attach creates an attachment and waits until it is attached. The error
// csivol.ErrNotBegun leaves nothing behind; after any other the attachment stays
// until Detach.
func (a *Attachments) Attach(ctx context.Context, want *csivol.Attachment) (csivol.Attached, error) {
	op, ctx, cancel := a.operation(ctx, want)
	defer cancel()
	for {
		o, created, err := op.getOrCreate(ctx)
		switch {
		case err != nil && !op.begun:
			return csivol.Attached{}, notBegun{err}
		case err != nil:
			return csivol.Attached{}, err
		case o == nil:
			continue // gone since
		}
		op.begun = true
		attached, err := op.attach(ctx, o, created)
		if err == nil && !created {
			attached.AttachedAsCSI, err = op.waitKept(ctx, o)
		}
		if !errors.Is(err, errVanished) {
			return attached, err
		}
	}
}

// Await waits for an attachment of another component, and creates none.
func (a *Attachments) Await(ctx context.Context, want *csivol.Attachment) (csivol.Attached, error) {
	op, ctx, cancel := a.operation(ctx, want)
	defer cancel()
	for {
		o, err := op.waitCreated(ctx)
		if err == nil {
			err = op.checkVolume(o)
		}
		if err != nil {
			return csivol.Attached{}, err
		}
		attached, err := op.waitAttached(ctx, o)
		if err == nil {
			attached.AttachedAsCSI, err = op.waitKept(ctx, o)
		}
		if !errors.Is(err, errVanished) {
			return attached, err
		}
		if err := op.waitDeleted(ctx, o); err != nil {
			return csivol.Attached{}, err
		}
	}
}

// getOrCreate returns the existing attachment, or a new one; nil if it existed just now.
func (op *operation) getOrCreate(ctx context.Context) (o *storagev1.VolumeAttachment, created bool, err error) {
	if known, _ := op.cached(nil); known != nil || !op.managed.HasSynced() {
		o, err = op.get(ctx)
	}
	if err == nil && o == nil {
		o, created, err = op.create(ctx)
	}
	if err == nil && o != nil {
		err = op.checkVolume(o)
	}
	return o, created, err
}

// create creates the attachment, unless the volume may be on one node only and is on
// another. It returns an attachment that another component has created meanwhile; nil
// if that was deleted already.
func (op *operation) create(ctx context.Context) (o *storagev1.VolumeAttachment, created bool, err error) {
	if err := op.waitReusable(ctx); err != nil {
		return nil, false, err
	}
	if isExclusive(op.want) {
		if err := op.waitFree(ctx); err != nil {
			return nil, false, err
		}
	}
	o, err = request(ctx, func(ctx context.Context) (*storagev1.VolumeAttachment, error) {
		return op.cluster.storage.VolumeAttachments().Create(ctx, objects.NewAttachment(op.want, op.owner), metav1.CreateOptions{})
	})
	switch {
	case err == nil:
		return o, true, nil
	case apierrors.IsAlreadyExists(err):
		o, err = op.request(ctx)
		return o, false, err
	}
	op.begun = op.begun || !isRefused(err) // it may have been created
	return nil, false, wrapError(err, fmt.Sprintf("create VolumeAttachment %s of volume %s for node %s", op.name, aboutVolume(op.want), op.want.Node))
}

// waitReusable waits until the name may be used again.
//
// After kube-controller-manager has deleted the VolumeAttachment of a CSI volume, it
// looks for the name until there is none: first after half a second, in the end every
// 7.7 seconds (pkg/volume/csi/csi_attacher.go, waitForVolumeDetachmentWithLister,
// Kubernetes v1.37.1). If it finds a new one, it waits on, and after two minutes
// deletes that, whatever pods have the volume. So a name is not used again before
// kube-controller-manager has seen that the object is gone.
func (op *operation) waitReusable(ctx context.Context) error {
	vanished, ok := op.vanished.Get(op.name)
	if !ok {
		return nil
	}
	when, _ := vanished.(time.Time)
	early, cancel := soon(ctx)
	defer cancel()
	select {
	case <-time.After(reuseAfter - time.Since(when)):
		return nil
	case <-early.Done():
		return flex.Errorf(flex.CodeUnavailable, "VolumeAttachment %s of volume %s was deleted by another component: it is created again when kube-controller-manager has seen that, %v later",
			op.name, aboutVolume(op.want), reuseAfter)
	}
}

// checkVolume returns an error for an attachment of another volume that has the name.
func (op *operation) checkVolume(o *storagev1.VolumeAttachment) error {
	if isFor(o, op.want) {
		return nil
	}
	err := flex.Errorf(flex.CodeFailedPrecondition, "VolumeAttachment %s has the name for volume %s on node %s, but is for node %s and the attacher %s; find out who has made it, and delete it",
		op.name, aboutVolume(op.want), op.want.Node, o.Spec.NodeName, o.Spec.Attacher)
	op.notify(err.Error())
	return err
}

// attach waits for the end of an attach: errVanished if the attachment has to be re-created.
func (op *operation) attach(ctx context.Context, o *storagev1.VolumeAttachment, created bool) (csivol.Attached, error) {
	earlier := !created && op.owns(o) // of an earlier call or process
	var err error
	switch {
	case o.DeletionTimestamp != nil:
		if err = op.waitDeleted(ctx, o); err == nil {
			err = errVanished
		}
	case earlier && !op.want.Keep && o.Annotations[objects.RequestAnnotation] != op.want.Request:
		err = op.replace(ctx, o)
	case earlier && !o.Status.Attached && !isSameSpec(o.Spec.Source.InlineVolumeSpec, objects.AttachmentSpec(op.want)):
		// The spec of an earlier try cannot be changed. With a wrong secret, for
		// example, it would fail for ever.
		op.log(ctx).Info("the wanted spec has changed; re-creating the VolumeAttachment")
		if err = op.remove(ctx, o); err == nil {
			err = errVanished
		}
	}
	if err != nil {
		return csivol.Attached{}, err
	}
	if _, checked := op.exclusive.Load(o.UID); isExclusive(op.want) && op.owns(o) && !checked {
		return op.attachExclusive(ctx, o, created)
	}
	return op.waitAttached(ctx, o)
}

// isSameSpec compares what the external-attacher reads. Empty and absent are the same.
func isSameSpec(have, want *corev1.PersistentVolumeSpec) bool {
	return have != nil && equality.Semantic.DeepEqual(have.CSI, want.CSI) &&
		slices.Equal(have.MountOptions, want.MountOptions) && slices.Equal(have.AccessModes, want.AccessModes)
}

// replace deletes an attachment that no record of this node has made: errVanished when it
// can be created again. A node that was re-created under its name is another machine for
// the storage, where the volume is not attached and the publish context may be that of
// another disk (kubernetes#67853). The control plane detaches what it has adopted.
func (op *operation) replace(ctx context.Context, o *storagev1.VolumeAttachment) error {
	if adopted, err := op.isAdopted(ctx); err != nil || adopted {
		return err
	}
	op.log(ctx).Warn("no record of this node has made the VolumeAttachment; re-creating it")
	if err := op.remove(ctx, o); err != nil {
		return flex.Errorf(flex.CodeOf(err), "VolumeAttachment %s was made before node %s was re-created, or before its records were lost, and is detached before the volume is used: %w", op.name, op.want.Node, err)
	}
	return errVanished
}
