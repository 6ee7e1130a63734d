package handoff_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/daemon"
	"github.com/flex2csi/flex2csi/internal/handoff"
	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// A node is where a driver calls: a kubelet's directory, a socket and the
// daemon's state directory, and a daemon if there is one.
type node struct {
	*testing.T
	kubelet          *testenv.KubeletDir
	socket, stateDir string
	controllerSocket string

	mu       sync.Mutex
	requests []*wire.Request
}

func newNode(t *testing.T) *node {
	t.Helper()
	dir := t.TempDir()
	return &node{T: t, kubelet: testenv.Kubelet(t), socket: filepath.Join(dir, "s"), stateDir: filepath.Join(dir, "state")}
}

// daemon listens until the test ends, and answers each request with status.
func (n *node) daemon(status flex.DriverStatus) {
	n.Helper()
	n.listen(n.socket, status)
}

// listen is daemon for any socket.
func (n *node) listen(socket string, status flex.DriverStatus) {
	n.Helper()
	l, err := daemon.Listen(socket)
	if err != nil {
		n.Fatal(err)
	}
	s := &daemon.Server{AllowUID: os.Getuid(), Handler: func(_ context.Context, r *wire.Request) flex.DriverStatus {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.requests = append(n.requests, r)
		return status
	}}
	done := make(chan error, 1)
	go func() { done <- s.Serve(context.Background(), l) }()
	n.Cleanup(func() {
		l.Close()
		if err := <-done; err != nil {
			n.Error(err)
		}
	})
}

func (n *node) seen() []*wire.Request {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.requests
}

// call makes a callout as flexdriver does.
func (n *node) call(argv ...string) flex.DriverStatus {
	n.Helper()
	b := &handoff.Backend{Name: "example.com/disk", Argv: argv, Socket: n.socket, StateDir: n.stateDir, ControllerSocket: n.controllerSocket}
	return flex.Run(n.Context(), b.Driver(), argv)
}

// wantFailure wants a Failure of a class.
func (n *node) wantFailure(code flex.Code, argv ...string) flex.DriverStatus {
	n.Helper()
	status := n.call(argv...)
	if status.Status != flex.StatusFailure || status.Code != code {
		n.Errorf("%v: %+v, want a Failure that is %s", argv, status, code)
	}
	return status
}

func (n *node) wantSuccess(argv ...string) flex.DriverStatus {
	n.Helper()
	status := n.call(argv...)
	if status.Status != flex.StatusSuccess {
		n.Errorf("%v: %+v, want Success", argv, status)
	}
	return status
}

// published is what the daemon leaves of a volume: what the CSI driver has
// published at the target path, bound at the pod's directory.
func (n *node) published(pod string) (dir, private string) {
	n.Helper()
	testenv.Need(n, "mount")
	dir = n.kubelet.PodVolumeDir(pod, "example.com/disk", "data")
	private, err := kubeletdir.TargetPath(dir)
	if err != nil {
		n.Fatal(err)
	}
	if err := os.MkdirAll(private, 0o750); err != nil {
		n.Fatal(err)
	}
	if err := unix.Mount("csi", private, "tmpfs", 0, "size=64k"); err != nil {
		n.Fatal(err)
	}
	if err := unix.Mount(private, dir, "", unix.MS_BIND, ""); err != nil {
		n.Fatal(err)
	}
	return dir, private
}

func unmount(dir string) error { return unix.Unmount(dir, unix.UMOUNT_NOFOLLOW) }
