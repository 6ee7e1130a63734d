package driver

import (
	"context"
	"fmt"
	"io"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"

	"github.com/flex2csi/flex2csi/test/csidriver/serve"
)

// A Kind is what a driver does with its own storage.
type Kind struct {
	// CSIDriver is the name of the driver that this one stands for.
	CSIDriver string
	// Program is the name of its executable, and Args are its arguments; empty: it needs more
	// than a guest has.
	Program string
	Args    func(endpoint, nodeID string) []string
	// Stage: volumes are mounted by NodeStageVolume, and bound by NodePublishVolume. Otherwise
	// NodePublishVolume mounts.
	Stage bool
	// Below: what is staged is mounted in the staging path, at a directory with the handle's name.
	Below bool
	// MountGroup: the driver applies the group (VOLUME_MOUNT_GROUP).
	MountGroup bool
	// Force: an unmount that hangs is forced.
	Force bool
	// mount mounts a volume at a directory that is there.
	mount func(ctx context.Context, v volume, dir string) error
	// intact reports whether what is mounted is left; else it is mounted again. nil: it always is.
	intact func(dir string) bool
	// release gives up what a volume that was staged at a path had on this node besides the mount;
	// nil: nothing.
	release func(ctx context.Context, staging string) error
	// expand gives a volume that is staged at a path the size of its storage (EXPAND_VOLUME); nil:
	// the driver has no such call.
	expand func(ctx context.Context, v volume, staging string) error
}

// volume is what a request says of one.
type volume struct {
	id               string
	context, secrets map[string]string
	capability       *csi.VolumeCapability_MountVolume
	mode             csi.VolumeCapability_AccessMode_Mode
	readOnly         bool
}

// Kinds returns all kinds by their names.
func Kinds() map[string]Kind {
	return map[string]Kind{"lvm": lvm(), "nfs": nfs(), "rbd": rbd(), "smb": smb()}
}

type options struct {
	serve.Options
	kind, nodeID string
}

const usage = `storagedriver is a CSI driver of tests for real storage. It runs until it is
interrupted.

  storagedriver --kind nfs --endpoint unix:///tmp/csi.sock

`

// Main runs a driver and returns the exit status. What it has to say goes to w.
func Main(args []string, w io.Writer) int {
	o := &options{}
	return serve.Command{Name: "storagedriver", Usage: usage, Flags: o.flags, Run: o.run}.Main(args, w)
}

func (o *options) flags(f *pflag.FlagSet) {
	f.StringVar(&o.kind, "kind", "", "the storage (required)")
	f.StringVar(&o.nodeID, "node-id", "node-1", "what the driver calls this node")
	o.AddFlags(f, " (required)")
}

func (o *options) run(ctx context.Context) error {
	kind, is := Kinds()[o.kind]
	if !is {
		return fmt.Errorf("--kind %q: no such storage", o.kind)
	}
	if o.Name == "" {
		o.Name = kind.CSIDriver
	}
	return serve.Run(ctx, &o.Options, func(g *grpc.Server) {
		csi.RegisterIdentityServer(g, identity{name: o.Name})
		csi.RegisterNodeServer(g, &node{Kind: kind, nodeID: o.nodeID, busy: map[string]bool{}})
	})
}

type identity struct {
	csi.UnimplementedIdentityServer
	name string
}

func (i identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: i.name, VendorVersion: "0.0.0-test"}, nil
}

func (identity) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{}, nil
}

func (identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}
