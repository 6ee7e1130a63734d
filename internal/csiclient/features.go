package csiclient

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// Features asks the driver what it can do, once for each connection. It is
// ready and has the right name when this returns.
func (c *Client) Features(ctx context.Context) (csivol.Features, error) {
	c.mu.Lock()
	known := c.features
	c.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	f, err := c.ask(ctx)
	if err != nil {
		return csivol.Features{}, err
	}
	c.mu.Lock()
	c.features = &f
	c.mu.Unlock()
	return f, nil
}

func (c *Client) ask(ctx context.Context) (f csivol.Features, err error) {
	err = c.call(ctx, &c.node, c.Node, "Identity", func(cc *grpc.ClientConn) error {
		return c.identify(ctx, csi.NewIdentityClient(cc), &f)
	})
	if err != nil {
		return f, err
	}
	if err := c.askNode(ctx, &f); err != nil {
		return f, err
	}
	if c.Controller == nil || !f.Controller {
		return f, nil
	}
	return f, c.askController(ctx, &f)
}

// identify checks that this is the driver, and that it is ready. A driver that
// does not say is ready (CSI specification, Probe).
func (c *Client) identify(ctx context.Context, client csi.IdentityClient, f *csivol.Features) error {
	probe, err := client.Probe(ctx, &csi.ProbeRequest{})
	if err != nil {
		return err
	}
	if probe.GetReady() != nil && !probe.GetReady().GetValue() {
		return &csivol.RPCError{Method: "Probe", Code: flex.CodeUnavailable, Message: "the driver says that it is not ready yet"}
	}
	info, err := client.GetPluginInfo(ctx, &csi.GetPluginInfoRequest{})
	if err != nil {
		return err
	}
	if info.GetName() != c.Name {
		return &csivol.RPCError{Method: "GetPluginInfo", Code: flex.CodeFailedPrecondition, Message: fmt.Sprintf("the driver at this socket is %q, not %q; look at endpoint and csiDriver in the configuration", info.GetName(), c.Name)}
	}
	f.Name, f.Version = info.GetName(), info.GetVendorVersion()
	plugin, err := client.GetPluginCapabilities(ctx, &csi.GetPluginCapabilitiesRequest{})
	if err != nil {
		return err
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

// askNode ignores capabilities that this version does not know.
func (c *Client) askNode(ctx context.Context, f *csivol.Features) error {
	return c.onNode(ctx, "NodeGetCapabilities", func(n csi.NodeClient) error {
		answer, err := n.NodeGetCapabilities(ctx, &csi.NodeGetCapabilitiesRequest{})
		if err != nil {
			return err
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
		info, err := n.NodeGetInfo(ctx, &csi.NodeGetInfoRequest{})
		f.NodeID = info.GetNodeId()
		return err
	})
}

func (c *Client) askController(ctx context.Context, f *csivol.Features) error {
	return c.onController(ctx, "ControllerGetCapabilities", func(s csi.ControllerClient) error {
		answer, err := s.ControllerGetCapabilities(ctx, &csi.ControllerGetCapabilitiesRequest{})
		if err != nil {
			return err
		}
		for _, p := range answer.GetCapabilities() {
			switch p.GetRpc().GetType() {
			case csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME:
				f.Attach = true
			case csi.ControllerServiceCapability_RPC_PUBLISH_READONLY:
				f.AttachReadOnly = true
			case csi.ControllerServiceCapability_RPC_EXPAND_VOLUME:
				f.ControllerExpand = true
			case csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER:
				f.ControllerSingleWriter = true
			}
		}
		return nil
	})
}
