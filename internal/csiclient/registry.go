package csiclient

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// askWait bounds GetInfo of a registrar, as in the kubelet
// (pkg/kubelet/pluginmanager/operationexecutor/operation_generator.go).
const askWait = time.Second

// registryDir has the sockets of registrars, below the kubelet's directory.
const registryDir = "plugins_registry"

// Registered finds the socket of a driver that has registered with the kubelet: it calls
// GetInfo at all sockets below <kubelet dir>/plugins_registry. Only the kubelet may call
// NotifyRegistrationStatus: a registrar exits after a failed registration.
//
// While a driver is replaced there may be two. Then it is the one that listens, or else
// the newer one.
func Registered(kubeletDir, driver string) Endpoint {
	root := filepath.Join(kubeletDir, registryDir)
	return func(ctx context.Context) (string, error) {
		endpoints := askAll(ctx, registrationSockets(root), driver)
		for _, endpoint := range endpoints {
			if conn, err := dial(ctx, endpoint); err == nil {
				conn.Close()
				return endpoint, nil
			}
		}
		if len(endpoints) > 0 {
			return endpoints[0], nil // so that a message can name it
		}
		return "", fmt.Errorf("no driver of this name is registered below %s", root)
	}
}

// registrationSockets returns the sockets as the kubelet finds them: on all levels, no
// dot-files (pkg/kubelet/pluginmanager/pluginwatcher). It skips what it cannot read. The
// newest come first.
func registrationSockets(root string) []string {
	type socket struct {
		path string
		made time.Time
	}
	var sockets []socket
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil //nolint:nilerr // go on with the rest
		case strings.HasPrefix(d.Name(), ".") && d.IsDir():
			return filepath.SkipDir
		case d.Type() == fs.ModeSocket && !strings.HasPrefix(d.Name(), "."):
			if info, err := d.Info(); err == nil {
				sockets = append(sockets, socket{path, info.ModTime()})
			}
		}
		return nil
	})
	slices.SortStableFunc(sockets, func(a, b socket) int { return b.made.Compare(a.made) })
	paths := make([]string, len(sockets))
	for i, s := range sockets {
		paths[i] = s.path
	}
	return paths
}

// askAll asks all registrars concurrently, since any may hang, and returns the endpoints
// of the driver in the order of sockets.
func askAll(ctx context.Context, sockets []string, driver string) []string {
	endpoints := make([]string, len(sockets))
	var asked sync.WaitGroup
	for i, socket := range sockets {
		asked.Go(func() {
			info, err := askRegistrar(ctx, socket)
			switch {
			case err != nil || info.GetType() != registration.CSIPlugin || info.GetName() != driver:
				// Left over by a dead registrar, or of another driver.
			default:
				endpoints[i] = endpointOf(info, socket)
			}
		})
	}
	asked.Wait()
	return slices.DeleteFunc(endpoints, func(e string) bool { return e == "" })
}

func askRegistrar(ctx context.Context, socket string) (*registration.PluginInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	l, err := newLink(ctx, socket)
	if err != nil {
		return nil, err
	}
	defer l.conn.Close()
	return registration.NewRegistrationClient(l.conn).GetInfo(ctx, &registration.InfoRequest{})
}

// A Registrar is a socket below plugins_registry.
type Registrar struct {
	Socket string
	// Driver is its CSI driver; empty for plugins of another kind.
	Driver string
	// Endpoint is the driver's socket.
	Endpoint string
	// Err is the error of GetInfo.
	Err error
}

// Registrars asks all registrars.
func Registrars(ctx context.Context, kubeletDir string) []Registrar {
	sockets := registrationSockets(filepath.Join(kubeletDir, registryDir))
	all := make([]Registrar, len(sockets))
	var asked sync.WaitGroup
	for i, socket := range sockets {
		asked.Go(func() {
			r := Registrar{Socket: socket}
			var info *registration.PluginInfo
			if info, r.Err = askRegistrar(ctx, socket); info.GetType() == registration.CSIPlugin {
				r.Driver, r.Endpoint = info.GetName(), endpointOf(info, socket)
			}
			all[i] = r
		})
	}
	asked.Wait()
	return all
}

// endpointOf returns the driver's socket. A registrar without an endpoint is the driver itself.
func endpointOf(info *registration.PluginInfo, socket string) string {
	if info.GetEndpoint() == "" {
		return socket
	}
	return socketPath(info.GetEndpoint())
}
