package fusedriver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"

	"github.com/flex2csi/flex2csi/test/csidriver/serve"
)

type options struct {
	serve.Options
	dir, nodeID string
}

const usage = `fusedriver is a CSI driver for tests whose volumes die with it. It runs until it
is interrupted.

  fusedriver --dir /tmp/volumes --endpoint unix:///tmp/fuse.sock

`

// Main runs a driver and returns the exit status. What it has to say goes to w.
func Main(args []string, w io.Writer) int {
	o, err := parse(args, w)
	if errors.Is(err, pflag.ErrHelp) {
		return 0
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		err = o.run(ctx)
	}
	if err != nil {
		fmt.Fprintln(w, "fusedriver:", err)
		return 1
	}
	return 0
}

func parse(args []string, w io.Writer) (*options, error) {
	o := &options{Options: serve.Options{Name: "fuse.csi.example.com"}}
	f := pflag.NewFlagSet("fusedriver", pflag.ContinueOnError)
	f.SetOutput(w)
	f.SortFlags = false
	f.Usage = func() { fmt.Fprint(w, usage, f.FlagUsages()) }
	f.StringVar(&o.dir, "dir", "", "where the files of volumes are kept (required)")
	f.StringVar(&o.nodeID, "node-id", "node-1", "what the driver calls this node")
	o.AddFlags(f, " (required)")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if !filepath.IsAbs(o.dir) {
		return nil, fmt.Errorf("--dir %q: an absolute path is wanted", o.dir)
	}
	return o, nil
}

func (o *options) run(ctx context.Context) error {
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
