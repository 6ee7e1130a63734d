package bridge

import (
	"path/filepath"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// A PersistentVolume may become a CSI one under its pods (flex2csi migrate).
// Then the kubelet's own CSI plugin mounts it beside what is mounted here, and
// whoever lets go first leaves it to the other.

// volDataFile is what the kubelet's CSI plugin keeps beside its staging path,
// for drivers that stage nothing, too (pkg/volume/csi/csi_attacher.go,
// MountDevice, Kubernetes v1.37.1).
const volDataFile = "vol_data.json"

func (b *Bridge) volDataPath(key csivol.Key) string {
	return filepath.Join(filepath.Dir(b.kubeletStagingPath(key)), volDataFile)
}

// takenOver reports whether the kubelet's CSI plugin has the volume by now.
func (b *Bridge) takenOver(v *volume) (bool, error) {
	over, err := b.dirs().Exists(b.volDataPath(v.key))
	if err != nil {
		return false, flex.Errorf(flex.CodeInternal, "see whether the kubelet has taken the volume over: %w", err)
	}
	if over {
		v.log.Info("the kubelet's CSI plugin has the volume; it is neither unstaged nor detached here")
	}
	return over, nil
}

// csiDir is where the kubelet's CSI plugin has a volume for a pod, with its file
// and the mount (pkg/volume/csi/csi_mounter.go, getTargetPath, Kubernetes v1.37.1).
func (b *Bridge) csiDir(pod, persistentVolume string) string {
	return filepath.Join(b.KubeletDir, "pods", pod, "volumes/kubernetes.io~csi", persistentVolume)
}

// KubeletHas reports whether the kubelet's CSI plugin has the volume of a record
// for a pod, mounted, or without one for whichever. What cannot be looked at it
// has not: who asks waits for it.
func (b *Bridge) KubeletHas(r *volstate.Record, pod string) bool {
	if pod == "" {
		return b.there(b.volDataPath(r.Key()))
	}
	dir := b.csiDir(pod, r.Name)
	if !b.there(filepath.Join(dir, volDataFile)) {
		return false
	}
	mounted, err := b.Mounts.Mounted(filepath.Join(dir, "mount"))
	return err == nil && mounted
}
