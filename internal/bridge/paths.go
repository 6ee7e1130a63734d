package bridge

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// Where volumes are on the node, and what the kubelet's own CSI plugin keeps there.
// A PersistentVolume may become a CSI one under its pods, and a FlexVolume again
// (flex2csi migrate); then the plugin has the volume, too. See
// docs/adr/0015-replace-in-place.md.

// stagingPath is the kubelet's own for the volume: so that its CSI plugin can
// take the volume over under a running pod, and since a volume has one staging
// path on a node (kubelet, pkg/volume/csi/csi_attacher.go, makeDeviceMountPath).
func (b *Bridge) stagingPath(d *FlexDriver, key csivol.Key) string {
	if d.StagingRoot != "" {
		return stagingBelow(d.StagingRoot, key)
	}
	return b.kubeletStagingPath(key)
}

func (b *Bridge) kubeletStagingPath(key csivol.Key) string {
	return stagingBelow(filepath.Join(b.KubeletDir, "plugins/kubernetes.io/csi"), key)
}

// KubeletStaging is where the kubelet's CSI plugin would have the volume of a
// record staged.
func (b *Bridge) KubeletStaging(r *volstate.Record) string { return b.kubeletStagingPath(r.Key()) }

func stagingBelow(root string, key csivol.Key) string {
	return filepath.Join(root, key.Driver, fmt.Sprintf("%x", sha256.Sum256([]byte(key.Handle))), "globalmount")
}

// device returns the device mount path of a volume (kubelet, pkg/volume/flexvolume/util.go)
// if the reconciler has removed its marker, else an empty string. The kubelet may still
// know the path, and then does not call mountdevice again.
func (b *Bridge) device(d *FlexDriver, v *csivol.Volume) string {
	if v == nil {
		return ""
	}
	path := filepath.Join(b.KubeletDir, "plugins/kubernetes.io/flexvolume", d.Name, "mounts", v.Name)
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.unmarked[path] {
		return ""
	}
	return path
}

// noteMarker notes whether there is a marker at a device mount path that the
// reconciler has removed, or that is there again.
func (b *Bridge) noteMarker(path string, there bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if there {
		delete(b.unmarked, path)
		return
	}
	if b.unmarked == nil {
		b.unmarked = map[string]bool{}
	}
	b.unmarked[path] = true
}

// stageMounts returns where what is staged at a path is mounted: there, or directly
// below, where some drivers mount it (ceph-csi, at globalmount/<volume id>).
func (b *Bridge) stageMounts(path string) ([]string, error) {
	mounted, err := b.Mounts.Mounted(path)
	switch {
	case err != nil:
		return nil, err
	case mounted:
		return []string{path}, nil
	}
	return b.Mounts.Below(path)
}

// stageMounted is for where an error is as good as no.
func (b *Bridge) stageMounted(path string) bool {
	mounts, err := b.stageMounts(path)
	return err == nil && len(mounts) > 0
}

// mounted is for where an error is as good as no.
func (b *Bridge) mounted(path string) bool {
	mounted, err := b.Mounts.Mounted(path)
	return err == nil && mounted
}

// volDataFile is what the kubelet's CSI plugin keeps next to its staging path, for
// drivers that stage (pkg/volume/csi/csi_attacher.go, MountDevice), and in a pod's
// directory for all (csi_mounter.go, SetUpAt; Kubernetes v1.37.1).
const volDataFile = "vol_data.json"

func (b *Bridge) volDataPath(key csivol.Key) string {
	return filepath.Join(filepath.Dir(b.kubeletStagingPath(key)), volDataFile)
}

// removeVolData removes a file that would be believed.
func (b *Bridge) removeVolData(key csivol.Key) {
	_ = b.dirs().Remove(b.volDataPath(key))
	_ = b.dirs().Remove(filepath.Dir(b.volDataPath(key)))
}

// KubeletHas reports whether the kubelet's CSI plugin has the volume of a record
// for a pod, mounted, or without one for whichever. What cannot be looked at it
// has not: who asks waits for it.
func (b *Bridge) KubeletHas(r *volstate.Record, pod string) bool {
	if pod == "" {
		return b.there(b.volDataPath(r.Key()))
	}
	return slices.ContainsFunc(b.csiDirs(r.Key(), pod), func(dir string) bool { return b.mounted(csiMount(dir)) })
}

// KubeletTook reports whether the kubelet's CSI plugin has the volume of a record
// as well, for any of its pods.
func (b *Bridge) KubeletTook(r *volstate.Record) bool {
	if b.KubeletHas(r, "") {
		return true
	}
	for dir := range r.Targets {
		if place, err := kubeletdir.Parse(dir); err == nil && b.KubeletHas(r, place.PodUID) {
			return true
		}
	}
	return false
}

// kubeletStages reports whether the kubelet's CSI plugin has staged the volume, as
// its file says. It leaves that where its NodeStageVolume has failed and the volume
// is staged by us.
func (b *Bridge) kubeletStages(key csivol.Key) (bool, error) {
	staged, err := b.dirs().Exists(b.volDataPath(key))
	if err != nil {
		return false, flex.Errorf(flex.CodeInternal, "see whether the kubelet has taken the volume over: %w", err)
	}
	return staged, nil
}

// csiPods reports whether the kubelet's CSI plugin has the volume for any pod, or is
// about to: it writes its file before NodePublishVolume. An old one without a mount
// is what it has forgotten. What cannot be looked at it has: others then end nothing.
func (b *Bridge) csiPods(key csivol.Key) bool {
	return slices.ContainsFunc(b.csiDirs(key, "*"), func(dir string) bool {
		if mounted, err := b.Mounts.Mounted(csiMount(dir)); err != nil || mounted {
			return true
		}
		info, err := os.Stat(filepath.Join(dir, volDataFile))
		return err == nil && time.Since(info.ModTime()) < b.grace()
	})
}

// csiDirs returns where the kubelet's CSI plugin has, or had, the volume for a pod,
// which may be *. The name of the PersistentVolume does not matter: several may be
// the same volume.
func (b *Bridge) csiDirs(key csivol.Key, pod string) (dirs []string) {
	files, err := filepath.Glob(filepath.Join(b.KubeletDir, "pods", pod, "volumes/kubernetes.io~csi/*", volDataFile))
	if err != nil {
		return nil // a name that is no pattern: of the kubelet's directory it cannot be
	}
	for _, file := range files {
		var data struct{ DriverName, VolumeHandle string }
		text, err := os.ReadFile(file)
		if err == nil && json.Unmarshal(text, &data) == nil && data.DriverName == key.Driver && data.VolumeHandle == key.Handle {
			dirs = append(dirs, filepath.Dir(file))
		}
	}
	return dirs
}

// csiMount is what the kubelet's CSI plugin has published in one of its directories
// (pkg/volume/csi/csi_mounter.go, getTargetPath, Kubernetes v1.37.1).
func csiMount(dir string) string { return filepath.Join(dir, "mount") }

// livesOn reports whether the kubelet's CSI plugin has for a pod the filesystem that
// is mounted at dir.
func (b *Bridge) livesOn(v *volume, dir, pod string) bool {
	return slices.ContainsFunc(b.csiDirs(v.key, pod), func(csi string) bool {
		same, err := b.Mounts.SameFilesystem(target(v.record.Targets[dir], dir), csiMount(csi))
		return err == nil && same
	})
}
