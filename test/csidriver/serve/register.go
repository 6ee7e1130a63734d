package serve

import (
	"context"
	"errors"
	"path/filepath"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// registrar is what node-driver-registrar does for a driver.
type registrar struct {
	registration.UnimplementedRegistrationServer
	name, endpoint string
	refused        chan<- error
}

// RegistrationSocket is where a driver registers below a kubelet's directory.
func RegistrationSocket(kubeletDir, driver string) string {
	return filepath.Join(kubeletDir, "plugins_registry", driver+"-reg.sock")
}

// Register opens the socket at which a kubelet finds a driver.
func (s *Server) Register(kubeletDir, name, endpoint string) error {
	return s.Listen(RegistrationSocket(kubeletDir, name), func(g *grpc.Server) {
		registration.RegisterRegistrationServer(g, registrar{name: name, endpoint: endpoint, refused: s.refused})
	})
}

func (r registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: r.name, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"},
	}, nil
}

// NotifyRegistrationStatus ends the driver on bad news, as node-driver-registrar
// ends itself: only a kubelet may call this.
func (r registrar) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !s.GetPluginRegistered() {
		select {
		case r.refused <- errors.New("registration failed: " + s.GetError()):
		default:
		}
	}
	return &registration.RegistrationStatusResponse{}, nil
}
