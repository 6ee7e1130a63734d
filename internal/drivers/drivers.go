// Package drivers puts a driver of the bridge together: what the configuration
// says of it, how its options are mapped, and the CSI driver that does the
// work. flex2csi serve and flex2csi map both start here, so that one shows what
// the other does.
package drivers

import (
	"context"
	"time"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/csiclient"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/mapping"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// New returns what the bridge wants to know of a driver.
func New(c *bridgeconfig.Driver, m *mapping.Mapper, s bridge.Service) *bridge.FlexDriver {
	t := &c.Timeouts
	return &bridge.FlexDriver{
		Name:          c.FlexDriver,
		CSIDriver:     c.CSIDriver,
		Service:       s,
		Map:           func(_ context.Context, o flex.Options) (*csivol.Volume, error) { return m.Map(o) },
		DetachSecrets: func(context.Context) (map[string]flex.Secret, error) { return m.DetachSecrets() },
		StageInMount:  m.StageWantsFlexSecret(),
		StaticSecrets: func(context.Context) (csivol.Secrets, error) { return m.StaticSecrets() },
		RepairInUse:   c.RepairInUse,
		Attach:        bridge.AttachMode(c.Attach),
		Policy: func(context.Context) (bridge.Policy, error) {
			return bridge.Policy{FSGroup: bridge.FSGroupPolicy(c.FSGroup), PodInfo: c.PodInfo, Republish: c.RequiresRepublish}, nil
		},
		DirectPublish: c.DirectPublish,
		Inline:        c.Inline,
		StagingRoot:   c.StagingRoot,
		Timeouts: bridge.Timeouts{
			Attach:    time.Duration(t.Attach),
			Stage:     time.Duration(t.Stage),
			Publish:   time.Duration(t.Publish),
			Expand:    time.Duration(t.Expand),
			Unpublish: time.Duration(t.Unpublish),
			Unstage:   time.Duration(t.Unstage),
			Detach:    time.Duration(t.Detach),
		},
	}
}

// Client returns the CSI driver itself. Nothing is dialled before the first
// call.
func Client(c *bridgeconfig.Driver, kubeletDir string) *csiclient.Client {
	client := &csiclient.Client{Name: c.CSIDriver, Node: csiclient.Registered(kubeletDir, c.CSIDriver)}
	if c.Endpoint != "" {
		client.Node = csiclient.Fixed(bridgeconfig.SocketPath(c.Endpoint))
	}
	if c.ControllerEndpoint != "" {
		client.Controller = csiclient.Fixed(bridgeconfig.SocketPath(c.ControllerEndpoint))
	}
	return client
}
