// Package distribution knows where the distributions of Kubernetes have what
// flex2csi needs to know of a node: the kubelet's plugin directory and its own
// directory. It is the one table of them: overlays, chart and documents are
// checked against it.
//
// It has defaults. What the kubelet itself says goes first: operators configure
// their nodes.
package distribution

import (
	"fmt"
	"strings"
)

// Where upstream's kubelet has them (pkg/kubelet/apis/config/v1beta1/defaults.go
// and cmd/kubelet/app/options/options.go, Kubernetes v1.37.1).
const (
	DefaultPluginDir  = "/usr/libexec/kubernetes/kubelet-plugins/volume/exec"
	DefaultKubeletDir = "/var/lib/kubelet"
)

// Other plugin directories, by who uses them.
const (
	aksPluginDir          = "/etc/kubernetes/volumeplugins"
	gkePluginDir          = "/home/kubernetes/flexvolume"
	volumePlugins         = "/var/lib/kubelet/volumeplugins" // the most usual one where /usr is read-only
	k0sPluginDir          = "/usr/libexec/k0s/kubelet-plugins/volume/exec"
	openshiftPluginDir    = "/etc/kubernetes/kubelet-plugins/volume/exec"
	bottlerocketPluginDir = "/var/lib/kubelet/plugins/volume/exec"
	optPluginDir          = "/opt/libexec/kubernetes/kubelet-plugins/volume/exec"
)

// A Distribution is one way to run Kubernetes.
type Distribution struct {
	// Name is what flags, overlays and values call it.
	Name string
	// Title is for people.
	Title string
	// PluginDir is the kubelet's --volume-plugin-dir, KubeletDir its --root-dir.
	PluginDir, KubeletDir string
	// SELinux: its nodes usually run with SELinux enforcing, so that a container
	// which is not privileged needs the type spc_t to work with files of the node.
	SELinux bool
	// Source is where this is known from.
	Source string
	// Trap is what goes wrong there, and what to do about it. Empty: nothing of
	// its own.
	Trap string
}

// Get returns the distribution of a name.
func Get(name string) (Distribution, error) {
	var names []string
	for _, d := range All() {
		if d.Name == name {
			return d, nil
		}
		names = append(names, d.Name)
	}
	return Distribution{}, fmt.Errorf("no distribution %q is known, only %s", name, strings.Join(names, ", "))
}

// PluginDirs returns the plugin directories that a node may have, the most usual ones
// first. It does not make them of the table: its texts would be in each program that
// needs the directories.
func PluginDirs() []string {
	return []string{
		DefaultPluginDir, aksPluginDir, gkePluginDir, volumePlugins, k0sPluginDir, openshiftPluginDir, bottlerocketPluginDir, optPluginDir,
		// Rare by now:
		"/usr/lib/kubernetes/kubelet-plugins/volume/exec", // SUSE CaaSP 4 (SUSE/doc-caasp#805)
		"/etc/origin/kubelet-plugins/volume/exec",         // OpenShift 3 on Atomic (openshift/openshift-docs#10878)
		"/var/lib/kubelet/volume-plugins",                 // kubespray before 2.11
	}
}
