// Mock is the mock CSI driver of Kubernetes' own end-to-end tests, in which
// every capability can be switched. It mounts nothing by itself; here what it
// publishes is an empty directory of the node, bound to itself, so that something
// can be seen.
package main

import (
	"context"
	"io"
	"os"
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
	o := &options{Options: serve.Options{Name: "mock.csi.example.com"}, attach: true}
	return serve.Command{Name: "mock", Usage: usage, Flags: o.flags, Run: o.run}.Main(args, w)
}

type options struct {
	serve.Options
	attach bool
	config service.Config
}

func (o *options) run(ctx context.Context) error {
	o.config.DriverName, o.config.DisableAttach = o.Name, !o.attach
	s := service.New(o.config)
	return serve.Run(ctx, &o.Options, func(g *grpc.Server) {
		csi.RegisterIdentityServer(g, s)
		csi.RegisterControllerServer(g, s)
		csi.RegisterNodeServer(g, node{s})
	})
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

func (o *options) flags(f *pflag.FlagSet) {
	o.AddFlags(f, " (required)")
	f.BoolVar(&o.attach, "attach", o.attach, "want ControllerPublishVolume, and its publish_context on the node")
	f.Int64Var(&o.config.AttachLimit, "max-volumes", 0, "how many volumes may be attached to a node; 0 is any number")
	f.BoolVar(&o.config.NodeExpansionRequired, "node-expansion", false, "want NodeExpandVolume")
	f.BoolVar(&o.config.DisableControllerExpansion, "no-controller-expansion", false, "have no ControllerExpandVolume")
	f.BoolVar(&o.config.VolumeMountGroupRequired, "mount-group", false, "have VOLUME_MOUNT_GROUP")
	f.BoolVar(&o.config.PermissiveTargetPath, "permissive", false, "accept a target path that is there already")
}
