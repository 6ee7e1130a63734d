package node

import "github.com/flex2csi/flex2csi/internal/distribution"

// has reports whether the node's release of Kubernetes has what came with another one.
// A node without a release is of the newest.
func (n *Node) has(since distribution.Minor) bool {
	m, ok := distribution.ParseMinor(n.options.Version)
	return !ok || m >= since
}

// The fields of a kubelet's configuration that 1.24 lacks, by the release that brought
// them (staging/src/k8s.io/kubelet/config/v1beta1/types.go).
const (
	runtimeEndpoint = "containerRuntimeEndpoint"
	failCgroupV1    = "failCgroupV1"
)

func fieldsSince() map[string]distribution.Minor {
	return map[string]distribution.Minor{runtimeEndpoint: 27, failCgroupV1: 31}
}
