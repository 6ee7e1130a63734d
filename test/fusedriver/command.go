package fusedriver

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"

	"github.com/flex2csi/flex2csi/test/csidriver/serve"
)

type options struct {
	serve.Options
	dir, nodeID string
}

const usage = `fusedriver is a CSI driver for tests. Its volumes die with it. It runs until it
is interrupted.

  fusedriver --dir /tmp/volumes --endpoint unix:///tmp/fuse.sock

`

// Main runs a driver and returns the exit status. What it has to say goes to w.
func Main(args []string, w io.Writer) int {
	o := &options{Options: serve.Options{Name: "fuse.csi.example.com"}}
	return serve.Command{Name: "fusedriver", Usage: usage, Flags: o.flags, Run: o.run}.Main(args, w)
}

func (o *options) flags(f *pflag.FlagSet) {
	f.StringVar(&o.dir, "dir", "", "where the files of volumes are kept (required)")
	f.StringVar(&o.nodeID, "node-id", "node-1", "what the driver calls this node")
	o.AddFlags(f, " (required)")
}

func (o *options) run(ctx context.Context) error {
	if !filepath.IsAbs(o.dir) {
		return fmt.Errorf("--dir %q: an absolute path is wanted", o.dir)
	}
	return serve.Run(ctx, &o.Options, func(g *grpc.Server) {
		csi.RegisterIdentityServer(g, identity{name: o.Name})
		csi.RegisterNodeServer(g, &node{dir: o.dir, nodeID: o.nodeID})
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
