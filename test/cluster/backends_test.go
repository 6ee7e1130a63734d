package cluster

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/controlplane"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// A backend is a CSI driver that we did not write. It knows one node.
type backend struct {
	program, driver, nodeID string
	// handle is that of a volume that it has from the start.
	handle string
	// context is the publish context that its controller service gives.
	context map[string]string
	args    func(*world) []string
}

// part describes a process of the driver. Node and controller service are two,
// as in clusters: what one knows the other one has to be told.
func (b *backend) part(w *world, dir string, args []string) *controlplane.Part {
	w.t.Helper()
	socket := "csi.sock"
	if dir == "controller" {
		socket = "ctl.sock"
	}
	return w.Program(b.program, slices.Concat(b.args(w), args, []string{"--endpoint", w.path(filepath.Join(dir, socket))})...)
}

// testGCEPD: the GCE PD CSI driver. Its disks are loop devices that the node
// gets when the cloud attaches them (test/gcepd), so that nothing can be staged
// without the attacher.
func testGCEPD(t *testing.T, c *cluster) {
	testenv.Need(t, "ext4")
	const zone = "projects/test-project/zones/country-region-zone/"
	w := newBackend(t, c, &backend{
		program: "gcepd", driver: "pd.csi.storage.gke.io", nodeID: zone + "instances/test-name", handle: zone + "disks/disk-1",
		args: func(w *world) []string { return []string{"--dir", w.path("storage"), "--disk", "disk-1"} },
	})
	v := w.backendVolume()
	w.nodes[0].life(v, true)
	w.nodes[0].life(v, true) // what the first one has written is there
	w.wantAttached(v.handle, 2)
	if left, err := filepath.Glob(w.path("storage/by-id/*")); err != nil || len(left) > 0 {
		t.Errorf("the node still has the disks %q, %v", left, err)
	}
}

// testMock: Kubernetes' mock driver. Its node service stages nothing without the
// device that its controller service has named in the publish context.
func testMock(t *testing.T, c *cluster) {
	const name = "mock.csi.example.com"
	w := newBackend(t, c, &backend{
		program: "mock", driver: name, nodeID: name, handle: "1",
		context: map[string]string{"device": "/dev/mock", "readonly": "false"},
		args:    func(*world) []string { return nil },
	})
	v := w.backendVolume()
	w.nodes[0].life(v, false)
	w.wantAttached(v.handle, 1)
}

func newBackend(t *testing.T, c *cluster, b *backend) *world {
	t.Helper()
	return newWorld(t, c, options{object: &storagev1.CSIDriverSpec{}, backend: b, attacher: []string{"--reconcile-sync=500ms"}})
}

// backendVolume makes a PersistentVolume of what the backend has.
func (w *world) backendVolume() *volume {
	w.t.Helper()
	v := &volume{name: w.name + "-disk", handle: w.backend.handle, options: map[string]string{"volumeHandle": w.backend.handle}}
	w.FlexVolume(v.name, w.flexDriver, "ext4", v.options)
	return v
}

// life is the life of a volume with pods that share its files, or have their own.
// flexdriver makes all callouts, as the kubelet executes it.
func (n *node) life(v *volume, shared bool) {
	t, w := n.w.t, n.w
	t.Helper()
	driver := w.install(n.PluginDir, "--socket", n.bridge.Socket(), "--state-dir", n.bridge.StateDir())
	call := func(args ...string) {
		t.Helper()
		if status := w.execute(driver, args...); status.Status != flex.StatusSuccess {
			t.Fatalf("%s answered %s: %s", args[0], status.Status, status.Message)
		}
	}
	call("mount", n.podDir(v, "pod-a"), n.argument(v, "pod-a"))
	if o := n.attachment(v); o == nil || !o.Status.Attached || !maps.Equal(o.Status.AttachmentMetadata, w.backend.context) {
		t.Errorf("the attachment of a mounted volume is %+v", o)
	}
	call("mount", n.podDir(v, "pod-b"), n.argument(v, "pod-b"))
	w.must(os.WriteFile(filepath.Join(n.podDir(v, "pod-a"), "file"), []byte(v.handle), 0o600))
	if got, err := os.ReadFile(filepath.Join(n.podDir(v, "pod-b"), "file")); shared && (err != nil || string(got) != v.handle) {
		t.Errorf("a second pod reads %q, %v", got, err)
	}
	call("unmount", n.podDir(v, "pod-a"))
	w.untilCompared()
	if o := n.attachment(v); o == nil || !o.Status.Attached || o.DeletionTimestamp != nil {
		t.Errorf("with a pod left: %+v", o)
	}
	call("unmount", n.podDir(v, "pod-b"))
	n.wantNothing()
}

// untilCompared waits until the external-attacher has compared what it knows
// with what the driver's LIST_VOLUMES_PUBLISHED_NODES says, which both have, and
// has had time to do something about it.
func (w *world) untilCompared() {
	w.t.Helper()
	listed := func() (times int) {
		for _, c := range w.calls("ListVolumes") {
			if c.Code == "OK" {
				times++
			}
		}
		return times
	}
	before := listed()
	w.wait("ListVolumes", func() bool { return listed() >= before+3 })
}
