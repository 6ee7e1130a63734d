package csidriver

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"regexp"

	"google.golang.org/grpc"

	"github.com/flex2csi/flex2csi/test/csidriver/serve"
)

// Expansion says when a volume may grow.
type Expansion string

// The kinds of expansion; the zero value is ExpandOnline.
const (
	ExpandOnline  Expansion = "online"
	ExpandOffline Expansion = "offline"
	ExpandNever   Expansion = "none"
)

// Config is one driver. Name, NodeID, Dir and Endpoint are required.
type Config struct {
	// Name is the driver's name, as GetPluginInfo says.
	Name string
	// Version is the vendor's version; "" is DefaultVersion.
	Version string
	// NodeID is what the driver calls this node.
	NodeID string
	// KnownNodes are further nodes to which volumes may be attached, as if
	// drivers had been started there.
	KnownNodes []string
	// Dir is where volumes and state are.
	Dir string

	// Endpoint is the socket, as unix:///path or a path.
	Endpoint string
	// ControllerEndpoint puts the controller service on a socket of its own.
	ControllerEndpoint string
	// RegisterDir is a kubelet's directory. The driver registers there as
	// node-driver-registrar would do for it.
	RegisterDir string

	// Attach has the driver want ControllerPublishVolume.
	Attach bool
	// MaxVolumes is how many volumes may be attached to a node; 0: any number.
	MaxVolumes int64
	// NoStage makes a driver that has no NodeStageVolume.
	NoStage bool
	// MountGroup has the driver apply volume_mount_group (VOLUME_MOUNT_GROUP).
	MountGroup bool
	// OldModes makes a driver that does not know SINGLE_NODE_MULTI_WRITER and
	// allows SINGLE_NODE_WRITER any number of targets, as drivers did before.
	OldModes bool
	// Expansion is online if empty.
	Expansion Expansion
	// Directories makes volumes that are directories rather than disks: cheap,
	// without a filesystem and a size of their own.
	Directories bool
	// NoOp answers without doing anything, for measuring the caller.
	NoOp bool

	// Outer sees each call first and its answer last.
	Outer []grpc.UnaryServerInterceptor
	// Inner runs while the volume is locked.
	Inner []grpc.UnaryServerInterceptor
	// Log may be nil.
	Log *slog.Logger
}

// DefaultVersion is the vendor version of a driver that has no other.
const DefaultVersion = "0.0.0-example"

// As the specification has it for GetPluginInfoResponse.name.
var driverName = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9.-]{0,61}[a-zA-Z0-9])?$`)

func (c *Config) complete() error {
	if !driverName.MatchString(c.Name) {
		return fmt.Errorf("driver name %q: the CSI specification wants at most 63 letters, digits, dots and dashes", c.Name)
	}
	for _, node := range append([]string{c.NodeID}, c.KnownNodes...) {
		if !isID(node) {
			return fmt.Errorf("node id %q: letters, digits, dots, dashes and underscores only", node)
		}
	}
	if !filepath.IsAbs(c.Dir) {
		return fmt.Errorf("directory %q: it has to be absolute", c.Dir)
	}
	if c.Endpoint == "" {
		return fmt.Errorf("an endpoint is missing")
	}
	for _, endpoint := range []*string{&c.Endpoint, &c.ControllerEndpoint} {
		if *endpoint == "" {
			continue
		}
		path, err := serve.SocketPath(*endpoint)
		if err != nil {
			return err
		}
		*endpoint = path
	}
	if c.Version == "" {
		c.Version = DefaultVersion
	}
	switch c.Expansion {
	case "":
		c.Expansion = ExpandOnline
	case ExpandOnline, ExpandOffline, ExpandNever:
	default:
		return fmt.Errorf("expansion %q: want %s, %s or %s", c.Expansion, ExpandOnline, ExpandOffline, ExpandNever)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}
