package csidriver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// A Driver is a CSI driver whose sockets are open.
type Driver struct {
	Config
	store   store
	mounter mounter.Mounter
	servers []*server
	// refused gets what makes a registered driver give up.
	refused chan error
}

type server struct {
	listener net.Listener
	grpc     *grpc.Server
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
	d := &Driver{Config: config, store: store{dir: dir}, mounter: mounter.Mounter{Log: config.Log}, refused: make(chan error, 1)}
	if err := d.store.prepare(append([]string{d.NodeID}, d.KnownNodes...)); err != nil {
		return nil, err
	}
	if err := d.open(); err != nil {
		d.close()
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
		err = d.openRegistration()
	}
	return err
}

func (d *Driver) listen(path string, register func(*grpc.Server)) error {
	l, err := listenAt(path)
	if err != nil {
		return err
	}
	interceptors := append([]grpc.UnaryServerInterceptor{}, d.Outer...)
	if !d.NoOp {
		interceptors = append(interceptors, d.store.locked)
	}
	interceptors = append(interceptors, d.Inner...)
	if d.NoOp {
		interceptors = append(interceptors, answerNothing)
	}
	s := grpc.NewServer(grpc.ChainUnaryInterceptor(interceptors...))
	csi.RegisterIdentityServer(s, identity{Config: &d.Config})
	register(s)
	d.servers = append(d.servers, &server{listener: l, grpc: s})
	return nil
}

// socketPath takes an endpoint apart: unix:///path, unix:/path or a path.
func socketPath(endpoint string) (string, error) {
	path := strings.TrimPrefix(strings.TrimPrefix(endpoint, "unix:"), "//")
	if endpoint == "" || filepath.IsAbs(path) {
		return path, nil
	}
	return "", fmt.Errorf("endpoint %q: want unix:///path", endpoint)
}

// listenAt replaces a socket that a killed driver left behind, but not one at
// which somebody answers.
func listenAt(path string) (net.Listener, error) {
	if isAnswered(path) {
		return nil, fmt.Errorf("socket %s: another driver listens there", path)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == os.ModeSocket {
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove the socket of a driver that is gone: %w", err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, fmt.Errorf("make a place for the socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o700); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// lastBreath is how long children of a driver that was killed may have its
// sockets: those that were being started, until they are something else.
const lastBreath = time.Second

func isAnswered(path string) bool {
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.DialTimeout("unix", path, time.Second)
		if err != nil {
			return false
		}
		conn.Close()
		if time.Since(start) > lastBreath {
			return true
		}
	}
}

func (d *Driver) close() {
	for _, s := range d.servers {
		s.listener.Close()
	}
}

// stopWait is how long calls may take to finish when the driver is to stop.
const stopWait = 5 * time.Second

// Serve answers until ctx ends, then finishes what it is at.
func (d *Driver) Serve(ctx context.Context) error {
	failed := make(chan error, len(d.servers))
	for _, s := range d.servers {
		go func() { failed <- s.grpc.Serve(s.listener) }()
	}
	d.Log.Info("serving", "driver", d.Name, "node", d.NodeID, "endpoint", d.Endpoint)
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	case err = <-d.refused:
	}
	stopped := make(chan struct{})
	go func() {
		for _, s := range d.servers {
			s.grpc.GracefulStop()
		}
		close(stopped)
	}()
	select {
	case <-stopped:
	case <-time.After(stopWait):
		for _, s := range d.servers {
			s.grpc.Stop()
		}
	}
	if errors.Is(err, grpc.ErrServerStopped) {
		err = nil
	}
	return err
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
