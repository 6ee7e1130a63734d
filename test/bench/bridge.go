package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/csiclient"
	"github.com/flex2csi/flex2csi/internal/driverconfig"
	"github.com/flex2csi/flex2csi/test/daemon"
)

// bridgeWorld is a node with flex2csi, one CSI driver, and a FlexVolume driver
// that calls the one for the other. Its files are in memory: what a disk takes
// to sync is counted, not measured.
type bridgeWorld struct {
	dir    string
	driver program           // flexdriver
	csi    *csiclient.Client // the CSI driver, called directly
	bridge *daemon.Daemon
	daemon *daemon.Process
	stops  []func()
}

// worldOptions say what a bridgeWorld is made of.
type worldOptions struct {
	driverArgs []string // flags of csidriver
	config     []string // lines for the driver in the BridgeConfiguration
	prepare    func(stateDir string) error
}

const (
	bridgedFlexDriver = "example.com/bridged"
	bridgedCSIDriver  = "bench.csi.example.com"
)

// newBridgeWorld starts the processes. The programs are built once.
func (b *bench) newBridgeWorld(name string, o worldOptions) (w *bridgeWorld, err error) {
	w = &bridgeWorld{dir: filepath.Join(b.node.dir, name)}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if err := mountMemory(w.dir); err != nil {
		return w, err
	}
	w.stops = append(w.stops, func() { _ = unix.Unmount(w.dir, unix.MNT_DETACH) })
	plugin := filepath.Join(w.dir, "plugins/example.com~bridged")
	for _, d := range []string{plugin, w.path("driver"), w.path("kubelet/plugins/kubernetes.io/csi"), w.path("kubelet/pods")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return w, err
		}
	}
	w.driver = program{path: filepath.Join(plugin, "bridged"), env: b.node.empty.env, want: `"Success"`}
	if err := install(b.node.stripped, w.driver.path); err != nil {
		return w, err
	}
	if err := w.configure(plugin, o); err != nil {
		return w, err
	}
	csiSocket := w.path("driver/csi.sock")
	args := append([]string{"--dir", w.path("driver"), "--name", bridgedCSIDriver, "--node-id", "node-1"}, o.driverArgs...)
	if _, err := w.launch(b.ctx, csiSocket, b.node.csidriver, args...); err != nil {
		return w, err
	}
	w.csi = &csiclient.Client{Name: bridgedCSIDriver, Node: csiclient.Fixed(csiSocket)}
	w.stops = append(w.stops, func() { _ = w.csi.Close() })
	// On a disk the page cache has the file in pieces as it was written, and maps whole
	// ones: what is resident would depend on how the linker wrote, by 20 MiB.
	flex2csi := w.path("flex2csi")
	if err := install(b.node.flex2csi, flex2csi); err != nil {
		return w, err
	}
	w.daemon, err = w.launch(b.ctx, w.bridge.Socket(), flex2csi, w.bridge.Args("--grace", "24h")...)
	return w, err
}

func (w *bridgeWorld) path(name string) string { return filepath.Join(w.dir, name) }

// configure writes both configurations.
func (w *bridgeWorld) configure(plugin string, o worldOptions) error {
	if o.prepare != nil {
		if err := o.prepare(w.path("state")); err != nil {
			return err
		}
	}
	w.bridge = &daemon.Daemon{Dir: w.dir, KubeletDir: w.path("kubelet"), NodeName: "node-1", Drivers: []daemon.Driver{
		{FlexDriver: bridgedFlexDriver, CSIDriver: bridgedCSIDriver, Endpoint: w.path("driver/csi.sock"), More: o.config},
	}}
	if err := w.bridge.Configure(); err != nil {
		return err
	}
	c := driverconfig.Default(driverconfig.DriverName{Vendor: "example.com", Name: "bridged"}, driverconfig.BackendCSI)
	c.Socket, c.StateDir = w.bridge.Socket(), w.bridge.StateDir()
	content, err := c.Encode()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(plugin, driverconfig.FileName), content, driverconfig.FileMode)
}

// launch starts a process and waits for its socket.
func (w *bridgeWorld) launch(ctx context.Context, socket, path string, args ...string) (*daemon.Process, error) {
	p, err := daemon.Start(exec.CommandContext(ctx, path, args...), w.path(filepath.Base(path)+".log"), socket)
	if err == nil {
		w.stops = append(w.stops, func() { _ = p.End(unix.SIGTERM) })
	}
	return p, err
}

// close ends what was started, the last first.
func (w *bridgeWorld) close() {
	for _, stop := range slices.Backward(w.stops) {
		stop()
	}
}

// volume is a FlexVolume of the world, for a pod of its own.
func (w *bridgeWorld) volume(handle string) (volume, error) {
	v := volume{
		dir:     w.path("kubelet/pods/pod-" + handle + "/volumes/example.com~bridged/data"),
		options: fmt.Sprintf(`{"volumeHandle":%q,"kubernetes.io/fsType":"ext4","kubernetes.io/pod.uid":%q,"kubernetes.io/pvOrVolumeName":%q,"kubernetes.io/readwrite":"rw"}`, handle, "pod-"+handle, "pv-"+handle),
		driver:  w.driver,
	}
	return v, os.MkdirAll(filepath.Dir(v.dir), 0o750)
}

// resident is what the daemon has in memory, after it has had time to settle.
func (w *bridgeWorld) resident() (float64, error) {
	time.Sleep(2 * time.Second)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.daemon.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(text), " kB"), 64)
			return kib * 1024, err
		}
	}
	return 0, errors.New("the kernel tells no VmRSS")
}
