package csiclient_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/flex2csi/flex2csi/internal/csiclient"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/csidriver/fault"
)

// TestAccessModes is the table of the kubelet (pkg/volume/csi/csi_client.go,
// Kubernetes v1.37.1), by what the service that is called can do.
func TestAccessModes(t *testing.T) {
	for _, tt := range []struct {
		mode        csivol.AccessMode
		old, recent csi.VolumeCapability_AccessMode_Mode
	}{
		{csivol.ReadWriteOnce, csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER},
		{csivol.ReadWriteOncePod, csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER},
		{csivol.ReadOnlyMany, csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY},
		{csivol.ReadWriteMany, csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
	} {
		c := csivol.Capability{AccessMode: tt.mode}
		for _, f := range []csivol.Features{{}, {NodeSingleWriter: true}, {ControllerSingleWriter: true}} {
			atNode, atController := tt.old, tt.old
			if f.NodeSingleWriter {
				atNode = tt.recent
			}
			if f.ControllerSingleWriter {
				atController = tt.recent
			}
			for name, got := range map[string]*csi.VolumeCapability{
				"stage": csiclient.NodeStageRequest(csivol.StageRequest{Capability: c}, f).GetVolumeCapability(), "publish": csiclient.NodePublishRequest(csivol.PublishRequest{Capability: c}, f).GetVolumeCapability(),
				"expand": csiclient.NodeExpandRequest(csivol.ExpandRequest{Capability: c}, f).GetVolumeCapability(),
			} {
				if got.GetAccessMode().GetMode() != atNode {
					t.Errorf("%s of %s with %+v: %s, want %s", name, tt.mode, f, got.GetAccessMode().GetMode(), atNode)
				}
			}
			if got := csiclient.ControllerPublishRequest(csivol.AttachRequest{Capability: c}, f).GetVolumeCapability().GetAccessMode().GetMode(); got != atController {
				t.Errorf("attach of %s with %+v: %s, want %s", tt.mode, f, got, atController)
			}
		}
	}
}

// TestRequests: what a driver gets, even from the first call.
func TestRequests(t *testing.T) {
	p := newPlace(t)
	config := p.config()
	config.Attach = true
	config.ControllerEndpoint = p.path("controller.sock")
	var got []any
	config.Inner = []grpc.UnaryServerInterceptor{func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if r, ok := req.(interface{ GetVolumeId() string }); ok {
			got = append(got, r)
		}
		return handler(ctx, req)
	}}
	p.start(config)
	client := p.client()
	client.Controller = csiclient.Fixed(config.ControllerEndpoint)
	secrets := map[string]flex.Secret{"password": flex.NewSecret([]byte("swordfish"))}
	clear := map[string]string{"password": "swordfish"}
	capability := csivol.Capability{FSType: "xfs", MountFlags: []string{"noatime"}, AccessMode: csivol.ReadWriteOnce}
	want := &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "xfs", MountFlags: []string{"noatime"}}},
	}
	context := map[string]string{"a": "b"}

	published, err := client.ControllerPublish(t.Context(), csivol.AttachRequest{Handle: "v1", NodeID: "node-1", Capability: capability, Context: context, Secrets: secrets})
	if err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"stage":   client.NodeStage(t.Context(), csivol.StageRequest{Handle: "v1", PublishContext: published, StagingPath: "/s", Capability: capability, Context: context, Secrets: secrets}),
		"publish": client.NodePublish(t.Context(), csivol.PublishRequest{Handle: "v1", PublishContext: published, StagingPath: "/s", TargetPath: "/t", Capability: capability, ReadOnly: true, Context: context, Secrets: secrets}),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	byMethod := map[string]any{}
	for _, r := range got {
		byMethod[fmt.Sprintf("%T", r)] = r
	}
	wanted := map[string]any{
		"*csi.ControllerPublishVolumeRequest": &csi.ControllerPublishVolumeRequest{VolumeId: "v1", NodeId: "node-1", VolumeCapability: want, VolumeContext: context, Secrets: clear},
		"*csi.NodeStageVolumeRequest":         &csi.NodeStageVolumeRequest{VolumeId: "v1", PublishContext: published, StagingTargetPath: "/s", VolumeCapability: want, VolumeContext: context, Secrets: clear},
		"*csi.NodePublishVolumeRequest":       &csi.NodePublishVolumeRequest{VolumeId: "v1", PublishContext: published, StagingTargetPath: "/s", TargetPath: "/t", VolumeCapability: want, Readonly: true, VolumeContext: context, Secrets: clear},
	}
	if diff := cmp.Diff(wanted, byMethod, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	if published["token"] == "" {
		t.Errorf("publish context %v", published)
	}
	if required, err := client.ControllerExpand(t.Context(), csivol.ExpandRequest{Handle: "v1", Size: 1 << 30, Capability: capability}); err != nil || !required {
		t.Errorf("expand: %t, %v", required, err)
	}
}

