package node

import "github.com/flex2csi/flex2csi/internal/release"

// has reports whether the node's release of Kubernetes has what came with another one.
// A node without a release is of the newest.
func (n *Node) has(since release.Minor) bool {
	m, ok := release.Parse(n.options.Version)
	return !ok || m >= since
}

// The fields of a kubelet's configuration that 1.24 lacks, by the release that brought
// them (staging/src/k8s.io/kubelet/config/v1beta1/types.go).
const (
	runtimeEndpoint = "containerRuntimeEndpoint"
	failCgroupV1    = "failCgroupV1"
)

func fieldsSince() map[string]release.Minor {
	return map[string]release.Minor{runtimeEndpoint: 27, failCgroupV1: 31}
}
