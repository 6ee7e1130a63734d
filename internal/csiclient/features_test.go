package csiclient_test

import (
	"context"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/flex2csi/flex2csi/internal/csiclient"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/csidriver"
)

func TestFeatures(t *testing.T) {
	common := csivol.Features{
		Name: driverName, Version: csidriver.DefaultVersion, NodeID: "node-1", Controller: true,
		Stage: true, NodeExpand: true, Stats: true, NodeSingleWriter: true, OnlineExpansion: true,
	}
	for name, tt := range map[string]struct {
		set        func(*csidriver.Config)
		controller bool
		want       func(*csivol.Features)
	}{
		"node only": {func(c *csidriver.Config) { c.Attach = true }, false, func(*csivol.Features) {}},
		"controller without attach": {func(*csidriver.Config) {}, true, func(f *csivol.Features) {
			f.ControllerExpand, f.ControllerSingleWriter = true, true
		}},
		"attach": {func(c *csidriver.Config) { c.Attach = true }, true, func(f *csivol.Features) {
			f.Attach, f.ControllerExpand, f.ControllerSingleWriter = true, true, true
		}},
		"no stage":    {func(c *csidriver.Config) { c.NoStage = true }, false, func(f *csivol.Features) { f.Stage = false }},
		"mount group": {func(c *csidriver.Config) { c.MountGroup = true }, false, func(f *csivol.Features) { f.MountGroup = true }},
		"old modes":   {func(c *csidriver.Config) { c.OldModes = true }, true, func(f *csivol.Features) { f.NodeSingleWriter, f.ControllerExpand = false, true }},
		"offline": {func(c *csidriver.Config) { c.Expansion = csidriver.ExpandOffline }, false, func(f *csivol.Features) {
			f.OnlineExpansion, f.OfflineExpansion = false, true
		}},
		"no expansion": {func(c *csidriver.Config) { c.Expansion = csidriver.ExpandNever }, true, func(f *csivol.Features) {
			f.OnlineExpansion, f.NodeExpand, f.ControllerSingleWriter = false, false, true
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			config := p.config()
			tt.set(&config)
			client := p.client()
			if tt.controller {
				config.ControllerEndpoint = p.path("controller.sock")
				client.Controller = csiclient.Fixed(p.path("controller.sock"))
			}
			p.start(config)
			want := common
			tt.want(&want)
			got, err := client.Features(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// answering lets a test answer a request in the driver's place.
func answering[Request any](answer func() (any, error)) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if _, ok := req.(Request); ok {
			return answer()
		}
		return handler(ctx, req)
	}
}

func TestOddDrivers(t *testing.T) {
	capability := func(n csi.NodeServiceCapability_RPC_Type) *csi.NodeServiceCapability {
		return &csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: n}}}
	}
	for name, tt := range map[string]struct {
		answer grpc.UnaryServerInterceptor
		code   flex.Code // "" is success
		text   string
	}{
		"not ready": {
			answering[*csi.ProbeRequest](func() (any, error) { return &csi.ProbeResponse{Ready: wrapperspb.Bool(false)}, nil }),
			flex.CodeUnavailable, "not ready yet",
		},
		"ready": {
			answering[*csi.ProbeRequest](func() (any, error) { return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil }), "", "",
		},
		"unhealthy": {
			answering[*csi.ProbeRequest](func() (any, error) { return nil, status.Error(codes.FailedPrecondition, "no disks") }),
			flex.CodeFailedPrecondition, "Probe: failed_precondition: no disks",
		},
		"built without a version": {
			answering[*csi.GetPluginInfoRequest](func() (any, error) { return nil, status.Error(codes.Unavailable, "Driver is missing version") }),
			flex.CodeUnavailable, "GetPluginInfo: unavailable: Driver is missing version",
		},
		"another driver": {
			answering[*csi.GetPluginInfoRequest](func() (any, error) { return &csi.GetPluginInfoResponse{Name: "other.example.com"}, nil }),
			flex.CodeFailedPrecondition, `the driver at this socket is "other.example.com", not "loop.csi.example.com"`,
		},
		"no NodeGetInfo": {
			answering[*csi.NodeGetInfoRequest](func() (any, error) { return nil, status.Error(codes.Unimplemented, "") }), "", "",
		},
		"capabilities of an older specification and of a newer one": {
			answering[*csi.NodeGetCapabilitiesRequest](func() (any, error) {
				return &csi.NodeGetCapabilitiesResponse{Capabilities: []*csi.NodeServiceCapability{capability(4), capability(99), {}}}, nil
			}), "", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			config := p.config()
			config.Outer = []grpc.UnaryServerInterceptor{tt.answer}
			p.start(config)
			client := p.client()
			_, err := client.Features(t.Context())
			if tt.code == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			// Other calls are not made, and nothing is decided about them.
			for method, err := range map[string]error{"Features": err, "NodeUnpublish": client.NodeUnpublish(t.Context(), "v1", "/target")} {
				if e := rpcError(t, err); e.Code != tt.code || !strings.Contains(err.Error(), tt.text) || csivol.Final(err) {
					t.Errorf("%s: %v, final %t; want %s and %q", method, err, csivol.Final(err), tt.code, tt.text)
				}
			}
			if n := p.count("NodeUnpublishVolume"); n > 0 {
				t.Errorf("NodeUnpublishVolume was called %d times", n)
			}
		})
	}
}

// TestControllerDown: what is done at the node does not depend on a
// controller; to attach it is asked for.
func TestControllerDown(t *testing.T) {
	p := newPlace(t)
	p.start(p.config())
	client := p.client()
	client.Controller = csiclient.Fixed(p.path("controller.sock"))
	if err := client.NodeUnpublish(t.Context(), "v1", "/target"); err != nil {
		t.Error(err)
	}
	if _, err := client.Features(t.Context()); rpcError(t, err).Code != flex.CodeUnavailable || csivol.Final(err) {
		t.Errorf("features without the controller: %v", err)
	}
	client.Controller = nil
	err := client.ControllerUnpublish(t.Context(), "v1", "node-1", nil)
	if e := rpcError(t, err); e.Code != flex.CodeUnavailable || !strings.Contains(e.Message, "no controllerEndpoint") {
		t.Error(err)
	}
}

// TestControllerMismatch: the socket of the controller is looked at, too.
func TestControllerMismatch(t *testing.T) {
	p, q := newPlace(t), newPlace(t)
	p.start(p.config())
	other := q.config()
	other.Name, other.Attach = "other.example.com", true
	q.start(other)
	client := p.client()
	client.Controller = csiclient.Fixed(q.socket())
	_, err := client.ControllerPublish(t.Context(), csivol.AttachRequest{Handle: "v1", NodeID: "node-1", Capability: csivol.Capability{AccessMode: csivol.ReadWriteOnce}})
	if e := rpcError(t, err); e.Code != flex.CodeFailedPrecondition || !strings.Contains(e.Message, "other.example.com") {
		t.Error(err)
	}
	if n := q.count("ControllerPublishVolume"); n > 0 {
		t.Errorf("another driver was called %d times", n)
	}
}
