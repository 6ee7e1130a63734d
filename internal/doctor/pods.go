//go:build linux

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// settled is the age from which a pod's directory is not in use by a set-up.
const settled = 2 * time.Minute

// checkPods checks the directories of pods for volumes that keep the kubelet from removing
// them (pkg/kubelet/kubelet_volumes.go, cleanupOrphanedPodDirs), and for data that was
// written next to a volume.
func (p *probe) checkPods(ctx context.Context, n *notes) {
	dir := filepath.Join(p.kubeletDir(), "pods")
	pods, err := os.ReadDir(p.at(dir))
	if errors.Is(err, fs.ErrNotExist) && p.kubeletDirThere() != nil {
		return // checkMounts says so
	}
	if err != nil {
		n.skip("the directories of pods", "%v", err)
		return
	}
	table, err := p.nodeTable()
	if err != nil {
		n.skip("the directories of pods", "%v", err)
		return
	}
	mounted := map[string]bool{}
	for _, m := range table {
		mounted[m.Mountpoint] = true
	}
	known, why := p.knownPods(ctx)
	if known == nil {
		n.skip("which directories of pods are orphaned", "%s", why)
	}
	for _, pod := range pods {
		if !pod.IsDir() {
			continue
		}
		path := filepath.Join(dir, pod.Name())
		p.checkVolumeDirs(n, path, mounted)
		if info, err := pod.Info(); known != nil && !known[pod.Name()] && err == nil && time.Since(info.ModTime()) > settled {
			orphaned(n, pod.Name(), path, table)
		}
	}
	n.add(podsFine, dir, "%s of pods checked", countIn(len(pods), "directory", "directories"))
}

// knownPods returns the UIDs of the pods that Kubernetes has on this node; nil if not
// known, with the reason.
func (p *probe) knownPods(ctx context.Context) (map[string]bool, string) {
	if p.Cluster == nil {
		return nil, "only the API server knows which pods there are: " + p.NoCluster
	}
	node := p.node()
	if node == "" {
		return nil, "the name of this node is not known: --node-name"
	}
	pods, err := p.Cluster.PodsOf(ctx, node)
	switch {
	case unreachable(err):
		return nil, "the API server does not answer"
	case err != nil:
		return nil, err.Error()
	}
	known := map[string]bool{}
	for i := range pods {
		for _, uid := range objects.PodUIDs(&pods[i]) {
			known[uid] = true
		}
	}
	if len(known) == 0 {
		return nil, fmt.Sprintf("Kubernetes has no pod at all on node %s: is that this node's name?", node)
	}
	return known, ""
}

// orphaned reports what keeps the directory of a deleted pod.
func orphaned(n *notes, uid, path string, table []*mounter.Info) {
	var left []string
	for _, m := range table {
		if strings.HasPrefix(m.Mountpoint, path+"/") {
			left = append(left, m.Mountpoint)
		}
	}
	if len(left) == 0 {
		n.add(podOrphaned, path, "Kubernetes has no pod %s on this node, and its directory is there", uid)
		return
	}
	for _, point := range left {
		n.add(mountLeft, point, "Kubernetes has no pod %s on this node, and %s is still mounted", uid, point)
	}
}

// checkVolumeDirs checks the volume directories of FlexVolume drivers: each is a mount, or
// an empty directory before its mount. The CSI plugin has files next to its mounts.
func (p *probe) checkVolumeDirs(n *notes, pod string, mounted map[string]bool) {
	volumes := filepath.Join(pod, "volumes")
	plugins, err := os.ReadDir(p.at(volumes))
	if err != nil {
		return // a pod that comes or goes
	}
	for _, plugin := range plugins {
		if !plugin.IsDir() || strings.HasPrefix(plugin.Name(), "kubernetes.io~") || !strings.Contains(plugin.Name(), "~") {
			continue
		}
		entries, err := os.ReadDir(p.at(filepath.Join(volumes, plugin.Name())))
		if err != nil {
			continue
		}
		for _, e := range entries {
			path := filepath.Join(volumes, plugin.Name(), e.Name())
			if mounted[path] || mounted[withoutLinks(path)] {
				continue
			}
			p.checkUnmounted(n, path, e)
		}
	}
}

// checkUnmounted may read the directory: nothing is mounted there.
func (p *probe) checkUnmounted(n *notes, path string, e os.DirEntry) {
	if !e.IsDir() {
		n.add(volumeDirFiles, path, "%s is a file where a volume ought to be", path)
		return
	}
	files, err := os.ReadDir(p.at(path))
	if err != nil || len(files) == 0 {
		return
	}
	var names []string
	for _, f := range files[:min(len(files), 5)] {
		names = append(names, f.Name())
	}
	slices.Sort(names)
	n.add(volumeDirFiles, path, "nothing is mounted at %s, and it has %d entries", path, len(files)).evidence("such as " + strings.Join(names, ", "))
}
