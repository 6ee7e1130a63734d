package csiclient_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/flex2csi/flex2csi/internal/csiclient"
)

// fakeRegistrar is a driver's registration service. Only a kubelet may call
// NotifyRegistrationStatus.
type fakeRegistrar struct {
	registration.UnimplementedRegistrationServer
	t    *testing.T
	info *registration.PluginInfo
}

func (r fakeRegistrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return r.info, nil
}

func (r fakeRegistrar) NotifyRegistrationStatus(context.Context, *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	r.t.Error("NotifyRegistrationStatus was called")
	return &registration.RegistrationStatusResponse{}, nil
}

// listen opens a socket below plugins_registry.
func (p *place) listen(name string) net.Listener {
	p.t.Helper()
	path := p.path("plugins_registry/" + name)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		p.t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { l.Close() })
	return l
}

func (p *place) register(socket, kind, driver, endpoint string) (stop func()) {
	p.t.Helper()
	s := grpc.NewServer()
	registration.RegisterRegistrationServer(s, fakeRegistrar{t: p.t, info: &registration.PluginInfo{Type: kind, Name: driver, Endpoint: endpoint, SupportedVersions: []string{"1.0.0"}}})
	l := p.listen(socket)
	go func() { _ = s.Serve(l) }()
	p.t.Cleanup(s.Stop)
	return s.Stop
}

func (p *place) alive(name string) string {
	p.t.Helper()
	l, err := net.Listen("unix", p.path(name))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { l.Close() })
	return p.path(name)
}

func TestRegistered(t *testing.T) {
	const csiPlugin = registration.CSIPlugin
	for name, tt := range map[string]struct {
		set  func(*place)
		want string // below the place; "" is an error
	}{
		"nothing": {func(*place) {}, ""},
		"one":     {func(p *place) { p.register("a-reg.sock", csiPlugin, driverName, p.alive("csi.sock")) }, "csi.sock"},
		"deep, among others": {func(p *place) {
			p.register("device.sock", registration.DevicePlugin, driverName, p.alive("gpu.sock"))
			p.register("other.sock", csiPlugin, "other.example.com", p.alive("other.sock"))
			p.register("a/b/c.sock", csiPlugin, driverName, p.alive("csi.sock"))
		}, "csi.sock"},
		"hidden": {func(p *place) {
			p.register(".hidden.sock", csiPlugin, driverName, p.alive("csi.sock"))
			p.register(".dir/a.sock", csiPlugin, driverName, p.path("csi.sock"))
		}, ""},
		"the registrar is the driver": {func(p *place) { p.register("a-reg.sock", csiPlugin, driverName, "") }, "plugins_registry/a-reg.sock"},
		"with a scheme":               {func(p *place) { p.register("a-reg.sock", csiPlugin, driverName, "unix://"+p.alive("csi.sock")) }, "csi.sock"},
		"dead and hung ones": {func(p *place) {
			for _, name := range []string{"0.sock", "1.sock", "z.sock"} {
				dead := p.listen(name).(*net.UnixListener)
				dead.SetUnlinkOnClose(false)
				dead.Close()
			}
			for _, name := range []string{"hung-1.sock", "hung-2.sock", "hung-3.sock", "hung-4.sock"} {
				p.listen(name) // no process accepts
			}
			if err := os.WriteFile(p.path("plugins_registry/file.sock"), nil, 0o600); err != nil {
				p.t.Fatal(err)
			}
			p.register("real-reg.sock", csiPlugin, driverName, p.alive("csi.sock"))
		}, "csi.sock"},
		"two, one of which listens": {func(p *place) {
			p.register("old-reg.sock", csiPlugin, driverName, p.alive("old.sock"))
			time.Sleep(10 * time.Millisecond)
			p.register("new-reg.sock", csiPlugin, driverName, p.path("not-yet.sock"))
		}, "old.sock"},
		"two, both listening": {func(p *place) {
			p.register("a-reg.sock", csiPlugin, driverName, p.alive("old.sock"))
			time.Sleep(10 * time.Millisecond)
			p.register("b-reg.sock", csiPlugin, driverName, p.alive("new.sock"))
		}, "new.sock"},
		"registered, and not listening": {func(p *place) { p.register("a-reg.sock", csiPlugin, driverName, p.path("not-yet.sock")) }, "not-yet.sock"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			tt.set(p)
			start := time.Now()
			got, err := csiclient.Registered(p.dir, driverName)(t.Context())
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("it took %v", took)
			}
			if tt.want == "" {
				if err == nil || !strings.Contains(err.Error(), "no driver of this name is registered below "+p.dir) {
					t.Errorf("got %q, %v", got, err)
				}
				return
			}
			if err != nil || got != p.path(tt.want) {
				t.Errorf("got %q, %v; want %q", got, err, p.path(tt.want))
			}
		})
	}
}

// TestMove: a driver that comes back elsewhere is found there.
func TestMove(t *testing.T) {
	p := newPlace(t)
	client := p.client()
	client.Node = csiclient.Registered(p.dir, driverName)
	config := p.config()
	config.RegisterDir = p.dir
	stop := p.start(config)
	if _, err := client.Features(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop()
	config.Endpoint = p.path("elsewhere.sock")
	p.start(config)
	if err := client.NodeUnpublish(t.Context(), "v1", "/target"); err != nil {
		t.Error(err)
	}
}
