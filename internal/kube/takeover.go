package kube

import (
	"context"
	"slices"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// takenOver reports whether the control plane has the attachment now, which it
// adopts by its name when the PersistentVolume has become a CSI one. Then it
// deletes it when it is time.
func (w *wait) takenOver(ctx context.Context) (bool, error) {
	n, err := w.cluster.GetNode(ctx, w.want.Node)
	if err != nil {
		return false, err
	}
	unique := uniqueCSI(w.want.Key())
	if n != nil && (slices.Contains(n.VolumesInUse, unique) || slices.Contains(n.VolumesAttached, unique)) {
		w.cluster.log.InfoContext(ctx, "the control plane has taken the VolumeAttachment over; it is left to it", "volumeAttachment", w.name, "node", w.want.Node)
		return true, nil
	}
	return w.aboutToBe(ctx)
}

// aboutToBe: the PersistentVolume is a CSI one, and a pod of this node uses it:
// the control plane will take the attachment over any moment.
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
	for _, p := range pods {
		if !p.Finished && claims(&p, pv.Claim) {
			w.cluster.log.InfoContext(ctx, "the PersistentVolume is a CSI one by now, and a pod uses it; the VolumeAttachment is left to the control plane", "volumeAttachment", w.name, "node", w.want.Node, "pod", p.Namespace+"/"+p.Name)
			return true, nil
		}
	}
	return false, nil
}

// csiPrefix begins the unique names of the volumes of a CSI driver
// (pkg/volume/csi/csi_plugin.go, GetVolumeName; pkg/volume/util/util.go,
// GetUniqueVolumeName, Kubernetes v1.37.1).
func csiPrefix(driver string) string { return "kubernetes.io/csi/" + driver + "^" }
