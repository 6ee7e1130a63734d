package csiclient

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// Features returns the driver's capabilities, which it asks for once on each connection.
// The driver is ready and has the right name when Features returns.
//
// A configured controller that cannot be reached is an error: without it a volume would
// be staged before it is attached.
func (c *Client) Features(ctx context.Context) (f csivol.Features, err error) {
	err = c.call(ctx, "Features", c.atNode(), func(_ *link, known csivol.Features) error {
		f = known
		return nil
	})
	if err != nil || c.Controller == nil {
		return f, err
	}
	var g csivol.Features
	err = c.call(ctx, "Features", c.atController(), func(_ *link, known csivol.Features) error {
		g = known
		return nil
	})
	if err != nil {
		return csivol.Features{}, err
	}
	f.Controller, f.Attach = g.Controller, g.Attach
	f.ControllerExpand, f.ControllerSingleWriter = g.ControllerExpand, g.ControllerSingleWriter
	f.OnlineExpansion = f.OnlineExpansion || g.OnlineExpansion
	f.OfflineExpansion = f.OfflineExpansion || g.OfflineExpansion
	return f, nil
}

// meet returns the capabilities of a service, which it asks for once on each link. On an
// error the call itself was not sent.
func (c *Client) meet(ctx context.Context, l *link, s service) (csivol.Features, error) {
	if known := l.features.Load(); known != nil {
		return *known, nil
	}
	var f csivol.Features
	err := c.identify(ctx, l.conn, &f)
	if err == nil {
		err = s.ask(ctx, l.conn, &f)
	}
	s.connection.met(f.Version, err)
	if err != nil {
		return csivol.Features{}, unasked(err)
	}
	l.features.Store(&f)
	return f, nil
}

// unasked marks the error of an RPC that came before the call itself: it says nothing
// about the call.
func unasked(err error) error {
	if e, ok := err.(*csivol.RPCError); ok { //nolint:errorlint // made here, never wrapped
		e.NoAnswer = true
	}
	return err
}

// identify checks the driver's name, and that it is ready. Without an answer to that it
// is ready (CSI specification, Probe).
func (c *Client) identify(ctx context.Context, cc *grpc.ClientConn, f *csivol.Features) error {
	client := csi.NewIdentityClient(cc)
	probe, err := client.Probe(ctx, &csi.ProbeRequest{})
	if err != nil {
		return rpcError("Probe", err)
	}
	if probe.GetReady() != nil && !probe.GetReady().GetValue() {
		return &csivol.RPCError{Method: "Probe", Code: flex.CodeUnavailable, Message: fmt.Sprintf("CSI driver %s says that it is not ready yet", c.Name)}
	}
	info, err := client.GetPluginInfo(ctx, &csi.GetPluginInfoRequest{})
	if err != nil {
		return rpcError("GetPluginInfo", err)
	}
	if info.GetName() != c.Name {
		return &csivol.RPCError{Method: "GetPluginInfo", Code: flex.CodeFailedPrecondition, Message: fmt.Sprintf("the driver at this socket is %q, not %q; look at endpoint and csiDriver in the configuration", info.GetName(), c.Name)}
	}
	f.Name, f.Version = info.GetName(), info.GetVendorVersion()
	plugin, err := client.GetPluginCapabilities(ctx, &csi.GetPluginCapabilitiesRequest{})
	if err != nil {
		return rpcError("GetPluginCapabilities", err)
	}
	for _, p := range plugin.GetCapabilities() {
		if p.GetService().GetType() == csi.PluginCapability_Service_CONTROLLER_SERVICE {
			f.Controller = true
		}
		switch p.GetVolumeExpansion().GetType() {
		case csi.PluginCapability_VolumeExpansion_ONLINE:
			f.OnlineExpansion = true
		case csi.PluginCapability_VolumeExpansion_OFFLINE:
			f.OfflineExpansion = true
		}
	}
	return nil
}

// askNode ignores unknown capabilities.
func askNode(ctx context.Context, cc *grpc.ClientConn, f *csivol.Features) error {
	n := csi.NewNodeClient(cc)
	answer, err := n.NodeGetCapabilities(ctx, &csi.NodeGetCapabilitiesRequest{})
	if err != nil {
		return rpcError("NodeGetCapabilities", err)
	}
	for _, p := range answer.GetCapabilities() {
		switch p.GetRpc().GetType() {
		case csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME:
			f.Stage = true
		case csi.NodeServiceCapability_RPC_EXPAND_VOLUME:
			f.NodeExpand = true
		case csi.NodeServiceCapability_RPC_GET_VOLUME_STATS:
			f.Stats = true
		case csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP:
			f.MountGroup = true
		case csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER:
			f.NodeSingleWriter = true
		}
	}
	// Only drivers that attach, or have topology, need this RPC (CSI specification,
	// NodeGetInfo).
	info, err := n.NodeGetInfo(ctx, &csi.NodeGetInfoRequest{})
	if err != nil && status.Code(err) != codes.Unimplemented {
		return rpcError("NodeGetInfo", err)
	}
	f.NodeID = info.GetNodeId()
	return nil
}

func askController(ctx context.Context, cc *grpc.ClientConn, f *csivol.Features) error {
	if !f.Controller {
		return nil
	}
	answer, err := csi.NewControllerClient(cc).ControllerGetCapabilities(ctx, &csi.ControllerGetCapabilitiesRequest{})
	if err != nil {
		return rpcError("ControllerGetCapabilities", err)
	}
	for _, p := range answer.GetCapabilities() {
		switch p.GetRpc().GetType() {
		case csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME:
			f.Attach = true
		case csi.ControllerServiceCapability_RPC_EXPAND_VOLUME:
			f.ControllerExpand = true
		case csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER:
			f.ControllerSingleWriter = true
		}
	}
	return nil
}
