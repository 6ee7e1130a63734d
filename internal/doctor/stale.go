package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// checkStale looks for what is mounted for a volume as a whole and is no pod's.
// A kubelet that was restarted between the last unmount and unmountdevice
// forgets the latter (kubernetes/kubernetes#85476).
func (p *patient) checkStale(n *notes, volumes []*mounter.Info) {
	used := p.inUse(volumes)
	for _, m := range volumes {
		key, whole := wholeVolume(m)
		if !whole || used[key] || used[m.Mountpoint] {
			continue
		}
		// The directory above is none of a mount's. It is written when the volume
		// is staged, and a pod may be about to get it.
		info, err := os.Stat(p.at(filepath.Dir(m.Mountpoint)))
		if err != nil || time.Since(info.ModTime()) < patience {
			continue
		}
		n.add(mountStale, m.Mountpoint, "%s is mounted, and no pod has a mount of it", m.Mountpoint).evidence(owner(m)...)
	}
}

// wholeVolume reports whether a mount is one that pods share, and what it has in
// common with theirs: the device, or where that is a marker's, driver and name.
func wholeVolume(m *mounter.Info) (key string, whole bool) {
	if place, err := kubeletdir.Parse(m.Mountpoint); err == nil && place.PodUID == "" {
		return place.Driver + " " + place.Volume, true
	}
	return device(m), strings.Contains(m.Mountpoint, "/plugins/kubernetes.io/csi/") && filepath.Base(m.Mountpoint) == "globalmount"
}

func device(m *mounter.Info) string { return m.Source + " " + m.FSType }

// inUse is what pods have, and what the daemon has a record of: that looks after
// its own.
func (p *patient) inUse(volumes []*mounter.Info) map[string]bool {
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
