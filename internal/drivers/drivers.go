// Package drivers puts a driver of the bridge together: what the configuration
// says of it, how its options are mapped, and the CSI driver that does the
// work. flex2csi serve and flex2csi map both start here, so that one shows what
// the other does.
package drivers

import (
	"time"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/csiclient"
	"github.com/flex2csi/flex2csi/internal/mapping"
)

// New returns what the bridge wants to know of a driver.
func New(c *bridgeconfig.Driver, m *mapping.Mapper, s bridge.Service) *bridge.FlexDriver {
	t := &c.Timeouts
	return &bridge.FlexDriver{
		Name:          c.FlexDriver,
		CSIDriver:     c.CSIDriver,
		Service:       s,
		Map:           m.Map,
		DetachSecrets: m.DetachSecrets,
		StageInMount:  m.StageWantsFlexSecret(),
		StaticSecrets: m.StaticSecrets,
		Republish:     c.RequiresRepublish,
		RepairInUse:   c.RepairInUse,
		Attach:        bridge.AttachMode(c.Attach),
		FSGroup:       bridge.FSGroupPolicy(c.FSGroup),
		PodInfo:       c.PodInfo,
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
