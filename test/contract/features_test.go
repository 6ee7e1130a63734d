package contract

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/volume"
)

// isReadOnly reports whether the mount at path is read-only.
func isReadOnly(t *testing.T, path string) bool {
	t.Helper()
	at := mountsAt(t, path)
	if len(at) != 1 {
		t.Fatalf("%d mounts at %s, want 1", len(at), path)
	}
	return slices.Contains(at[0].MountOptions, "ro")
}

// TestReadOnlyComesFromTheClaimReference: the field in the PV is ignored. The
// container gets a read-only bind from the kubelet; the host's mount is ours.
func TestReadOnlyComesFromTheClaimReference(t *testing.T) {
	for _, attach := range []bool{false, true} {
		for _, k := range append(kinds(), csiExt4()) {
			t.Run(fmt.Sprintf("%s/attach=%t", k.name, attach), func(t *testing.T) {
				n := k.newNode(t, attach)
				v := n.newVolume(k, "pv-1", func(pv *v1.PersistentVolume) { pv.Spec.FlexVolume.ReadOnly = true })
				testReadOnly(t, n, v)
			})
		}
	}
}

func testReadOnly(t *testing.T, n *node, v *vol) {
	writer, reader, ro := newPod("writer"), newPod("reader"), v.readOnly()
	n.attach(v)
	n.must(n.mount(v, writer))
	if isReadOnly(t, v.dir(writer)) || n.mounter(v, writer).GetAttributes().ReadOnly {
		t.Error("read-only because of the PV, so this contract has changed")
	}
	n.writeFile(filepath.Join(v.dir(writer), "file"), "x")
	// Side by side on one node, and then alone.
	n.must(n.mount(ro, reader))
	checkReadOnly(t, n, ro, reader)
	n.writeFile(filepath.Join(v.dir(writer), "file"), "y")
	n.takeDown(v, writer, reader)
	n.attach(ro)
	n.must(n.mount(ro, reader))
	checkReadOnly(t, n, ro, reader)
	if v.kind.shared {
		n.checkFile(filepath.Join(ro.dir(reader), "file"), "y")
	}
	n.takeDown(ro, reader)
}

func checkReadOnly(t *testing.T, n *node, ro *vol, pod *v1.Pod) {
	t.Helper()
	if !isReadOnly(t, ro.dir(pod)) || !n.mounter(ro, pod).GetAttributes().ReadOnly {
		t.Error("want both the mount and the container read-only")
	}
	// Also where the CSI driver has published it, in its guard.
	guard := filepath.Join(n.podsDir(), string(pod.UID), "flex2csi/volumes/kubernetes.io~csi", ro.pv.Name)
	for _, m := range mountsBelow(t, filepath.Join(n.podsDir(), string(pod.UID))) {
		if m.MountPoint != guard && !slices.Contains(m.MountOptions, "ro") {
			t.Errorf("%s is mounted for writing", m.MountPoint)
		}
	}
	err := os.WriteFile(filepath.Join(ro.dir(pod), "other"), nil, 0o644)
	if !errors.Is(err, unix.EROFS) {
		t.Errorf("write to a read-only volume: %v", err)
	}
}

// TestReadOnlyVolumeIsNeverFormatted: a blank disk is an error, and stays blank.
func TestReadOnlyVolumeIsNeverFormatted(t *testing.T) {
	for _, attach := range []bool{false, true} {
		n := newNode(t, attach)
		v, pod := n.newVolume(imageExt4(), "pv-1").readOnly(), newPod("a")
		image := v.pv.Spec.FlexVolume.Options["image"]
		n.must(os.WriteFile(image, nil, 0o600))
		n.must(os.Truncate(image, 64<<20))
		n.attach(v)
		if err := n.mount(v, pod); err == nil {
			t.Errorf("attach=%t: mounted a blank disk read-only", attach)
		}
		var stat unix.Stat_t
		n.must(unix.Stat(image, &stat))
		if stat.Blocks != 0 {
			t.Errorf("attach=%t: %d blocks of the blank disk were written", attach, stat.Blocks)
		}
		v.checkNothingLeft()
	}
}

func gid(t *testing.T, path string) int64 {
	t.Helper()
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		t.Fatal(err)
	}
	return int64(stat.Gid)
}

// TestFSGroupIsApplied by us, where the capability is false, or by the kubelet,
// where it is true; under both keys; never to a read-only volume.
func TestFSGroupIsApplied(t *testing.T) {
	forKinds(t, []kind{csiExt4()}, bothModes(), testFSGroup)
	for _, attach := range []bool{false, true} {
		for _, byKubelet := range []bool{false, true} {
			t.Run(fmt.Sprintf("attach=%t/byKubelet=%t", attach, byKubelet), func(t *testing.T) {
				n := newNode(t, attach, func(c *driverConfig) {
					c.Capabilities["fsGroup"] = byKubelet
					c.FSGroupPolicy = map[bool]string{false: "driver", true: "kubelet"}[byKubelet]
				})
				testFSGroup(t, n, n.newVolume(imageExt4(), "pv-1"))
			})
		}
	}
}

