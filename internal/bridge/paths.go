package bridge

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
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

// A node is the mounts and directories of this node.
type node struct {
	mounts     Mounts
	dirs       Dirs
	kubeletDir string
	grace      time.Duration
	podVolumes *podVolumes
}

func (b *Bridge) node() node {
	return node{mounts: b.Mounts, dirs: b.dirs(), kubeletDir: b.KubeletDir, grace: b.grace(), podVolumes: &b.podVolumes}
}

// stagingPath is the kubelet's own for the volume: so that its CSI plugin can
// take the volume over under a running pod, and since a volume has one staging
// path on a node (kubelet, pkg/volume/csi/csi_attacher.go, makeDeviceMountPath).
func (n node) stagingPath(key csivol.Key) string {
	return path.Join(n.stagingRoot(), key.Driver, fmt.Sprintf("%x", sha256.Sum256([]byte(key.Handle))), globalMount)
}

func (n node) stagingRoot() string { return path.Join(n.kubeletDir, "plugins/kubernetes.io/csi") }

const globalMount = "globalmount"

// KubeletStaging is where the kubelet's CSI plugin would have the volume of a
// record staged.
func (b *Bridge) KubeletStaging(r *volstate.Record) string {
	return b.node().stagingPath(r.Key())
}

// staged returns the staging paths of a driver at which, or directly below, something
// may be mounted, but for those that the kubelet's CSI plugin has.
func (n node) staged(d *FlexDriver) (paths []string, err error) {
	root := path.Join(n.stagingRoot(), d.CSIDriver)
	volumes, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, v := range volumes {
		at := path.Join(root, v.Name(), globalMount)
		if n.maybeStaged(at) && !n.there(path.Join(root, v.Name(), volDataFile)) {
			paths = append(paths, at)
		}
	}
	return paths, nil
}

// device returns the device mount path of a volume (kubelet, pkg/volume/flexvolume/util.go)
// if the reconciler has removed its marker, else an empty string. The kubelet may still
// know the path, and then does not call mountdevice again.
func (b *Bridge) device(d *FlexDriver, v *csivol.Volume) string {
	if v == nil {
		return ""
	}
	path := filepath.Join(b.KubeletDir, "plugins/kubernetes.io/flexvolume", d.Name, "mounts", v.Name)
	if !b.registry.unmarkedAt(path) {
		return ""
	}
	return path
}

// stageMounts returns where what is staged at a path is mounted: there, or directly
// below, where some drivers mount it (ceph-csi, at globalmount/<volume id>).
func (n node) stageMounts(path string) ([]string, error) {
	mounted, err := n.mounts.Mounted(path)
	switch {
	case err != nil:
		return nil, err
	case mounted:
		return []string{path}, nil
	}
	return n.mounts.Below(path)
}

// stageMounted is for where an error is as good as no.
func (n node) stageMounted(path string) bool {
	mounts, err := n.stageMounts(path)
	return err == nil && len(mounts) > 0
}

// maybeStaged: what cannot be looked at may be.
func (n node) maybeStaged(path string) bool {
	mounts, err := n.stageMounts(path)
	return err != nil || len(mounts) > 0
}

// mounted is for where an error is as good as no.
func (n node) mounted(path string) bool {
	mounted, err := n.mounts.Mounted(path)
	return err == nil && mounted
}

// there reports whether a directory exists. The kubelet removes a pod's volume
// directory after it has called unmount (pkg/volume/flexvolume/unmounter.go).
func (n node) there(dir string) bool {
	there, err := n.dirs.Exists(dir)
	return err == nil && there
}

// arrived verifies that what a driver has published can be seen on the node.
// Otherwise a bare directory would be bound, and the pod write to the node's disk.
func (n node) arrived(path string) error {
	mounted, err := n.mounts.Mounted(path)
	if err == nil && !mounted {
		err = flex.Errorf(flex.CodeInternal, "the driver reported success, and nothing is mounted at %s on the node; its pod has to mount the kubelet's directory with mountPropagation: Bidirectional", path)
	}
	return err
}

// gone verifies that nothing is mounted at a path, or directly below, any more: some
// drivers report success, or that they do not know the volume, and leave the mount.
func (n node) gone(path string, said error) error {
	left, err := n.stageMounts(path)
	if err != nil || len(left) == 0 {
		return err
	}
	if said != nil {
		return fmt.Errorf("the driver does not know the volume, and it is still mounted at %s: %w", left[0], said)
	}
	return flex.Errorf(flex.CodeInternal, "the driver reported success, and the volume is still mounted at %s", left[0])
}

