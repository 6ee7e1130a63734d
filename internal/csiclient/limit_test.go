package csiclient_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/flex2csi/flex2csi/internal/csiclient"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// TestCap: a driver that hangs gets no more to set up than it has, and still
// everything that is to be taken down.
func TestCap(t *testing.T) {
	p := newPlace(t)
	c := p.config()
	var held atomic.Int32
	release := make(chan struct{})
	c.Outer = []grpc.UnaryServerInterceptor{func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if _, ok := req.(*csi.NodeStageVolumeRequest); ok {
			held.Add(1)
			<-release
		}
		return handler(ctx, req)
	}}
	stop := p.start(c)
	defer stop()
	client := &csiclient.Client{Name: driverName, Node: csiclient.Fixed(p.socket())}
	defer client.Close()

	const many = 100
	var calls sync.WaitGroup
	for range many {
		calls.Go(func() { _ = client.NodeStage(t.Context(), csivol.StageRequest{Handle: "v", StagingPath: p.path("s")}) })
	}
	for held.Load() < 64 {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := client.NodePublish(ctx, csivol.PublishRequest{Handle: "w", TargetPath: p.path("t")})
	if e, ok := errors.AsType[*csivol.RPCError](err); !ok || e.Code != flex.CodeUnavailable || csivol.Final(err) {
		t.Errorf("one call too many: %v", err)
	}
	if err := client.NodeUnstage(t.Context(), "w", p.path("s")); err != nil {
		t.Errorf("tear-down of another volume: %v", err)
	}
	if got := held.Load(); got != 64 {
		t.Errorf("the driver has %d calls, want 64", got)
	}
	close(release)
	calls.Wait()
	if got := held.Load(); got != many {
		t.Errorf("%d calls were made in the end, want %d", got, many)
	}
}
