// Package drivers makes a driver of the bridge from its configuration, its mapping and its
// CSI driver. flex2csi serve and flex2csi map both use it, so that map shows what serve
// does.
package drivers

import (
	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/csiclient"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/mapping"
)

// New returns a driver of the bridge. Without access to the API server, Cluster and
// Attacher are nil.
func New(c *bridgeconfig.Driver, m *mapping.Mapper, s bridge.Service, cluster Cluster, a bridge.Attacher) *bridge.FlexDriver {
	if cluster != nil {
		m = m.WithSecrets(cluster.Secret)
	}
	d := &bridge.FlexDriver{
		Name:          c.FlexDriver,
		CSIDriver:     c.CSIDriver,
		Service:       s,
		Endpoints:     endpoints(c),
		Map:           mapVolumes(c, m, cluster),
		AttachSecrets: m.AttachSecrets,
		ExpandSecrets: m.ExpandSecrets,
		StaticSecrets: m.StaticSecrets,
		RepairInUse:   c.RepairInUse,
		Attach:        c.Attach,
		Attacher:      a,
		Policy:        policy(c, cluster),
		Inline:        c.Inline,
		Timeout:       c.Timeout,
	}
	switch s := c.Secrets.ControllerPublish; {
	case s == nil:
	case s.SecretRef != nil:
		d.AttachSecret = &csivol.SecretRef{Namespace: s.SecretRef.Namespace, Name: s.SecretRef.Name}
	default:
		d.AttachSecretsHere = true
	}
	if cluster != nil {
		d.Tokens, d.MayAttach, d.Read = cluster.Tokens, mayAttach(c, cluster), read(c, m, cluster)
	}
	return d
}

// Client returns the client of the CSI driver. It connects at the first call.
func Client(c *bridgeconfig.Driver, kubeletDir string) *csiclient.Client {
	return clientAt(c.CSIDriver, *endpoints(c), kubeletDir)
}

func endpoints(c *bridgeconfig.Driver) *csivol.Endpoints {
	var at csivol.Endpoints
	if c.Endpoint != "" {
		at.Node = bridgeconfig.SocketPath(c.Endpoint)
	}
	if c.ControllerEndpoint != "" {
		at.Controller = bridgeconfig.SocketPath(c.ControllerEndpoint)
	}
	return &at
}

func clientAt(csiDriver string, at csivol.Endpoints, kubeletDir string) *csiclient.Client {
	client := &csiclient.Client{Name: csiDriver, Node: csiclient.Registered(kubeletDir, csiDriver)}
	if at.Node != "" {
		client.Node = csiclient.Fixed(at.Node)
	}
	if at.Controller != "" {
		client.Controller = csiclient.Fixed(at.Controller)
	}
	return client
}
