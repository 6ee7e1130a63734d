package doctor

import (
	"context"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/flex2csi/flex2csi/internal/distribution"
)

// calicosDriver is in nearly all clusters with Calico. No PersistentVolume has it.
const calicosDriver = "nodeagent/uds"

// checkInstallers looks for DaemonSets that can put a driver over flexdriver. Those of
// vendors copy theirs at each start of a pod.
func (p *probe) checkInstallers(ctx context.Context, n *notes) {
	sets, err := p.DaemonSets(ctx)
	if err != nil {
		n.skip("DaemonSets that write to the plugin directory", "%v", err)
		return
	}
	dirs := append(distribution.PluginDirs(), path.Clean("/"+p.PluginDir))
	if p.Local {
		dirs = append(dirs, path.Clean(p.pluginDir()))
	}
	served, known := p.served()
	for _, set := range sets {
		if set.Labels["app.kubernetes.io/part-of"] == "flex2csi" || set.Status.DesiredNumberScheduled == 0 {
			continue
		}
		for _, dir := range writableDirs(&set.Spec.Template.Spec) {
			driver, inside := driverOf(dir, dirs)
			switch {
			case !inside, driver == calicosDriver, known && driver != "" && len(served[driver]) == 0:
				continue
			}
			n.add(pluginDirWriter, set.Namespace+"/"+set.Name, "DaemonSet %s in namespace %s can write to the plugin directory", set.Name, set.Namespace).
				evidence("hostPath "+dir).
				advice("If it installs a driver that flex2csi serves, stop it, so that its next pod does not put that driver over flexdriver: kubectl -n %s delete daemonset %s. Keep its manifest for the way back: docs/install.md, The vendor's driver on the nodes.", set.Namespace, set.Name)
		}
	}
}

// writableDirs returns the directories of the node that a container can write to.
func writableDirs(pod *corev1.PodSpec) (dirs []string) {
	for i := range pod.Volumes {
		v := &pod.Volumes[i]
		if v.HostPath == nil || !slices.ContainsFunc(slices.Concat(pod.InitContainers, pod.Containers), func(c corev1.Container) bool {
			return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == v.Name && !m.ReadOnly })
		}) {
			continue
		}
		dirs = append(dirs, path.Clean(v.HostPath.Path))
	}
	return dirs
}

// driverOf reports whether a directory is one of the plugin directories, or inside of one,
// and then of which driver.
func driverOf(dir string, pluginDirs []string) (driver string, inside bool) {
	for _, plugins := range pluginDirs {
		if plugins == "/" {
			continue // --volume-plugin-dir was not given
		}
		if dir == plugins {
			return "", true
		}
		if below, ok := strings.CutPrefix(dir, plugins+"/"); ok {
			entry, _, _ := strings.Cut(below, "/")
			return strings.ReplaceAll(entry, "~", "/"), true
		}
	}
	return "", false
}
