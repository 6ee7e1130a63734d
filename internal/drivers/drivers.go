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
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/mapping"
)

// New returns what the bridge wants to know of a driver. Without access to the
// cluster there is neither a Cluster nor an Attacher.
func New(c *bridgeconfig.Driver, m *mapping.Mapper, s bridge.Service, cluster Cluster, a bridge.Attacher) *bridge.FlexDriver {
	t := &c.Timeouts
	if cluster != nil {
		m = m.WithSecrets(cluster.Secret)
	}
	d := &bridge.FlexDriver{
		Name:          c.FlexDriver,
		CSIDriver:     c.CSIDriver,
		Service:       s,
		Map:           Map(c, m, cluster),
		AttachSecrets: m.AttachSecrets,
		ExpandSecrets: m.ExpandSecrets,
		StaticSecrets: m.StaticSecrets,
		RepairInUse:   c.RepairInUse,
		Attach:        bridge.AttachMode(c.Attach),
		Attacher:      a,
		Policy:        policy(c, cluster),
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
	switch s := c.Secrets.ControllerPublish; {
	case s == nil:
	case s.SecretRef != nil:
		d.AttachSecret = &csivol.SecretRef{Namespace: s.SecretRef.Namespace, Name: s.SecretRef.Name}
	default:
		d.AttachSecretsHere = true
	}
	if cluster != nil {
		d.Tokens, d.MayAttach = cluster.Tokens, mayAttach(c, cluster)
	}
	return d
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