// TestExpansionToLess: a driver that reports less than was asked for has not
// expanded, whatever it says.
func TestExpansionToLess(t *testing.T) {
	p := newPlace(t)
	config := p.config()
	config.NoOp = true
	config.Outer = []grpc.UnaryServerInterceptor{func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		switch req.(type) {
		case *csi.ControllerExpandVolumeRequest:
			return &csi.ControllerExpandVolumeResponse{CapacityBytes: 1 << 20}, nil
		case *csi.NodeExpandVolumeRequest:
			return &csi.NodeExpandVolumeResponse{CapacityBytes: 1 << 20}, nil
		}
		return handler(ctx, req)
	}}
	p.start(config)
	client := p.client()
	client.Controller = client.Node
	for size, want := range map[int64]bool{1 << 20: true, 1<<20 + 1: false} {
		if _, err := client.ControllerExpand(t.Context(), csivol.ExpandRequest{Handle: "v1", Size: size}); (err == nil) != want {
			t.Errorf("expand to %d: %v", size, err)
		}
		if err := client.NodeExpand(t.Context(), csivol.ExpandRequest{Handle: "v1", VolumePath: "/v", Size: size, OnNodeOnly: true}); (err == nil) != want {
			t.Errorf("expand to %d on the node only: %v", size, err)
		}
		if err := client.NodeExpand(t.Context(), csivol.ExpandRequest{Handle: "v1", VolumePath: "/v", Size: size}); err != nil {
			t.Errorf("expand the filesystem of a volume of %d: %v", size, err)
		}
	}
}

// TestErrors: each code of gRPC, and whether a call that ended with it is over.
// The classes are the kubelet's (isFinalError).
func TestErrors(t *testing.T) {
	p := newPlace(t)
	injector := fault.New()
	config := p.config()
	config.Inner = []grpc.UnaryServerInterceptor{injector.Unary}
	p.start(config)
	client := p.client()
	for _, tt := range []struct {
		code  codes.Code
		want  flex.Code
		final bool
	}{
		{codes.Canceled, flex.CodeCanceled, false},
		{codes.Unknown, flex.CodeInternal, true},
		{codes.InvalidArgument, flex.CodeInvalidArgument, true},
		{codes.DeadlineExceeded, flex.CodeDeadlineExceeded, false},
		{codes.NotFound, flex.CodeNotFound, true},
		{codes.AlreadyExists, flex.CodeAlreadyExists, true},
		{codes.PermissionDenied, flex.CodePermissionDenied, true},
		{codes.ResourceExhausted, flex.CodeResourceExhausted, false},
		{codes.FailedPrecondition, flex.CodeFailedPrecondition, true},
		{codes.Aborted, flex.CodeAborted, false},
		{codes.OutOfRange, flex.CodeInvalidArgument, true},
		{codes.Unimplemented, flex.CodeUnimplemented, true},
		{codes.Internal, flex.CodeInternal, true},
		{codes.Unavailable, flex.CodeUnavailable, false},
		{codes.DataLoss, flex.CodeInternal, true},
		{codes.Unauthenticated, flex.CodePermissionDenied, true},
		{codes.Code(77), flex.CodeInternal, true},
	} {
		injector.Set(fault.Rule{Method: "NodeStageVolume", Code: tt.code, Message: "so it is"})
		err := client.NodeStage(t.Context(), csivol.StageRequest{Handle: "v1", StagingPath: "/s"})
		e := rpcError(t, err)
		if e.Code != tt.want || csivol.Final(err) != tt.final || e.Method != "NodeStageVolume" || e.Message != "so it is" {
			t.Errorf("%s: got %+v, final %t; want %s, final %t", tt.code, e, csivol.Final(err), tt.want, tt.final)
		}
		if csivol.NotFound(err) != (tt.code == codes.NotFound) {
			t.Errorf("%s: not found %t", tt.code, csivol.NotFound(err))
		}
	}
}

func TestLateAnswers(t *testing.T) {
	p := newPlace(t)
	injector := fault.New(fault.Rule{Method: "NodeStageVolume", Hang: true})
	config := p.config()
	config.Inner = []grpc.UnaryServerInterceptor{injector.Unary}
	p.start(config)
	client := p.client()
	stage := func(ctx context.Context) error {
		return client.NodeStage(ctx, csivol.StageRequest{Handle: "v1", StagingPath: "/s"})
	}
	late, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := stage(late); rpcError(t, err).Code != flex.CodeDeadlineExceeded || csivol.Final(err) {
		t.Error(err)
	}
	left, leave := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, leave)
	if err := stage(left); rpcError(t, err).Code != flex.CodeCanceled || csivol.Final(err) {
		t.Error(err)
	}
	injector.Set()
	if err := stage(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestBrokenConnection: the driver dies on a call, before its work or after.
func TestBrokenConnection(t *testing.T) {
	for name, after := range map[string]bool{"before the work": false, "after the work": true} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			if err := fault.WriteFile(p.path("faults"), fault.Rule{Method: "NodeStageVolume", Kill: true, After: after, Times: 1}); err != nil {
				t.Fatal(err)
			}
			cmd := p.startProcess()
			client := p.client()
			stage := func() error {
				return client.NodeStage(t.Context(), csivol.StageRequest{Handle: "v1", StagingPath: "/s"})
			}
			err := stage()
			if e := rpcError(t, err); e.Code != flex.CodeUnavailable || csivol.Final(err) {
				t.Errorf("got %+v", e)
			}
			_ = cmd.Wait()
			p.startProcess()
			if err := stage(); err != nil {
				t.Errorf("the same again: %v", err)
			}
		})
	}
}

// TestSecretsInErrors: an error says nothing that only the driver was told.
func TestSecretsInErrors(t *testing.T) {
	p := newPlace(t)
	p.start(p.config())
	client := p.client()
	bad := map[string]flex.Secret{"password": flex.NewSecret([]byte("swordfish\xff"))} // gRPC wants valid UTF-8
	err := client.NodeStage(t.Context(), csivol.StageRequest{Handle: "v1", StagingPath: "/s", Secrets: bad})
	if err == nil || strings.Contains(err.Error(), "swordfish") {
		t.Errorf("got %v", err)
	}
}
