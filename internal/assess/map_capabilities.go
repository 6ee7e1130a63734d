package assess

import (
	"fmt"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/csivol"
)

// The capabilities that decide what is called, by the names of the CSI
// specification. A name that both services have stands for both.
const (
	stage       = "STAGE_UNSTAGE_VOLUME"
	attach      = "PUBLISH_UNPUBLISH_VOLUME"
	expand      = "EXPAND_VOLUME"
	mountGroup  = "VOLUME_MOUNT_GROUP"
	multiWriter = "SINGLE_NODE_MULTI_WRITER"
)

// Capabilities are the names that there are.
func Capabilities() []string {
	return []string{stage, attach, expand, mountGroup, multiWriter}
}

// DefaultCapabilities are those that most drivers of disks have. The attaching
// ones matter only if the configuration says where the controller is.
func DefaultCapabilities() []string { return []string{stage, attach, expand} }

func (n Node) capabilities() []string {
	if n.Capabilities == nil {
		return DefaultCapabilities()
	}
	return n.Capabilities
}

func (n Node) can(capability string) bool { return slices.Contains(n.capabilities(), capability) }

func (n Node) check() error {
	for _, name := range n.capabilities() {
		if !slices.Contains(Capabilities(), name) {
			return fmt.Errorf("capability %q is none of %s", name, strings.Join(Capabilities(), ", "))
		}
	}
	return nil
}

// features makes of the names what a driver would have answered, and a note
// about it. A controller that cannot be reached offers nothing.
func (n Node) features(c *bridgeconfig.Driver) (csivol.Features, []string) {
	f := csivol.Features{
		Name:             c.CSIDriver,
		NodeID:           n.ID,
		Stage:            n.can(stage),
		NodeExpand:       n.can(expand),
		MountGroup:       n.can(mountGroup),
		NodeSingleWriter: n.can(multiWriter),
		OnlineExpansion:  n.can(expand),
	}
	notes := []string{"assumed of the CSI driver: " + strings.Join(append(n.capabilities(), "no others"), ", ")}
	if c.ControllerEndpoint == "" {
		f.Controller = n.can(attach) || n.can(expand)
		if n.can(attach) && c.Attach != bridgeconfig.AttachNone && !n.Cluster {
			notes = append(notes, "nothing is attached: there is no controllerEndpoint, and flex2csi serve is given no access to the API server (--in-cluster)")
		}
		return f, notes
	}
	f.Controller = true
	f.Attach = n.can(attach)
	f.ControllerExpand = n.can(expand)
	f.ControllerSingleWriter = n.can(multiWriter)
	return f, notes
}
