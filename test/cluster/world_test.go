package cluster

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/test/controlplane"
	"github.com/flex2csi/flex2csi/test/csidriver/calls"
	"github.com/flex2csi/flex2csi/test/csidriver/fault"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// patience bounds each wait.
const patience = time.Minute

// A world is a CSI driver and its nodes in a control plane.
type world struct {
	*controlplane.Plane
	t testing.TB
	// name is in the names of all that belongs to it.
	name string
	// dir is short: the path of a socket has at most 107 bytes.
	dir string
	// driver is the name of the CSI driver, flexDriver that of the FlexVolume
	// driver in front of it.
	driver, flexDriver string
	// controller is its controller service, and attacher in front of it.
	controller, attacher *controlplane.Part
	backend              *backend // nil: the CSI driver of the tests
	nodes                []*node
	// storage talks to the controller service.
	storage csi.ControllerClient
}

// options are what a world can be told.
type options struct {
	nodes int // 1 if zero
	// object is the spec of the CSIDriver object; nil: there is none.
	object *storagev1.CSIDriverSpec
	// count is how many volumes a node takes; zero: any number.
	count int32
	// maxVolumes is how many volumes the CSI driver attaches to a node; zero: any
	// number.
	maxVolumes int
	// noAttach makes a CSI driver that does not attach.
	noAttach bool
	// backend is another CSI driver than that of the tests.
	backend *backend
	// attacher are more flags of the external-attacher.
	attacher []string
	// disks makes disks with filesystems instead of directories.
	disks bool
	// config is added to the daemon's configuration of the driver, in lines.
	config []string
	// grace is the daemon's; zero: its own default.
	grace time.Duration
	// noDaemon starts no daemons.
	noDaemon bool
}

// newWorld starts the CSI driver, its attacher, and nodes.
func newWorld(t testing.TB, c *cluster, o options) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "cluster") //nolint:usetesting // t.TempDir has a long name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	testenv.LeakCheck(t, dir)
	name := strings.ToLower(filepath.Base(t.Name()))
	w := &world{
		Plane: c.With(t), t: t, name: name, dir: dir,
		driver: name + ".example.com", flexDriver: "example.com/" + name, backend: o.backend,
	}
	if o.backend != nil {
		w.driver = o.backend.driver
	}
	if o.object != nil {
		w.CSIDriver(w.driver, *o.object)
	}
	w.controller = w.csiDriver(o, "controller", "controller-node")
	w.Run(w.controller)
	w.wait("the CSI driver", func() bool { return exists(w.path("controller/ctl.sock")) })
	w.connect()
	if !o.noAttach {
		w.attacher = w.StartAttacher(w.path("controller/ctl.sock"), o.attacher...)
	}
	for range max(o.nodes, 1) {
		w.addNode(o)
	}
	return w
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// csiDriver describes a process of the CSI driver, with its files in a directory.
func (w *world) csiDriver(o options, dir, nodeID string) *controlplane.Part {
	w.t.Helper()
	if err := os.MkdirAll(w.path(dir), 0o700); err != nil {
		w.t.Fatal(err)
	}
	args := []string{"--faults", w.path(dir + "/faults.json"), "--call-log", w.path(dir + "/calls")}
	if w.backend != nil {
		return w.backend.part(w, dir, args)
	}
	args = append(args, "--dir", w.path("storage"), "--name", w.driver, "--node-id", nodeID,
		"--endpoint", w.path(dir+"/csi.sock"), "--controller-endpoint", w.path(dir+"/ctl.sock"))
	if !o.noAttach {
		args = append(args, "--attach", "--max-volumes", strconv.Itoa(o.maxVolumes))
	}
	if !o.disks {
		args = append(args, "--directories")
	}
	return w.Program("csidriver", args...)
}

// fail injects faults into the controller service; none: heals it.
func (w *world) fail(rules ...fault.Rule) {
	w.t.Helper()
	if err := fault.WriteFile(w.path("controller/faults.json"), rules...); err != nil {
		w.t.Fatal(err)
	}
}

