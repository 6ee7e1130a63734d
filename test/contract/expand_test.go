package contract

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/util/operationexecutor"
)

// capacity is the size of the file system at path.
func capacity(t *testing.T, path string) int64 {
	t.Helper()
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		t.Fatal(err)
	}
	return int64(stat.Blocks) * stat.Bsize
}

// grow does what kube-controller-manager does when a claim is enlarged: it
// raises the PV's capacity without a call.
func (v *vol) grow(size string) {
	v.n.t.Helper()
	v.pv.Spec.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse(size)}
	_, err := v.n.client.CoreV1().PersistentVolumes().Update(context.Background(), v.pv, metav1.UpdateOptions{})
	v.n.must(err)
}

// claimed is the size that the user is told.
func (v *vol) claimed() string {
	v.n.t.Helper()
	claim, err := v.n.client.CoreV1().PersistentVolumeClaims(namespaceA).Get(context.Background(), v.pv.Name, metav1.GetOptions{})
	v.n.must(err)
	return claim.Status.Capacity.Storage().String()
}

// checkCapacity fails unless the file system has the size, less what a file
// system needs for itself.
func (v *vol) checkCapacity(path, size string) {
	v.n.t.Helper()
	want := resource.MustParse(size)
	if got := capacity(v.n.t, path); got < want.Value()*3/4 || got > want.Value() {
		v.n.t.Errorf("the file system has %d bytes, want nearly %s", got, size)
	}
}

// expansions are the sorts of volume that can grow here, and what they grow to.
// ext4 grows under a mount only for a process with CAP_SYS_RESOURCE, which some
// containers lack; see TestExpansionOfExt4WithoutItsCapability.
func expansions(t *testing.T) map[string]string {
	t.Helper()
	sizes := map[string]string{"image-xfs": "512Mi", "csi-xfs": "512Mi"}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&header, &caps[0]); err != nil {
		t.Fatal(err)
	}
	if caps[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0 {
		sizes["image-ext4"], sizes["csi-ext4"] = "128Mi", "128Mi"
	}
	return sizes
}

func forExpansions(t *testing.T, f func(t *testing.T, n *node, v *vol, size string)) {
	sizes := expansions(t)
	grow := slices.DeleteFunc(append(kinds(), csiExt4(), csiXFS()), func(k kind) bool { return sizes[k.name] == "" })
	forKinds(t, grow, bothModes(), func(t *testing.T, n *node, v *vol) { f(t, n, v, sizes[v.kind.name]) })
}

// TestVolumeGrowsUnderARunningPod: expandfs is the only call there is, and has
// the pod's directory, and device "" with attach:false.
func TestVolumeGrowsUnderARunningPod(t *testing.T) {
	forExpansions(t, func(t *testing.T, n *node, v *vol, size string) {
		pod := newPod("a")
		k := n.startKubelet(podVolume{pod, v})
		eventually(t, "mounted", func() bool { return k.ready(pod, v) })
		n.writeFile(filepath.Join(v.dir(pod), "file"), "x")
		v.grow(size)
		desireSize(k.dsw, v.uniqueName(pod), resource.MustParse(size))
		eventually(t, "the claim has grown", func() bool { return v.claimed() == size })
		v.checkCapacity(v.dir(pod), size)
		n.checkFile(filepath.Join(v.dir(pod), "file"), "x")
		call := n.runner.last(t, "expandfs")
		if call.args[3] != v.dir(pod) {
			t.Errorf("expandfs got the directory %s, so this contract has changed", call.args[3])
		}
		k.end()
		n.takeDown(v, pod)
	})
}

// TestVolumeGrowsAtTheNextMount: it was enlarged while no pod had it.
func TestVolumeGrowsAtTheNextMount(t *testing.T) {
	forExpansions(t, func(t *testing.T, n *node, v *vol, size string) {
		a, b := newPod("a"), newPod("b")
		n.must(n.mount(v, a))
		n.takeDown(v, a)
		v.grow(size)
		n.attach(v)
		n.must(n.mount(v, b))
		v.checkCapacity(v.dir(b), size)
		if got := v.claimed(); got != size {
			t.Errorf("the user is told %s, want %s", got, size)
		}
		n.takeDown(v, b)
	})
}

// TestExpansionTwiceAndSmaller: with attach:false it comes once per pod. What
// is big enough is left alone, and nothing ever shrinks.
func TestExpansionTwiceAndSmaller(t *testing.T) {
	forExpansions(t, func(t *testing.T, n *node, v *vol, size string) {
		a, b := newPod("a"), newPod("b")
		n.must(n.mount(v, a))
		n.must(n.mount(v, b))
		expand := func(pod *v1.Pod, to string) error {
			plugin := n.plugin().(volume.NodeExpandableVolumePlugin)
			_, err := plugin.NodeExpand(volume.NodeResizeOptions{
				VolumeSpec: v.spec, DeviceMountPath: v.dir(pod), DeviceStagePath: v.deviceDir(),
				NewSize: resource.MustParse(to), OldSize: resource.MustParse(v.kind.size),
			})
			return err
		}
		for _, pod := range []*v1.Pod{a, b, a} {
			n.must(expand(pod, size))
			v.checkCapacity(v.dir(pod), size)
		}
		before := capacity(t, v.dir(a))
		_ = expand(a, "1Mi") // Success, it is big enough, or Failure
		if after := capacity(t, v.dir(a)); after != before {
			t.Errorf("%d bytes before an expansion to less, %d after", before, after)
		}
		n.takeDown(v, a, b)
	})
}

