package kube

import (
	"context"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/attachment"
	"github.com/flex2csi/flex2csi/internal/kubeobject"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// After a migration was rolled back the control plane still has the volume attached
// as a CSI one, by the VolumeAttachment that we would use. When the kubelet has let
// go of it it is detached, up to a minute later, whoever has mounted it meanwhile
// (pkg/controller/volume/attachdetach/reconciler/reconciler.go; the pods' volumes
// are looked through in full once a minute, Kubernetes v1.37.1). While its CSI
// plugin holds the volume it is not, and it cannot let go of what we have mounted.

const (
	// handBackLook is the pause between two looks at the node.
	handBackLook = time.Second
	// handBackAsk is for how long the node is asked for.
	handBackAsk = 3 * time.Second
	// handBackGap is how long the VolumeAttachment may stay when the node does not
	// list the volume as attached any more, which comes first.
	handBackGap = 5 * time.Second
)

// untilKept waits until an attachment that was found is not about to be deleted by
// the control plane: errVanished if it was. Lent: it will be when the kubelet's CSI
// plugin has let go. Once it was seen that it is about to go, nothing but an answer
// of the API server says that it stays.
func (w *wait) untilKept(ctx context.Context, o *storagev1.VolumeAttachment) (lent bool, err error) {
	if w.owner == attachment.AttachedByController {
		return false, nil // it cannot see what the kubelet holds; the node's daemon looks
	}
	early, cancel := soon(ctx)
	defer cancel()
	waited := false
	for w.lent(early, waited) {
		if w.want.KubeletHolds {
			return true, nil
		}
		if !waited {
			w.cluster.log.InfoContext(ctx, "the control plane is about to detach the volume, which it has attached as a CSI volume; waiting for that", "volumeAttachment", w.name, "node", w.want.Node)
		}
		waited = true
		select {
		case <-early.Done():
			return false, w.leaving()
		case <-time.After(handBackLook):
		}
	}
	if !waited {
		return false, nil
	}
	return false, w.throughGap(early, o)
}

// throughGap waits until the VolumeAttachment, too, has gone that the node does not
// list any more, or is not going to: errVanished, or nil. What the watch says is
// confirmed, and what is not known by the end of ctx may still go.
func (w *wait) throughGap(ctx context.Context, o *storagev1.VolumeAttachment) error {
	gap, cancel := context.WithTimeout(ctx, handBackGap)
	defer cancel()
	gone := func(now *storagev1.VolumeAttachment) bool {
		return now == nil || now.UID != o.UID || now.DeletionTimestamp != nil
	}
	vanished := false
	_ = w.follow(gap, o, func(now *storagev1.VolumeAttachment) bool {
		vanished = gone(now)
		return vanished
	})
	if vanished {
		return errVanished
	}
	if now, err := w.get(ctx); err != nil || gone(now) {
		return w.leaving() // the next call knows more
	}
	return nil
}

// leaving is for an attachment that is about to be deleted, and is not in time.
func (w *wait) leaving() error {
	return flex.Errorf(flex.CodeUnavailable, "volume %s is attached to node %s as a CSI volume, by VolumeAttachment %s, and the kubelet does not hold it as one: the control plane is about to detach it, and only then can it be attached for the FlexVolume; does kube-controller-manager run?",
		aboutVolume(w.want), w.want.Node, w.name)
}

// lent reports whether the control plane has the volume attached to the node as a
// CSI one. What is not known is as before: the API server being away keeps nobody
// from what is attached, and does not make that stay which was about to go.
func (w *wait) lent(ctx context.Context, before bool) bool {
	ctx, cancel := context.WithTimeout(ctx, handBackAsk)
	defer cancel()
	n, err := w.cluster.GetNode(ctx, w.want.Node)
	if err != nil {
		return before
	}
	return n != nil && kubeobject.VolumeAttached(n, kubeobject.CSIVolumeName(w.want.Driver, w.want.Handle))
}