// wantAttached checks how often a volume was attached, and detached again. The
// external-attacher repeats a ControllerPublishVolume when it does not see yet
// what it has written itself, which counts once.
func (w *world) wantAttached(handle string, times int) {
	w.t.Helper()
	list, err := calls.Read(w.path("controller/calls"))
	w.must(err)
	attached, detached, at := 0, 0, map[string]bool{}
	for _, c := range list {
		switch {
		case c.Volume != handle || c.Code != "OK":
		case c.Method == "ControllerPublishVolume" && !at[c.Node]:
			attached++
			at[c.Node] = true
		case c.Method == "ControllerUnpublishVolume" && at[c.Node]:
			detached++
			at[c.Node] = false
		}
	}
	if attached != times || detached != times {
		w.t.Errorf("%s was attached %d times and detached %d times, want %d and %d", handle, attached, detached, times, times)
	}
}

// calls are those of the controller service.
func (w *world) calls(method string) (of []calls.Call) {
	w.t.Helper()
	list, err := calls.Read(w.path("controller/calls"))
	w.must(err)
	for _, c := range list {
		if c.Method == method {
			of = append(of, c)
		}
	}
	return of
}

// wantBalance checks that all attached volumes were detached.
func (w *world) wantBalance() {
	w.t.Helper()
	list, err := calls.Read(w.path("controller/calls"))
	if err != nil {
		w.t.Fatal(err)
	}
	if left := calls.Leftovers(list); len(left) > 0 {
		w.t.Errorf("never undone: %q", left)
		for _, c := range list {
			if strings.HasPrefix(c.Method, "Controller") && slices.ContainsFunc(left, func(l string) bool { return strings.Contains(l, c.Volume+" ") }) {
				w.t.Logf("%s %s %s", c.Start.Format(time.StampMicro), c.Method, fmt.Sprint(c))
			}
		}
	}
}

// must fails the test.
func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// A volume is one of the CSI driver, and a PersistentVolume that says so.
type volume struct {
	name, handle string
	options      map[string]string
}

// newVolume makes one that no PersistentVolume has yet. Parameters are those of
// CreateVolume, and so the volume's context.
func (w *world) newVolume(name string, parameters map[string]string) *volume {
	w.t.Helper()
	name = w.name + "-" + name
	v := &volume{name: name, handle: "h-" + name, options: map[string]string{"volumeHandle": "h-" + name}}
	maps.Copy(v.options, parameters)
	w.createVolume(v.handle, parameters)
	return v
}

// volume makes a FlexVolume.
func (w *world) volume(name string, modes ...corev1.PersistentVolumeAccessMode) *volume {
	w.t.Helper()
	return w.volumeWith(name, nil, modes...)
}

// volumeWith makes one with a context.
func (w *world) volumeWith(name string, parameters map[string]string, modes ...corev1.PersistentVolumeAccessMode) *volume {
	w.t.Helper()
	v := w.newVolume(name, parameters)
	w.FlexVolume(v.name, w.flexDriver, "ext4", v.options, modes...)
	return v
}

// createVolume makes a volume of the CSI driver.
func (w *world) createVolume(handle string, parameters map[string]string) {
	w.t.Helper()
	_, err := w.storage.CreateVolume(w.t.Context(), &csi.CreateVolumeRequest{
		Name: handle, Parameters: parameters, CapacityRange: &csi.CapacityRange{RequiredBytes: 64 << 20},
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		}},
	})
	w.must(err)
}

// connect makes storage.
func (w *world) connect() {
	w.t.Helper()
	conn, err := grpc.NewClient("unix://"+w.path("controller/ctl.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	w.must(err)
	w.t.Cleanup(func() { conn.Close() })
	w.storage = csi.NewControllerClient(conn)
}

// wait waits for something.
func (w *world) wait(what string, done func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("timeout: %s", what)
		}
	}
}
