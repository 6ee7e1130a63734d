package kube

import (
	"context"

	"github.com/flex2csi/flex2csi/internal/kubeobject"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// adopted reports whether the control plane owns the attachment now. It adopts it by
// its name when the PersistentVolume has become a CSI one, and then deletes it, too.
func (w *wait) adopted(ctx context.Context) (bool, error) {
	n, err := w.cluster.GetNode(ctx, w.want.Node)
	if err != nil {
		return false, err
	}
	unique := kubeobject.CSIVolumeName(w.want.Driver, w.want.Handle)
	if n != nil && (kubeobject.VolumeInUse(n, unique) || kubeobject.VolumeAttached(n, unique)) {
		w.log(ctx).Info("the VolumeAttachment was adopted by the control plane, which will delete it")
		return true, nil
	}
	return w.aboutToBe(ctx)
}

// aboutToBe reports whether the PersistentVolume is a CSI one and a pod of this node
// uses it: the control plane is about to adopt the attachment.
func (w *wait) aboutToBe(ctx context.Context) (bool, error) {
	if w.want.Name == "" {
		return false, nil
	}
	pv, err := w.cluster.freshVolume(ctx, w.want.Name)
	if err != nil && flex.CodeOf(err) != flex.CodeNotFound {
		return false, err
	}
	if err != nil || pv.CSI != w.want.Key() {
		return false, nil //nolint:nilerr // there is no such PersistentVolume
	}
	pods, err := w.cluster.PodsOf(ctx, w.want.Node)
	if err != nil {
		return false, err
	}
	for i := range pods {
		if p := &pods[i]; !kubeobject.PodFinished(p) && kubeobject.PodUsesClaim(p, pv.Claim.Namespace, pv.Claim.Name) {
			w.log(ctx).Info("the PersistentVolume is a CSI one by now, and a pod uses it; the VolumeAttachment is left to the control plane", "usedBy", p.Namespace+"/"+p.Name)
			return true, nil
		}
	}
	return false, nil
}
