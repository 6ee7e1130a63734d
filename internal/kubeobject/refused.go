package kubeobject

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/flex2csi/flex2csi/internal/driverconfig"
)

// Unsupported says why flex2csi does not serve a FlexVolume driver; empty: it may.
func Unsupported(driver string, onWindows bool) string {
	if onWindows {
		return "Windows: flex2csi runs on nodes with Linux only; use the CSI driver in the pod, or a claim of its StorageClass"
	}
	if _, err := driverconfig.ParseDriverName(driver); err != nil {
		return err.Error()
	}
	return ""
}

// RefusedVolume says why the kubelet does not mount a FlexVolume for its PersistentVolume, if
// it does not (pkg/volume/flexvolume/plugin.go, SupportsMountOption;
// pkg/volume/util/operationexecutor/operation_generator.go, checkMountOptionSupport and
// GenerateMapVolumeFunc, which wants a BlockVolumePlugin, Kubernetes v1.37.1).
func RefusedVolume(mountOptions bool, mode corev1.PersistentVolumeMode) string {
	switch {
	case mode == corev1.PersistentVolumeBlock:
		return "the kubelet gives no FlexVolume to a pod as a block device: make the volume with volumeMode Filesystem"
	case mountOptions:
		return "the kubelet refuses a FlexVolume with spec.mountOptions: remove them, and set an option that the mapping makes mount flags of"
	}
	return ""
}

// RefusedSecret says why the kubelet does not pass on a Secret, if it does not: its type has
// to be the name of the driver (pkg/volume/util/util.go, GetSecretForPV, Kubernetes v1.37.1).
func RefusedSecret(namespace, name, kind, driver string) string {
	if kind == driver {
		return ""
	}
	return "the kubelet refuses Secret " + namespace + "/" + name + ": its type must be " + driver + ", and cannot be changed; create it again with that type"
}
