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
)

// TestHang: 64 NodeStageVolume calls that hung, for one dead server, kept the driver from
// setting up any other volume of the node (N9).
func TestHang(t *testing.T) {
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

	const many = 300
	var calls sync.WaitGroup
	for range many {
		calls.Go(func() { _ = client.NodeStage(t.Context(), csivol.StageRequest{Handle: "v", StagingPath: p.path("s")}) })
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for held.Load() < many && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if err := client.NodePublish(ctx, csivol.PublishRequest{Handle: "w", TargetPath: p.path("t")}); errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Errorf("set-up of another volume: %v", err)
	}
	if err := client.NodeUnstage(t.Context(), "w", p.path("s")); err != nil {
		t.Errorf("tear-down of another volume: %v", err)
	}
	close(release)
	calls.Wait()
}
