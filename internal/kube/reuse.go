package kube

import (
	"context"
	"time"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// After kube-controller-manager has deleted the VolumeAttachment of a CSI volume, it
// looks for the name until there is none: first after half a second, in the end every
// 7.7 seconds (pkg/volume/csi/csi_attacher.go, waitForVolumeDetachmentWithLister,
// Kubernetes v1.37.1). If it finds a new one, it waits on, and after two minutes
// deletes that, whatever pods have the volume. So a name is not used again before
// kube-controller-manager has seen that the object is gone.

// untilReusable waits until the name may be used again.
func (w *wait) untilReusable(ctx context.Context) error {
	w.mu.Lock()
	when, ok := w.vanished[w.name]
	w.mu.Unlock()
	left := reuseAfter - time.Since(when)
	if !ok || left <= 0 {
		return nil
	}
	early, cancel := soon(ctx)
	defer cancel()
	select {
	case <-time.After(left):
		return nil
	case <-early.Done():
		return flex.Errorf(flex.CodeUnavailable, "VolumeAttachment %s of volume %s was deleted by another component: it is created again when kube-controller-manager has seen that, %v later",
			w.name, aboutVolume(w.want), reuseAfter)
	}
}
