//go:build linux

package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// checkStale looks for device mounts of volumes that no pod uses. A kubelet that was
// restarted between the last unmount and unmountdevice forgets the latter
// (kubernetes/kubernetes#85476).
func (p *probe) checkStale(n *notes, volumes []*mounter.Info) {
	used := p.inUse(volumes)
	for _, m := range volumes {
		key, whole := wholeVolume(m)
		if !whole || used[key] || used[m.Mountpoint] {
			continue
		}
		// The parent directory is not a mount. It was written when the volume was
		// staged, and a pod may be about to get the volume.
		info, err := os.Stat(p.at(filepath.Dir(m.Mountpoint)))
		if err != nil || time.Since(info.ModTime()) < staleAfter {
			continue
		}
		n.add(mountStale, m.Mountpoint, "%s is mounted, and no pod has a mount of it", m.Mountpoint).evidence(owner(m)...)
	}
}

// wholeVolume reports whether a mount is one that pods share, and its key in common with
// theirs: the device, or for a marker the driver and the name.
func wholeVolume(m *mounter.Info) (key string, whole bool) {
	if place, err := kubeletdir.Parse(m.Mountpoint); err == nil && place.PodUID == "" {
		return place.Driver + " " + place.Volume, true
	}
	return device(m), strings.Contains(m.Mountpoint, "/plugins/kubernetes.io/csi/") && filepath.Base(m.Mountpoint) == "globalmount"
}

func device(m *mounter.Info) string { return m.Source + " " + m.FSType }

// inUse returns the keys of volumes that pods have, or that have a record: the daemon
// unstages those itself.
func (p *probe) inUse(volumes []*mounter.Info) map[string]bool {
	used := map[string]bool{}
	for _, m := range volumes {
		if _, whole := wholeVolume(m); whole {
			continue
		}
		used[device(m)] = true
		if place, err := kubeletdir.Parse(m.Mountpoint); err == nil {
			used[place.Driver+" "+place.Volume] = true
		}
	}
	if s, err := p.status(); err == nil {
		for i := range s.Volumes {
			v := &s.Volumes[i]
			used[v.DeviceMountPath] = true
			if v.Staging != nil {
				used[v.Staging.Path] = true
			}
		}
	}
	return used
}

// owner describes the owner of a mount.
func owner(m *mounter.Info) []string {
	facts := []string{mounter.Describe(m)}
	if place, err := kubeletdir.Parse(m.Mountpoint); err == nil {
		fact := "volume " + place.Volume + " of driver " + place.Driver
		if place.PodUID != "" {
			fact += ", pod " + place.PodUID
		}
		facts = append(facts, fact)
	}
	return facts
}