// volDataFile is what the kubelet's CSI plugin keeps next to its staging path, for
// drivers that stage (pkg/volume/csi/csi_attacher.go, MountDevice), and in a pod's
// directory for all (csi_mounter.go, SetUpAt; Kubernetes v1.37.1).
const volDataFile = "vol_data.json"

func (n node) volDataPath(key csivol.Key) string {
	return filepath.Join(filepath.Dir(n.stagingPath(key)), volDataFile)
}

// removeVolData removes a file that would be believed.
func (n node) removeVolData(key csivol.Key) {
	_ = n.dirs.Remove(n.volDataPath(key))
	_ = n.dirs.Remove(filepath.Dir(n.volDataPath(key)))
}

// KubeletHas reports whether the kubelet's CSI plugin has the volume of a record
// for a pod, mounted, or without one for whichever. What cannot be looked at it
// has not: who asks waits for it.
func (b *Bridge) KubeletHas(r *volstate.Record, pod string) bool {
	if pod == "" {
		return b.node().there(b.node().volDataPath(r.Key()))
	}
	return slices.ContainsFunc(b.node().csiDirs(r.Key(), pod), func(dir string) bool { return b.node().mounted(csiMount(dir)) })
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
func (n node) kubeletStages(key csivol.Key) (bool, error) {
	staged, err := n.dirs.Exists(n.volDataPath(key))
	if err != nil {
		return false, flex.Errorf(flex.CodeInternal, "see whether the kubelet has taken the volume over: %w", err)
	}
	return staged, nil
}

// csiPods reports whether the kubelet's CSI plugin has the volume for any pod, or is
// about to: it writes its file before NodePublishVolume. An old one without a mount
// is what it has forgotten. What cannot be looked at it has: others then end nothing.
func (n node) csiPods(key csivol.Key) bool {
	return slices.ContainsFunc(n.podVolumes.dirs(n.podsDir(), key), func(dir string) bool {
		if mounted, err := n.mounts.Mounted(csiMount(dir)); err != nil || mounted {
			return true
		}
		info, err := os.Stat(filepath.Join(dir, volDataFile))
		return err == nil && time.Since(info.ModTime()) < n.grace
	})
}

// csiDirs returns where the kubelet's CSI plugin has, or had, the volume for a pod. The
// name of the PersistentVolume does not matter: several may be the same volume.
func (n node) csiDirs(key csivol.Key, pod string) (dirs []string) {
	ofPod := csiVolumesOf(n.podsDir(), pod)
	for _, volume := range names(ofPod) {
		dir := ofPod + "/" + volume
		if data, ok := readVolData(dir, volDataState{}); ok && data.key == key {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

func (n node) podsDir() string { return filepath.Join(n.kubeletDir, "pods") }

// csiMount is what the kubelet's CSI plugin has published in one of its directories
// (pkg/volume/csi/csi_mounter.go, getTargetPath, Kubernetes v1.37.1).
func csiMount(dir string) string { return filepath.Join(dir, "mount") }

// samePublished reports whether the kubelet's CSI plugin has for a pod the filesystem
// that is mounted at path.
func (n node) samePublished(key csivol.Key, path, pod string) bool {
	return slices.ContainsFunc(n.csiDirs(key, pod), func(csi string) bool {
		same, err := n.mounts.SameFilesystem(path, csiMount(csi))
		return err == nil && same
	})
}

// inUse reports whether this node shows anything of a volume. What cannot be
// looked at may be in use.
func (n node) inUse(d *FlexDriver, a *csivol.Attachment) bool {
	if n.maybeStaged(n.stagingPath(a.Key())) {
		return true
	}
	name := a.Name
	if name == "" || d.Inline {
		name = "*"
	}
	for _, pattern := range []string{
		filepath.Join("volumes", strings.Replace(a.FlexDriver, "/", "~", 1), name),
		filepath.Join("flex2csi/volumes/kubernetes.io~csi", name),
	} {
		found, err := filepath.Glob(filepath.Join(n.kubeletDir, "pods/*", pattern))
		if err != nil || len(found) > 0 {
			return true
		}
	}
	return false
}

// target is the path that the driver gets.
func target(t *volstate.Target, dir string) string {
	if t == nil || t.TargetPath == "" {
		return dir
	}
	return t.TargetPath
}
