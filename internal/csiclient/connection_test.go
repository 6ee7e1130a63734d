package csiclient_test

import (
	"context"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/flex2csi/flex2csi/internal/csiclient"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/csidriver/fault"
)

func TestDriverNotThere(t *testing.T) {
	p := newPlace(t)
	dead, err := net.Listen("unix", p.path("dead.sock"))
	if err != nil {
		t.Fatal(err)
	}
	dead.(*net.UnixListener).SetUnlinkOnClose(false)
	dead.Close()
	silent, err := net.Listen("unix", p.path("silent.sock")) // no process accepts
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	for name, want := range map[string]string{
		"none.sock": "no such file or directory", "dead.sock": "dead.sock", "silent.sock": "no process answers at",
		strings.Repeat("x", 120): "invalid argument",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := p.client()
			client.Node = csiclient.Fixed(p.path(name))
			// All callers wait for the same, and none for the others.
			var callers sync.WaitGroup
			for range 20 {
				callers.Go(func() {
					err := client.NodeUnstage(t.Context(), "v1", "/staging")
					if e := rpcError(t, err); e.Code != flex.CodeUnavailable || !strings.Contains(err.Error(), want) || csivol.Final(err) {
						t.Errorf("got %v, final %t; want %q", err, csivol.Final(err), want)
					}
				})
			}
			callers.Wait()
		})
	}
}

func TestCallerLeaves(t *testing.T) {
	p := newPlace(t)
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := p.client().Features(short)
	if e := rpcError(t, err); e.Code != flex.CodeUnavailable || time.Since(start) > time.Second {
		t.Errorf("%v after %v", err, time.Since(start))
	}
}

// TestDriverComes: a call waits for a driver that is restarting.
func TestDriverComes(t *testing.T) {
	p := newPlace(t)
	failed := make(chan error)
	go func() { failed <- p.client().NodeUnpublish(t.Context(), "v1", "/target") }()
	time.Sleep(500 * time.Millisecond)
	p.start(p.config())
	if err := <-failed; err != nil {
		t.Error(err)
	}
}

// TestRestart: the client asks for a driver's capabilities once, and again when the
// driver was replaced, even if no call noticed that.
func TestRestart(t *testing.T) {
	p := newPlace(t)
	stop := p.start(p.config())
	client := p.client()
	for range 3 {
		f, err := client.Features(t.Context())
		if err != nil || f.MountGroup {
			t.Fatalf("features %+v, %v", f, err)
		}
		if err := client.NodeUnpublish(t.Context(), "v1", "/target"); err != nil {
			t.Fatal(err)
		}
	}
	if n := p.count("NodeGetCapabilities"); n != 1 {
		t.Errorf("NodeGetCapabilities was called %d times for one connection", n)
	}
	stop()
	config := p.config()
	config.MountGroup = true
	stop = p.start(config)
	f, err := client.Features(t.Context())
	if err != nil || !f.MountGroup {
		t.Fatalf("features after a restart %+v, %v", f, err)
	}
	if n := p.count("NodeGetCapabilities"); n != 2 {
		t.Errorf("NodeGetCapabilities was called %d times for two connections", n)
	}

	// The next is another driver: it is not called.
	stop()
	config.Name = "other.example.com"
	p.start(config)
	before := p.count("NodeUnpublishVolume")
	err = client.NodeUnpublish(t.Context(), "v1", "/target")
	if e := rpcError(t, err); e.Code != flex.CodeFailedPrecondition || csivol.Final(err) {
		t.Error(err)
	}
	if n := p.count("NodeUnpublishVolume"); n != before {
		t.Error("another driver at the same socket was called")
	}
}

// TestRestartUnderLoad: calls fail as unavailable at most, and go on.
func TestRestartUnderLoad(t *testing.T) {
	p := newPlace(t)
	cmd := p.startProcess()
	client := p.client()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for ctx.Err() == nil {
				err := client.NodeUnpublish(t.Context(), "v1", "/target")
				if err != nil && csivol.Final(err) {
					t.Errorf("a restart gave a final error: %v", err)
				}
			}
		})
	}
	for range 5 {
		time.Sleep(100 * time.Millisecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		cmd = p.startProcess()
	}
	time.Sleep(100 * time.Millisecond)
	cancel()
	callers.Wait()
	if err := client.NodeUnpublish(t.Context(), "v1", "/target"); err != nil {
		t.Error(err)
	}
}

// TestShutdownInOrder: a driver that is told to stop answers those that it
// has, while others find the next.
func TestShutdownInOrder(t *testing.T) {
	p := newPlace(t)
	config := p.config()
	delay := fault.New(fault.Rule{Method: "NodeStageVolume", Delay: fault.Duration(500 * time.Millisecond)})
	begun := make(chan struct{})
	config.Inner = []grpc.UnaryServerInterceptor{func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if _, stage := req.(*csi.NodeStageVolumeRequest); stage {
			close(begun)
		}
		return delay.Unary(ctx, req, info, handler)
	}}
	stop := p.start(config)
	client := p.client()
	staged := make(chan error)
	go func() { staged <- client.NodeStage(t.Context(), csivol.StageRequest{Handle: "v1", StagingPath: "/s"}) }()
	<-begun
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	for { // until the driver does not listen any more
		if _, err := os.Stat(p.socket()); err != nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	unpublished := make(chan error)
	go func() { unpublished <- client.NodeUnpublish(t.Context(), "v1", "/target") }()
	if err := <-staged; err != nil {
		t.Errorf("a call that was in progress: %v", err)
	}
	<-stopped
	p.start(p.config())
	if err := <-unpublished; err != nil {
		t.Errorf("a call that came later: %v", err)
	}
}

func TestOddPath(t *testing.T) {
	p := newPlace(t)
	path := p.path("a b%20c#d?e.sock")
	config := p.config()
	config.Endpoint = path
	var authority []string
	config.Outer = []grpc.UnaryServerInterceptor{func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if md, ok := metadata.FromIncomingContext(ctx); ok {
			authority = md.Get(":authority")
		}
		return handler(ctx, req)
	}}
	p.start(config)
	client := p.client()
	client.Node = csiclient.Fixed("unix://" + path)
	if _, err := client.Features(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(authority) != 1 || authority[0] != "localhost" {
		t.Errorf("authority %q, want localhost", authority)
	}
}
