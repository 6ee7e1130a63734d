package csidriver_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/flex2csi/flex2csi/test/csidriver"
	"github.com/flex2csi/flex2csi/test/csidriver/cli"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// envMain makes the test binary the driver.
const envMain = "CSIDRIVER_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(envMain) != "" {
		os.Exit(cli.Main(os.Args[1:], os.Stderr))
	}
	testenv.Main(m)
}

// world is a driver in a process of its own, and places to mount.
type world struct {
	t   *testing.T
	dir string
	cmd *exec.Cmd
	log *os.File // what the driver says

	csi.IdentityClient
	csi.ControllerClient
	csi.NodeClient
}

// newWorld starts a driver.
func newWorld(t *testing.T, args ...string) *world {
	t.Helper()
	dir := shortDir(t)
	w := &world{t: t, dir: dir}
	var err error
	if w.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if b, err := os.ReadFile(w.log.Name()); t.Failed() && err == nil {
			t.Logf("the driver said:\n%s", b)
		}
		w.log.Close()
	})
	for _, sub := range []string{"staging", "pods"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	w.start(args...)
	// Without MinConnectTimeout a connection is given no longer than the delay: gRPC closes
	// it then, and one that was made at that moment ends under its first call.
	quick := grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: 10 * time.Millisecond},
		MinConnectTimeout: 20 * time.Second,
	}
	conn, err := grpc.NewClient("unix://"+w.socket(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)), grpc.WithConnectParams(quick))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	w.IdentityClient, w.ControllerClient, w.NodeClient = csi.NewIdentityClient(conn), csi.NewControllerClient(conn), csi.NewNodeClient(conn)
	return w
}

// shortDir is for sockets: their path has at most 107 bytes.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "csi") //nolint:usetesting // t.TempDir has a long name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	testenv.LeakCheck(t, dir)
	return dir
}

func (w *world) socket() string  { return filepath.Join(w.dir, "csi.sock") }
func (w *world) disks() string   { return filepath.Join(w.dir, "disks") }
func (w *world) callLog() string { return filepath.Join(w.dir, "calls") }
func (w *world) faults() string  { return filepath.Join(w.dir, "faults") }

func (w *world) start(args ...string) {
	w.t.Helper()
	w.cmd = exec.Command(os.Args[0], append([]string{
		"--dir", w.disks(), "--endpoint", "unix://" + w.socket(), "--node-id", "node-1", "--call-log", w.callLog(), "--faults", w.faults(),
	}, args...)...)
	w.cmd.Env = append(os.Environ(), envMain+"=1")
	w.cmd.Stderr = w.log
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := w.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	cmd := w.cmd
	w.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may be gone
		_ = cmd.Wait()
	})
}

// kill ends the driver as the kernel does when memory runs out.
func (w *world) kill() {
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait()
}

// restart kills the driver and starts another.
func (w *world) restart(args ...string) {
	w.t.Helper()
	w.kill()
	w.start(args...)
	// The connection may not have noticed yet.
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		_, err := w.GetPluginInfo(ctx(w.t), &csi.GetPluginInfoRequest{})
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatal(err)
		}
	}
}

func (w *world) staging(id string) string {
	dir := filepath.Join(w.dir, "staging", id)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		w.t.Fatal(err)
	}
	return dir
}

func (w *world) target(pod string) string { return filepath.Join(w.dir, "pods", pod) }

func mode(m csi.VolumeCapability_AccessMode_Mode, fsType string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: m},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType}},
	}
}

// multi is what the kubelet makes of ReadWriteOnce.
func multi(fsType string) *csi.VolumeCapability {
	return mode(csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER, fsType)
}

func ctx(t *testing.T) context.Context {
	c, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return c
}

func (w *world) create(name string, size int64, parameters map[string]string) {
	w.t.Helper()
	_, err := w.CreateVolume(ctx(w.t), &csi.CreateVolumeRequest{Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: size}, VolumeCapabilities: []*csi.VolumeCapability{multi("")}, Parameters: parameters})
	w.want(err, codes.OK)
}

func (w *world) attach(id, node string) (map[string]string, error) {
	answer, err := w.ControllerPublishVolume(ctx(w.t), &csi.ControllerPublishVolumeRequest{VolumeId: id, NodeId: node, VolumeCapability: multi("")})
	return answer.GetPublishContext(), err
}

func (w *world) detach(id, node string) error {
	_, err := w.ControllerUnpublishVolume(ctx(w.t), &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: node})
	return err
}

func (w *world) stage(id string, c *csi.VolumeCapability) error {
	_, err := w.NodeStageVolume(ctx(w.t), &csi.NodeStageVolumeRequest{VolumeId: id, StagingTargetPath: w.staging(id), VolumeCapability: c})
	return err
}

func (w *world) unstage(id string) error {
	_, err := w.NodeUnstageVolume(ctx(w.t), &csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: w.staging(id)})
	return err
}

func (w *world) publish(pod string, c *csi.VolumeCapability, readOnly bool) error {
	_, err := w.NodePublishVolume(ctx(w.t), &csi.NodePublishVolumeRequest{VolumeId: "disk-1", StagingTargetPath: w.staging("disk-1"), TargetPath: w.target(pod), VolumeCapability: c, Readonly: readOnly})
	return err
}

func (w *world) unpublish(id, pod string) error {
	_, err := w.NodeUnpublishVolume(ctx(w.t), &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: w.target(pod)})
	return err
}

func (w *world) delete(id string) error {
	_, err := w.DeleteVolume(ctx(w.t), &csi.DeleteVolumeRequest{VolumeId: id})
	return err
}

func (w *world) want(err error, code codes.Code) {
	w.t.Helper()
	if status.Code(err) != code {
		w.t.Fatalf("got %v, want %s", err, code)
	}
}

func (w *world) write(pod, text string) error {
	return os.WriteFile(filepath.Join(w.target(pod), "data"), []byte(text), 0o600)
}

func (w *world) wantData(pod, text string) {
	w.t.Helper()
	b, err := os.ReadFile(filepath.Join(w.target(pod), "data"))
	if err != nil || string(b) != text {
		w.t.Fatalf("data of %s: %q, %v; want %q", pod, b, err, text)
	}
}

// wantIdle checks that the driver and the mount table have no volume in use.
func (w *world) wantIdle() {
	w.t.Helper()
	volumes, err := csidriver.Inspect(w.disks())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, v := range volumes {
		if !v.Idle() {
			w.t.Errorf("still in use: %+v", v)
		}
	}
	entries, err := os.ReadDir(filepath.Join(w.dir, "pods"))
	if err != nil || len(entries) > 0 {
		w.t.Errorf("targets left: %v, %v", entries, err)
	}
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		t.Fatal(err)
	}
	return int64(fs.Blocks) * fs.Bsize
}

func mib(n int64) int64 { return n << 20 }

func pod(n int) string { return fmt.Sprintf("pod-%d", n) }
