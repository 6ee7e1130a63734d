package kube

import (
	"context"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// After a rollback of a migration the control plane still has the volume attached as a
// CSI volume, by the VolumeAttachment that we would use. It detaches the volume up to a
// minute after the kubelet's CSI plugin has unmounted it, also if the bridge has
// mounted it meanwhile (pkg/controller/volume/attachdetach/reconciler/reconciler.go;
// the pods' volumes are checked in full once a minute, Kubernetes v1.37.1). While the
// plugin has the volume staged it is not detached; and the plugin cannot unstage a
// volume that we have mounted.
//
// For a pod that had the volume before the rollback the control plane wants the CSI volume
// until the pod ends (populator/desired_state_of_world_populator.go). If the node reboots
// meanwhile, the plugin has it no more, and the volume stays attached: the pod waits until it is
// deleted. To mount it all the same would be wrong: at the pod's end the control plane
// detaches at once, as the kubelet does not report the CSI volume to be in use.

const (
	// handBackLook is the pause between two requests for the node.
	handBackLook = time.Second
	// handBackAsk bounds the request for the node.
	handBackAsk = 3 * time.Second
	// handBackGap is how long the VolumeAttachment may stay after the node no longer
	// lists the volume as attached.
	handBackGap = 5 * time.Second
)

// waitKept waits until the control plane is not about to delete an attachment:
// errVanished if it was deleted. If managed is true, the control plane will delete it when the
// kubelet's CSI plugin has unstaged the volume. Once a deletion was expected, only an
// answer of the API server says that the attachment stays.
func (op *operation) waitKept(ctx context.Context, o *storagev1.VolumeAttachment) (managed bool, err error) {
	if op.owner == objects.AttachedByController {
		return false, nil // the controller cannot see what the kubelet holds; the node's daemon checks that
	}
	early, cancel := soon(ctx)
	defer cancel()
	waited := false
	for op.isAttachedAsCSI(early, waited) {
		if op.want.KubeletHolds {
			return true, nil
		}
		if !waited {
			op.log(ctx).Info("the control plane is about to detach the volume, which it has attached as a CSI volume; waiting for that")
		}
		waited = true
		select {
		case <-early.Done():
			return false, op.errLeaving()
		case <-time.After(handBackLook):
		}
	}
	if !waited {
		return false, nil
	}
	return false, op.waitGap(early, o)
}

// waitGap waits for a VolumeAttachment that the node no longer lists: errVanished
// when it was deleted, nil if it stays. It confirms what the watch says, and what is
// not known at the end of ctx may still be deleted.
func (op *operation) waitGap(ctx context.Context, o *storagev1.VolumeAttachment) error {
	gap, cancel := context.WithTimeout(ctx, handBackGap)
	defer cancel()
	gone := func(now *storagev1.VolumeAttachment) bool {
		return now == nil || now.UID != o.UID || now.DeletionTimestamp != nil
	}
	vanished := false
	_ = op.wait(gap, o, func(now *storagev1.VolumeAttachment) bool {
		vanished = gone(now)
		return vanished
	})
	if vanished {
		return errVanished
	}
	if now, err := op.request(ctx); err != nil || gone(now) {
		return op.errLeaving() // the next call knows more
	}
	return nil
}

// errLeaving returns the error for an attachment that was not deleted in time.
func (op *operation) errLeaving() error {
	return flex.Errorf(flex.CodeUnavailable, "volume %s is attached to node %s as a CSI volume, by VolumeAttachment %s, and the kubelet does not hold it as one: only when kube-controller-manager has detached it can it be attached for the FlexVolume; wait a minute, then delete the pods on this node that had it before the rollback: for them it stays attached",
		aboutVolume(op.want), op.want.Node, op.name)
}

// isAttachedAsCSI reports whether the control plane has the volume attached to the node as a CSI
// volume. Without an answer the state is as before: an outage of the API server blocks
// no volume that is attached, and keeps none that was about to be detached.
func (op *operation) isAttachedAsCSI(ctx context.Context, before bool) bool {
	ctx, cancel := context.WithTimeout(ctx, handBackAsk)
	defer cancel()
	n, err := op.cluster.GetNode(ctx, op.want.Node)
	if err != nil {
		return before
	}
	return n != nil && objects.VolumeAttached(n, objects.CSIVolumeName(op.want.Driver, op.want.Handle))
}
