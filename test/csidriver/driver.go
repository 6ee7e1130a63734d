package csidriver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/flex2csi/flex2csi/pkg/mounter"
	"github.com/flex2csi/flex2csi/test/csidriver/serve"
)

// A Driver is a CSI driver with open sockets.
type Driver struct {
	Config
	store   store
	mounter mounter.Mounter
	server  *serve.Server
}

// Listen prepares the directory and opens the sockets. Serve answers at them.
func Listen(config Config) (*Driver, error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(config.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the driver's directory: %w", err)
	}
	// Loop devices tell the path of their image without symbolic links.
	dir, err := filepath.EvalSymlinks(config.Dir)
	if err != nil {
		return nil, err
	}
	config.Dir = dir
	d := &Driver{Config: config, store: store{dir: dir}, mounter: mounter.Mounter{Log: config.Log}, server: serve.NewServer()}
	if err := d.store.prepare(append([]string{d.NodeID}, d.KnownNodes...)); err != nil {
		return nil, err
	}
	if err := d.open(); err != nil {
		d.server.Close()
		return nil, err
	}
	return d, nil
}

func (d *Driver) open() error {
	both := d.ControllerEndpoint == ""
	err := d.listen(d.Endpoint, func(s *grpc.Server) {
		csi.RegisterNodeServer(s, node{Driver: d})
		if both {
			csi.RegisterControllerServer(s, controller{Driver: d})
		}
	})
	if err == nil && !both {
		err = d.listen(d.ControllerEndpoint, func(s *grpc.Server) {
			csi.RegisterControllerServer(s, controller{Driver: d})
		})
	}
	if err == nil && d.RegisterDir != "" {
		err = d.server.Register(d.RegisterDir, d.Name, d.Endpoint)
	}
	return err
}

func (d *Driver) listen(path string, register func(*grpc.Server)) error {
	interceptors := append([]grpc.UnaryServerInterceptor{}, d.Outer...)
	if !d.NoOp {
		interceptors = append(interceptors, d.store.locked)
	}
	interceptors = append(interceptors, d.Inner...)
	if d.NoOp {
		interceptors = append(interceptors, answerNothing)
	}
	return d.server.Listen(path, func(s *grpc.Server) {
		csi.RegisterIdentityServer(s, identity{Config: &d.Config})
		register(s)
	}, interceptors...)
}

// Serve answers until ctx ends, then finishes what it is at.
func (d *Driver) Serve(ctx context.Context) error {
	d.Log.Info("serving", "driver", d.Name, "node", d.NodeID, "endpoint", d.Endpoint)
	return d.server.Serve(ctx)
}

// AddVolume makes a volume unless it is there, as CreateVolume would.
func (d *Driver) AddVolume(ctx context.Context, name string, size int64) error {
	unlock, err := lockVolume(d.store, volumeID(name))
	if err != nil {
		return err
	}
	defer unlock()
	_, err = controller{Driver: d}.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name:          name,
		CapacityRange: &csi.CapacityRange{RequiredBytes: size},
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		}},
	})
	return err
}
