// Mock is the mock CSI driver of Kubernetes' own end-to-end tests, in which
// every capability can be switched. It mounts nothing; here what it publishes is
// an empty directory of the node, so that something can be seen.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/mock/service"

	"github.com/flex2csi/flex2csi/test/csidriver/serve"
)

func main() { os.Exit(run(os.Args[1:], os.Stderr)) }

// run returns the exit status. What it has to say goes to w.
func run(args []string, w io.Writer) int {
	options, config, err := parse(args, w)
	if errors.Is(err, pflag.ErrHelp) {
		return 0
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		s := service.New(*config)
		err = serve.Run(ctx, options, func(g *grpc.Server) {
			csi.RegisterIdentityServer(g, s)
			csi.RegisterControllerServer(g, s)
			csi.RegisterNodeServer(g, node{s})
		})
	}
	if err != nil {
		fmt.Fprintln(w, "mock:", err)
		return 1
	}
	return 0
}

// node makes targets mount points.
type node struct{ csi.NodeServer }

func (n node) NodePublishVolume(ctx context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	answer, err := n.NodeServer.NodePublishVolume(ctx, r)
	if target := r.GetTargetPath(); err == nil && !isMountPoint(target) {
		if err := syscall.Mount(target, target, "", syscall.MS_BIND, ""); err != nil {
			return nil, status.Errorf(codes.Internal, "bind %s: %v", target, err)
		}
	}
	return answer, err
}

func (n node) NodeUnpublishVolume(ctx context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if target := r.GetTargetPath(); isMountPoint(target) {
		if err := syscall.Unmount(target, 0); err != nil {
			return nil, status.Errorf(codes.Internal, "unmount %s: %v", target, err)
		}
	}
	return n.NodeServer.NodeUnpublishVolume(ctx, r)
}

func isMountPoint(path string) bool {
	table, err := os.ReadFile("/proc/self/mountinfo")
	return err == nil && strings.Contains(string(table), " "+path+" ")
}

const usage = `mock is the mock CSI driver of Kubernetes' end-to-end tests. It has the volumes
1, 2 and 3, which are empty directories, and runs until it is interrupted.

  mock --endpoint unix:///tmp/mock.sock

`

func parse(args []string, w io.Writer) (*serve.Options, *service.Config, error) {
	o := &serve.Options{Name: "mock.csi.example.com"}
	c := &service.Config{}
	attach := true
	f := pflag.NewFlagSet("mock", pflag.ContinueOnError)
	f.SetOutput(w)
	f.SortFlags = false
	f.Usage = func() { fmt.Fprint(w, usage, f.FlagUsages()) }
	o.AddFlags(f, " (required)")
	f.BoolVar(&attach, "attach", true, "want ControllerPublishVolume, and its publish_context on the node")
	f.Int64Var(&c.AttachLimit, "max-volumes", 0, "how many volumes may be attached to a node; 0 is any number")
	f.BoolVar(&c.NodeExpansionRequired, "node-expansion", false, "want NodeExpandVolume")
	f.BoolVar(&c.DisableControllerExpansion, "no-controller-expansion", false, "have no ControllerExpandVolume")
	f.BoolVar(&c.VolumeMountGroupRequired, "mount-group", false, "have VOLUME_MOUNT_GROUP")
	f.BoolVar(&c.PermissiveTargetPath, "permissive", false, "accept a target path that is there already")
	if err := f.Parse(args); err != nil {
		return nil, nil, err
	}
	if f.NArg() > 0 {
		return nil, nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	c.DriverName, c.DisableAttach = o.Name, !attach
	return o, c, nil
}
