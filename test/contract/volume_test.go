package contract

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/mount-utils"
)

// kind is a sort of volume that the driver offers.
type kind struct {
	name    string
	fsType  string
	size    string // of the PV
	mounted string // the file system that must be found at the target
	needs   []string
	shared  bool // pods see each other's files
	grows   bool
	options func(n *node, name string) map[string]string
	csi     *csiDriver // nil: flexdriver does it itself
}

// kinds are those that flexdriver mounts itself; see also bridged.
func kinds() []kind {
	return []kind{
		imageExt4(),
		{
			name: "image-xfs", fsType: "xfs", size: "320Mi", mounted: "xfs", // mkfs.xfs wants 300 MiB
			needs: []string{"xfs"}, shared: true, grows: true,
			options: func(n *node, name string) map[string]string {
				return map[string]string{"image": filepath.Join(n.images(), name+".img"), "size": "320Mi"}
			},
		},
		deviceExt4(),
		directory(),
		memory(),
	}
}

// deviceExt4 is what has a device mount path: an image is mounted for each pod.
func deviceExt4() kind {
	return kind{
		name: "device-ext4", fsType: "ext4", size: "64Mi", mounted: "ext4",
		needs: []string{"ext4", "losetup"}, shared: true,
		options: func(n *node, name string) map[string]string {
			return map[string]string{"device": n.loopDevice(name, 64<<20)}
		},
	}
}

func imageExt4() kind {
	return kind{
		name: "image-ext4", fsType: "ext4", size: "64Mi", mounted: "ext4",
		needs: []string{"ext4"}, shared: true, grows: true,
		options: func(n *node, name string) map[string]string {
			return map[string]string{"image": filepath.Join(n.images(), name+".img"), "size": "64Mi"}
		},
	}
}

func directory() kind {
	return kind{
		name: "directory", size: "64Mi", needs: []string{"root"}, shared: true,
		options: func(n *node, name string) map[string]string {
			dir := filepath.Join(n.shared(), name)
			n.must(os.MkdirAll(dir, 0o755))
			return map[string]string{"path": dir}
		},
	}
}

func memory() kind {
	return kind{
		name: "memory", size: "8Mi", mounted: "tmpfs", needs: []string{"root"},
		options: func(*node, string) map[string]string {
			return map[string]string{"medium": "memory", "size": "8Mi"}
		},
	}
}

// loopDevice returns a blank block device of the given size.
func (n *node) loopDevice(name string, size int64) string {
	n.t.Helper()
	file := filepath.Join(n.work, name+".disk")
	n.must(os.WriteFile(file, nil, 0o600))
	n.must(os.Truncate(file, size))
	device := n.losetup(file)
	n.t.Cleanup(func() { detachLoop(n.t, device) })
	return device
}

func (n *node) losetup(file string) string {
	n.t.Helper()
	out, err := exec.Command("losetup", "--find", "--show", file).Output()
	n.must(err)
	return strings.TrimSpace(string(out))
}

// vol is a PersistentVolume, bound to a claim that is in the API.
type vol struct {
	n    *node
	kind kind
	pv   *v1.PersistentVolume
	spec *volume.Spec
}

// newVolume makes a volume of kind k. The edits change the PV before it is
// given to the API.
func (n *node) newVolume(k kind, name string, edits ...func(*v1.PersistentVolume)) *vol {
	n.t.Helper()
	need(n.t, k.needs...)
	size := v1.ResourceList{v1.ResourceStorage: resource.MustParse(k.size)}
	mode := v1.PersistentVolumeFilesystem // the API server's default
	pv := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PersistentVolumeSpec{
			Capacity:    size,
			VolumeMode:  &mode,
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			ClaimRef:    &v1.ObjectReference{Namespace: namespaceA, Name: name},
			PersistentVolumeSource: v1.PersistentVolumeSource{FlexVolume: &v1.FlexPersistentVolumeSource{
				Driver: driverName, FSType: k.fsType, Options: k.options(n, name),
			}},
		},
	}
	for _, edit := range edits {
		edit(pv)
	}
	claim := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespaceA, Name: name},
		Spec: v1.PersistentVolumeClaimSpec{
			VolumeName: name,
		},
		Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound, Capacity: size},
	}
	claim.Spec.Resources.Requests = size // the name of its type differs between releases
	ctx := context.Background()
	_, err := n.client.CoreV1().PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{})
	n.must(err)
	_, err = n.client.CoreV1().PersistentVolumeClaims(namespaceA).Create(ctx, claim, metav1.CreateOptions{})
	n.must(err)
	return &vol{n: n, kind: k, pv: pv, spec: volume.NewSpecFromPersistentVolume(pv, false)}
}

// readOnly is the volume through a claim reference with readOnly:true.
func (v *vol) readOnly() *vol {
	ro := *v
	ro.spec = volume.NewSpecFromPersistentVolume(v.pv, true)
	return &ro
}

func newPod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespaceA, Name: name, UID: types.UID("uid-" + name)},
		Spec:       v1.PodSpec{ServiceAccountName: "default"},
	}
}

// dir is the pod volume directory: the argument of mount and unmount.
func (v *vol) dir(pod *v1.Pod) string {
	return filepath.Join(v.n.root, "pods", string(pod.UID), "volumes", driverDir, v.spec.Name())
}

// deviceDir is the device mount path: the argument of mountdevice.
func (v *vol) deviceDir() string {
	return filepath.Join(v.n.root, "plugins/kubernetes.io/flexvolume", driverName, "mounts", v.spec.Name())
}

// mountsAt returns the mounts stacked on path itself.
func mountsAt(t *testing.T, path string) []mount.MountInfo {
	t.Helper()
	var at []mount.MountInfo
	for _, m := range mountsBelow(t, path) {
		if m.MountPoint == path {
			at = append(at, m)
		}
	}
	return at
}

// checkMounted fails unless exactly one mount of the right sort is at path.
func (v *vol) checkMounted(path string) {
	v.n.t.Helper()
	at := mountsAt(v.n.t, path)
	if len(at) != 1 {
		v.n.t.Fatalf("%d mounts at %s, want 1: %+v", len(at), path, at)
	}
	if want := v.kind.mounted; want != "" && at[0].FsType != want {
		v.n.t.Errorf("%s at %s, want %s", at[0].FsType, path, want)
	}
}

// checkNothingLeft fails if anything of the volume is left on the node.
func (v *vol) checkNothingLeft() {
	v.n.t.Helper()
	v.checkNotMounted()
	if v.n.csi != nil {
		v.n.checkBridge()
	}
}

// checkNotMounted fails if a mount is below the kubelet's directory or the
// image, if that is what the volume is, has a loop device.
func (v *vol) checkNotMounted() {
	v.n.t.Helper()
	if left := mountsBelow(v.n.t, v.n.root); len(left) > 0 {
		v.n.t.Errorf("still mounted: %+v", left)
	}
	image := v.pv.Spec.FlexVolume.Options["image"]
	if v.n.csi != nil {
		image = v.n.disks()
	}
	if image == "" {
		return
	}
	// An autoclear loop device goes when its last user has gone, shortly after.
	eventually(v.n.t, image+" has no loop device any more", func() bool {
		return len(loopsBelow(v.n.t, image)) == 0
	})
}

func (n *node) writeFile(path, text string) {
	n.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		n.t.Errorf("a pod cannot write: %v", err)
	}
}

func (n *node) checkFile(path, want string) {
	n.t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		n.t.Errorf("a pod reads %q, %v; want %q", got, err, want)
	}
}