// TestExpansionThatFailsKeepsThePodFromStarting: the volume is uncertain, so
// that unmount is called when the pod goes.
func TestExpansionThatFailsKeepsThePodFromStarting(t *testing.T) {
	forDisks(t, onlyDetached(), func(t *testing.T, n *node, v *vol) {
		pod := newPod("a")
		v.grow("8Ei")
		if err := n.mount(v, pod); err == nil {
			t.Error("grown to 8 EiB")
		}
		n.checkVolumeState(v, pod, operationexecutor.VolumeMountUncertain)
		if got := v.claimed(); got != "64Mi" {
			t.Errorf("the user is told %s", got)
		}
		n.takeDown(v, pod)
	})
}

// TestExpansionOfExt4WithoutItsCapability says what is missing, and the pod
// keeps its volume.
func TestExpansionOfExt4WithoutItsCapability(t *testing.T) {
	n := newNode(t, false)
	v, pod := n.newVolume(imageExt4(), "pv-1"), newPod("a")
	n.must(n.mount(v, pod))
	n.writeFile(filepath.Join(v.dir(pod), "file"), "x")
	n.runner.wrapped("expandfs", inRole("no-sys-resource"), func() {
		plugin := n.plugin().(volume.NodeExpandableVolumePlugin)
		_, err := plugin.NodeExpand(volume.NodeResizeOptions{
			VolumeSpec: v.spec, DeviceMountPath: v.dir(pod),
			NewSize: resource.MustParse("128Mi"), OldSize: resource.MustParse("64Mi"),
		})
		if err == nil || !strings.Contains(err.Error(), "CAP_SYS_RESOURCE") {
			t.Errorf("expandfs without the capability: %v, want a message about it", err)
		}
	})
	n.checkFile(filepath.Join(v.dir(pod), "file"), "x")
	n.writeFile(filepath.Join(v.dir(pod), "other"), "y")
	n.takeDown(v, pod)
}

// TestExpansionSuccessIsNeverALie: where the driver cannot make a volume
// bigger, Success would write a size that does not exist into the claim.
func TestExpansionSuccessIsNeverALie(t *testing.T) {
	for _, k := range kinds() {
		if k.grows {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			n := newNode(t, false)
			v, pod := n.newVolume(k, "pv-1"), newPod("a")
			n.must(n.mount(v, pod))
			want := resource.MustParse("4Ei")
			plugin := n.plugin().(volume.NodeExpandableVolumePlugin)
			done, err := plugin.NodeExpand(volume.NodeResizeOptions{
				VolumeSpec: v.spec, DeviceMountPath: v.dir(pod), NewSize: want, OldSize: resource.MustParse(k.size),
			})
			if got := capacity(t, v.dir(pod)); (done || err == nil) && got < want.Value()*3/4 {
				t.Errorf("expandfs to %v answered Success, the file system has %d bytes", want, got)
			}
			n.takeDown(v, pod)
		})
	}
}

// TestExpandVolumeDoesTheWorkOrFails: no kubelet calls it. Should one do so,
// "Not supported" would mean that the volume has its new size.
func TestExpandVolumeDoesTheWorkOrFails(t *testing.T) {
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			n := newNode(t, false)
			v, pod := n.newVolume(k, "pv-1"), newPod("a")
			n.must(n.mount(v, pod))
			want := resource.MustParse("1Gi")
			plugin := n.plugin().(volume.ExpandableVolumePlugin)
			_, err := plugin.ExpandVolumeDevice(v.spec, want, resource.MustParse(k.size))
			if n.runner.last(t, "expandvolume").answer(t).Status == "Not supported" {
				t.Error("Not supported")
			}
			if err == nil && v.realSize(v.dir(pod)) < want.Value() {
				t.Errorf("expandvolume to 1Gi answered Success, the volume has %d bytes", v.realSize(v.dir(pod)))
			}
			n.takeDown(v, pod)
		})
	}
}

// realSize is what a volume offers: the image, or the file system at path.
func (v *vol) realSize(path string) int64 {
	v.n.t.Helper()
	image := v.pv.Spec.FlexVolume.Options["image"]
	if image == "" {
		return capacity(v.n.t, path)
	}
	info, err := os.Stat(image)
	v.n.must(err)
	return info.Size()
}
