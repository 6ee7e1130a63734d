package csivol

import (
	"slices"

	storagev1 "k8s.io/api/storage/v1"
)

// FSGroupSkipped says why a volume's files are not given to the fsGroup of a pod that may write;
// empty: they are, by the kubelet, unless the CSI driver does it (pkg/volume/csi/csi_mounter.go,
// supportsFSGroup, Kubernetes v1.37.1).
func FSGroupSkipped(policy storagev1.FSGroupPolicy, fsType string, modes []AccessMode) string {
	switch {
	case policy == storagev1.NoneFSGroupPolicy:
		return "fsGroupPolicy None"
	case policy == storagev1.FileFSGroupPolicy:
		return ""
	case fsType == "":
		return "fsGroupPolicy ReadWriteOnceWithFSType, and the volume has no fsType"
	case !slices.ContainsFunc(modes, ofOneNode):
		return "fsGroupPolicy ReadWriteOnceWithFSType, and the volume is not of one node"
	}
	return ""
}

func ofOneNode(m AccessMode) bool { return m == ReadWriteOnce || m == ReadWriteOncePod }