func testFSGroup(t *testing.T, n *node, v *vol) {
	n.attach(v)
	file := func(pod *v1.Pod) string { return filepath.Join(v.dir(pod), "file") }
	none, first, second, reader := newPod("none"), newPod("first"), newPod("second"), newPod("reader")
	withGroup := func(pod *v1.Pod, group int64) *v1.Pod {
		pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
		return pod
	}
	n.must(n.mount(v, none))
	if got := gid(t, v.dir(none)); got != 0 {
		t.Errorf("without fsGroup the group is %d", got)
	}
	n.writeFile(file(none), "x")
	n.takeDown(v, none)
	for _, step := range []struct {
		pod  *v1.Pod
		vol  *vol
		want int64
	}{
		{withGroup(first, 1234), v, 1234},
		{withGroup(second, 2345), v, 2345},
		{withGroup(reader, 3456), v.readOnly(), 2345},
	} {
		n.attach(v)
		n.must(n.mount(step.vol, step.pod))
		for _, path := range []string{v.dir(step.pod), file(step.pod)} {
			if got := gid(t, path); got != step.want {
				t.Errorf("pod %s: group %d of %s, want %d", step.pod.Name, got, path, step.want)
			}
		}
		n.takeDown(step.vol, step.pod)
	}
}

// TestOldFSGroupKeyIsRead: kubelets before 1.15 say kubernetes.io/fsGroup.
func TestOldFSGroupKeyIsRead(t *testing.T) {
	n := newNode(t, false)
	v, pod := n.newVolume(imageExt4(), "pv-1"), newPod("a")
	v.pv.Spec.FlexVolume.Options["kubernetes.io/fsGroup"] = "1234"
	n.must(n.mount(v, pod))
	if got := gid(t, v.dir(pod)); got != 1234 {
		t.Errorf("group %d, want 1234", got)
	}
	n.takeDown(v, pod)
}

// TestIsAttachedIsExplicitInBothArgumentOrders: old kubelets give the node
// first, and an answer without "attached":true means detached.
func TestIsAttachedIsExplicitInBothArgumentOrders(t *testing.T) {
	forDisks(t, onlyAttached(), testIsAttached)
}

func testIsAttached(t *testing.T, n *node, v *vol) {
	n.checkAttached(v)
	argument := n.runner.last(t, "isattached").args[1]
	for _, args := range [][]string{{argument, "node-1"}, {"node-1", argument}} {
		a := n.executeOne(append([]string{"isattached"}, args...)...)
		if a.Status != "Success" || a.Attached == nil || !*a.Attached {
			t.Errorf("isattached %q: %+v", args, a)
		}
	}
	// Not knowing is never "no": that would detach the volume of a running pod.
	bare, err := reconstruct(n.plugin(), "pv-1", "/unused")
	n.must(err)
	attached, err := n.attacher().VolumesAreAttached([]*volume.Spec{bare}, nodeName)
	if err == nil && !attached[bare] {
		t.Errorf("isattached without options says no: %s", n.runner.last(t, "isattached").output)
	}
	n.detach(v)
}

// TestDiskIsNotAttachedToASecondNode: the controller checks that for one PV, by
// access modes. We check it for one disk, which two PVs can name, where its
// name is the same on all nodes; a path is each node's own.
func TestDiskIsNotAttachedToASecondNode(t *testing.T) {
	tests := map[string]struct {
		option, value string
		onlyOne       bool // of two PVs with this value
	}{
		"image":       {"image", "/srv/default/disk.img", false},
		"device path": {"device", "/dev/sdb", false},
		"UUID":        {"device", "UUID=0a1b2c3d-0000-4000-8000-000000000001", true},
		"device link": {"device", "/dev/disk/by-id/scsi-1", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, true, func(c *driverConfig) { c.ImageRoots = []string{"/srv"} })
			v, w := n.newVolume(imageExt4(), "pv-1"), n.newVolume(imageExt4(), "pv-2")
			for _, pv := range []*vol{v, w} {
				pv.pv.Spec.FlexVolume.Options = map[string]string{test.option: test.value}
			}
			attach := func(v *vol, node types.NodeName) error {
				_, err := n.attacher().Attach(v.spec, node)
				return err
			}
			n.must(attach(v, "node-1"))
			n.must(attach(v, "node-1")) // again, as after a restart of the controller
			if err := attach(v, "node-2"); err == nil || !strings.Contains(err.Error(), "node-1") {
				t.Errorf("attach to a second node: %v, want a message about node-1", err)
			}
			if err := attach(w, "node-2"); (err != nil) != test.onlyOne {
				t.Errorf("attach of a second PV to a second node: %v", err)
			}
			for range 2 {
				n.must(n.detacher().Detach("pv-1", "node-1"))
			}
			n.must(attach(w, "node-2"))
			n.must(n.detacher().Detach("pv-2", "node-2"))
		})
	}
}

// TestMetricsAreThoseOfTheVolume: the capability makes the kubelet ask.
func TestMetricsAreThoseOfTheVolume(t *testing.T) {
	forDisks(t, onlyDetached(), func(t *testing.T, n *node, v *vol) {
		pod := newPod("a")
		n.must(n.mount(v, pod))
		m, err := n.mounter(v, pod).GetMetrics()
		n.must(err)
		if got := m.Capacity.Value(); got < 40<<20 || got > 64<<20 {
			t.Errorf("capacity %d, want a little less than 64 MiB", got)
		}
		n.takeDown(v, pod)
	})
}
