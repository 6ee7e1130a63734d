package csiclient

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Registered finds the socket of a driver that has registered with the
// kubelet, by asking all registration sockets below <kubelet dir>/plugins_registry
// for their names. NotifyRegistrationStatus is the kubelet's to call: a
// registrar that hears a false one exits.
func Registered(kubeletDir, driver string) Endpoint {
	root := filepath.Join(kubeletDir, "plugins_registry")
	return func(ctx context.Context) (string, error) {
		for _, socket := range registrationSockets(root) {
			info, err := askRegistrar(ctx, socket)
			if err != nil || info.GetType() != registration.CSIPlugin || info.GetName() != driver {
				continue // left over by a registrar that is gone, or another driver
			}
			if endpoint := info.GetEndpoint(); endpoint != "" {
				return endpoint, nil
			}
			return socket, nil // the registrar is the driver
		}
		return "", fmt.Errorf("no driver of this name is registered below %s", root)
	}
}

// registrationSockets walks as the kubelet does: all levels, no dot-files
// (pkg/kubelet/pluginmanager/pluginwatcher).
func registrationSockets(root string) (sockets []string) {
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil
		case strings.HasPrefix(d.Name(), ".") && d.IsDir():
			return filepath.SkipDir
		case d.Type() == fs.ModeSocket && !strings.HasPrefix(d.Name(), "."):
			sockets = append(sockets, path)
		}
		return nil
	})
	return sockets
}

func askRegistrar(ctx context.Context, socket string) (*registration.PluginInfo, error) {
	if !socketExists(socket) {
		return nil, fs.ErrNotExist
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return registration.NewRegistrationClient(conn).GetInfo(ctx, &registration.InfoRequest{})
}
