// Package cli is the command line of the example CSI driver, for its main and
// for test binaries that want to be it.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/flex2csi/flex2csi/test/csidriver"
	"github.com/flex2csi/flex2csi/test/csidriver/serve"
)

type options struct {
	csidriver.Config
	serve     serve.Options
	volumes   []string
	expansion string
	verbose   bool
}

const usage = `csidriver is a small CSI driver with disk images on loop devices: an example for
tests and demonstrations, not a product. It runs until it is interrupted.

  csidriver --dir /tmp/disks --volume disk-1=256Mi

`

// Main runs a driver and returns the exit status. What it has to say goes to
// w.
func Main(args []string, w io.Writer) int {
	o := &options{serve: serve.Options{Name: "loop.csi.example.com"}}
	command := serve.Command{
		Name: "csidriver", Usage: usage, Flags: o.flags,
		Run: func(ctx context.Context) error { return o.run(ctx, w) },
	}
	return command.Main(args, w)
}

func (o *options) flags(f *pflag.FlagSet) {
	host, err := os.Hostname()
	if err != nil {
		host = "node"
	}
	f.StringVar(&o.Dir, "dir", "", "where volumes and state are kept (required)")
	o.serve.AddFlags(f, " (default unix://<dir>/csi.sock)")
	f.StringVar(&o.ControllerEndpoint, "controller-endpoint", "", "a socket of its own for the controller service")
	f.StringVar(&o.NodeID, "node-id", host, "what the driver calls this node")
	f.StringArrayVar(&o.KnownNodes, "known-node", nil, "another node that volumes may be attached to (repeatable)")
	f.StringArrayVar(&o.volumes, "volume", nil, "NAME=SIZE of a volume that is made unless it is there (repeatable)")
	f.BoolVar(&o.Attach, "attach", false, "want ControllerPublishVolume, and its publish_context on the node")
	f.Int64Var(&o.MaxVolumes, "max-volumes", 0, "how many volumes may be attached to a node; 0 is any number")
	f.BoolVar(&o.NoStage, "no-stage", false, "have no NodeStageVolume: NodePublishVolume mounts the disk")
	f.BoolVar(&o.MountGroup, "mount-group", false, "apply volume_mount_group (VOLUME_MOUNT_GROUP)")
	f.BoolVar(&o.OldModes, "old-modes", false, "do not know SINGLE_NODE_MULTI_WRITER")
	f.StringVar(&o.expansion, "expansion", string(csidriver.ExpandOnline), "online, offline or none")
	f.BoolVar(&o.Directories, "directories", false, "make volumes that are directories: cheap, and without limit")
	f.BoolVar(&o.NoOp, "noop", false, "answer without doing anything")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "tell what is done")
}

// complete checks the flags and fills in what depends on others.
func (o *options) complete() (err error) {
	if o.Dir == "" {
		return errors.New("where are the volumes to be kept? say --dir DIRECTORY")
	}
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return err
	}
	o.Name, o.Endpoint, o.RegisterDir = o.serve.Name, o.serve.Endpoint, o.serve.RegisterDir
	if o.Endpoint == "" {
		o.Endpoint = filepath.Join(o.Dir, "csi.sock")
	}
	o.Expansion = csidriver.Expansion(o.expansion)
	return nil
}

func (o *options) run(ctx context.Context, w io.Writer) error {
	if err := o.complete(); err != nil {
		return err
	}
	level := slog.LevelInfo
	if o.verbose {
		level = slog.LevelDebug
	}
	o.Log = slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
	klog.SetSlogLogger(o.Log) // what k8s.io/mount-utils says
	interceptors, err := o.serve.Interceptors()
	if err != nil {
		return err
	}
	defer interceptors.Close()
	o.Outer, o.Inner = interceptors.Outer, interceptors.Inner
	d, err := csidriver.Listen(o.Config)
	if err != nil {
		return err
	}
	for _, v := range o.volumes {
		if err := addVolume(ctx, d, v); err != nil {
			return err
		}
	}
	return d.Serve(ctx)
}

func addVolume(ctx context.Context, d *csidriver.Driver, v string) error {
	name, text, ok := strings.Cut(v, "=")
	if !ok {
		return fmt.Errorf("--volume %q: want NAME=SIZE, as in disk-1=256Mi", v)
	}
	size, err := csidriver.ParseSize(text)
	if err != nil {
		return fmt.Errorf("--volume %s: %w", name, err)
	}
	if err := d.AddVolume(ctx, name, size); err != nil {
		return fmt.Errorf("make volume %s: %w", name, err)
	}
	return nil
}
