package distribution

// This file knows what the minor releases of Kubernetes 1 can do, as far as
// flex2csi depends on it. plan and doctor decide by this table, and docs/limits.md
// shows it (make docs).

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Minor is a minor release of Kubernetes 1: 37 of v1.37.1. Zero is none.
type Minor int

// ParseMinor returns the minor release of a version as the API server and kubelets report it:
// v1.37.1, v1.27.11-gke.100, v1.28+.
func ParseMinor(version string) (Minor, bool) {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < 2 || parts[0] != "1" {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimRight(parts[1], "+"))
	return Minor(n), err == nil && n > 0
}

func (m Minor) String() string { return fmt.Sprintf("1.%d", int(m)) }

// Has reports whether the release has what c is about.
func (m Minor) Has(c ReleaseCapability) bool { return m >= c.Since }

// A ReleaseCapability is something of Kubernetes that flex2csi uses or has to mind.
type ReleaseCapability struct {
	Name string
	// Since is the first release that has it without a feature gate being set.
	Since Minor
	// Without is what is different before.
	Without string
	// Source is where Kubernetes has it.
	Source string
}

// Eviction is the subresource eviction in policy/v1, with which --rolling stops pods.
func Eviction() ReleaseCapability {
	return ReleaseCapability{
		"eviction by policy/v1", 22,
		"`--rolling` cannot stop pods", "pkg/registry/core/pod/storage/eviction.go",
	}
}

// StagingPath says that the kubelet stages a CSI volume below the driver's name and a digest of the
// handle, where the bridge has staged it.
func StagingPath() ReleaseCapability {
	return ReleaseCapability{
		"staging path by driver and handle", 24,
		"the kubelet stages below the PersistentVolume's name: no volume can be handed over to it", "pkg/volume/csi/csi_attacher.go, makeDeviceMountPath",
	}
}

// Reconstruction says that a restarted kubelet finds its mounts in the mount table before it
// compares them with the pods (NewVolumeManagerReconstruction, KEP-3756).
func Reconstruction() ReleaseCapability {
	return ReleaseCapability{
		"reconstruction of volumes before pods", 28,
		"a restarted kubelet takes the FlexVolume's mount for the CSI volume's of the same name and never unmounts it: the pod stays Terminating", "pkg/kubelet/volumemanager/reconciler",
	}
}

// AdmissionPolicies are admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy.
func AdmissionPolicies() ReleaseCapability {
	return ReleaseCapability{
		"ValidatingAdmissionPolicy", 30,
		"nothing in the cluster bounds inline volumes or tokens: nodes do not attach, unless you accept that (docs/rbac.md)", "KEP-3488",
	}
}

// nodeTokens says that a pod's token has in the claims of the user on which node the pod is.
func nodeTokens() ReleaseCapability {
	return ReleaseCapability{
		"tokens that name their node", 30,
		"a policy cannot tell one node's token from another's", "KEP-4193",
	}
}

// appArmorField is securityContext.appArmorProfile of a pod.
func appArmorField() ReleaseCapability {
	return ReleaseCapability{
		"`appArmorProfile`", 30,
		"the profile is an annotation of the pod", "KEP-24",
	}
}

// PluginLock says that the kubelet changes its list of FlexVolume drivers under a lock.
func PluginLock() ReleaseCapability {
	return ReleaseCapability{
		"lock on the list of FlexVolume drivers", 33,
		"a kubelet may end when a driver is installed or updated while it mounts volumes (kubernetes/kubernetes#124839): systemd starts it again, pods run on", "pkg/volume/plugins.go, FindPluginBySpec",
	}
}

// SELinuxMount says that, where SELinux is enforced, volumes of drivers with seLinuxMount: true are
// mounted with the pod's context, whatever their access mode.
func SELinuxMount() ReleaseCapability {
	return ReleaseCapability{
		"SELinuxMount", 37,
		"only volumes with `ReadWriteOncePod` are mounted with the pod's SELinux context", "KEP-1710",
	}
}

// ReleaseCapabilities are all of the table, oldest first.
func ReleaseCapabilities() []ReleaseCapability {
	all := []ReleaseCapability{Eviction(), StagingPath(), Reconstruction(), AdmissionPolicies(), nodeTokens(), appArmorField(), PluginLock(), SELinuxMount()}
	slices.SortStableFunc(all, func(a, b ReleaseCapability) int { return int(a.Since - b.Since) })
	return all
}

// CompleteMinor is the first release that has all that flex2csi uses. What came later changes
// only what it has to mind.
func CompleteMinor() Minor { return AdmissionPolicies().Since }

// TestedMinors are the releases of which make e2e-releases runs all scenarios, oldest first.
func TestedMinors() []Minor { return []Minor{24, 28, 32, 34, 36, 37} }

// TestedText names them.
func TestedText() string {
	var names []string
	for _, m := range TestedMinors() {
		names = append(names, m.String())
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}
