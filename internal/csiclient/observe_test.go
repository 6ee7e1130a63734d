package csiclient_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flex2csi/flex2csi/internal/csiclient"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volumelog"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/csidriver"
)

// observed notes what an Observer is told.
type observed struct {
	mu    sync.Mutex
	calls []string
}

func (o *observed) ObserveRPC(driver, method, code string, took time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls = append(o.calls, fmt.Sprintf("%s %s %s %t", driver, method, code, took > 0))
}

func (o *observed) has(call string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Contains(o.calls, call)
}

// echo fails every NodePublishVolume and gives away all that it was told.
func echo(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if strings.HasSuffix(info.FullMethod, "/NodePublishVolume") {
		return nil, status.Errorf(codes.PermissionDenied, "mount error: %v", req)
	}
	return handler(ctx, req)
}

// canary is a volume with a secret everywhere that one can be.
func canary() csivol.PublishRequest {
	return csivol.PublishRequest{
		Handle: "v1", TargetPath: "/target", PublishContext: map[string]string{"chapPassword": "canary-attach"},
		Capability: csivol.Capability{AccessMode: csivol.ReadWriteOnce, MountFlags: []string{"noatime", "password=canary-flag"}},
		Secrets:    map[string]flex.Secret{"user": flex.NewSecret([]byte("canary-secret"))},
		Context:    map[string]string{"share": "//server/share", "csi.storage.k8s.io/serviceAccount.tokens": "canary-token", "accountKey": "canary-context"},
	}
}

// TestNoSecretComesBack: neither in what a driver says nor in the log.
func TestNoSecretComesBack(t *testing.T) {
	p := newPlace(t)
	config := p.config()
	config.Outer = []grpc.UnaryServerInterceptor{echo}
	p.start(config)
	c := p.client()
	var log bytes.Buffer
	c.Log = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))

	err := rpcError(t, c.NodePublish(volumelog.With(t.Context(), volumelog.Subject{Request: "r1"}), canary()))
	if err.Code != flex.CodePermissionDenied || !strings.Contains(err.Message, "mount error") || !strings.Contains(err.Message, "[redacted]") {
		t.Errorf("got %v, want what the driver said without the secrets", err)
	}
	for what, text := range map[string]string{"the error": err.Error(), "the log": log.String()} {
		if strings.Contains(text, "canary") {
			t.Errorf("%s has a secret:\n%s", what, text)
		}
	}
	for _, want := range []string{`"level":"WARN"`, `"volumeHandle":"v1"`, `"code":"PermissionDenied"`, "password=[redacted]", "share: //server/share"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%s is not in the log:\n%s", want, log.String())
		}
	}
	for line := range strings.Lines(log.String()) {
		if !strings.Contains(line, `"request":"r1"`) {
			t.Errorf("no request: %s", line)
		}
	}
}

// TestLevels: info tells what changes volumes, and nothing else.
func TestLevels(t *testing.T) {
	p := newPlace(t)
	p.start(p.config())
	c := p.client()
	var log bytes.Buffer
	c.Log = slog.New(slog.NewJSONHandler(&log, nil))
	if _, err := c.NodeStats(t.Context(), "v1", "/target", ""); err == nil {
		t.Error("the driver tells of what is not there")
	}
	if err := c.NodeUnpublish(t.Context(), "v1", "/target"); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(log.String(), "\n"); got != 1 || !strings.Contains(log.String(), `"method":"NodeUnpublishVolume"`) {
		t.Errorf("want one line about NodeUnpublishVolume:\n%s", log.String())
	}
}

func TestObserver(t *testing.T) {
	p := newPlace(t)
	config := p.config()
	config.Outer = []grpc.UnaryServerInterceptor{echo}
	p.start(config)
	c, o := p.client(), &observed{}
	c.Observer = o
	if err := c.NodeUnpublish(t.Context(), "v1", "/target"); err != nil {
		t.Fatal(err)
	}
	_ = rpcError(t, c.NodePublish(t.Context(), canary()))
	for _, want := range []string{
		driverName + " /csi.v1.Identity/GetPluginInfo OK true",
		driverName + " /csi.v1.Node/NodeUnpublishVolume OK true",
		driverName + " /csi.v1.Node/NodePublishVolume PermissionDenied true",
	} {
		if !o.has(want) {
			t.Errorf("%s was not observed, only %q", want, o.calls)
		}
	}
}

// TestConnections: who looks sees whether a driver is there, and which.
func TestConnections(t *testing.T) {
	p := newPlace(t)
	config := p.config()
	config.Version = "1.2.3"
	stop := p.start(config)
	c := p.client()
	c.Controller = csiclient.Fixed(p.path("none.sock"))
	if all := c.Connections(); len(all) != 2 || all[0] != (csivol.Connection{Service: "node"}) || all[1] != (csivol.Connection{Service: "controller"}) {
		t.Errorf("before the first call: %+v", all)
	}
	call := func() {
		t.Helper()
		if err := c.NodeUnpublish(t.Context(), "v1", "/target"); err != nil {
			t.Fatal(err)
		}
	}
	call()
	if got := c.Connections()[0]; !got.Connected || got.Version != "1.2.3" || got.Made != 1 || got.Since.IsZero() || got.LastError != "" {
		t.Errorf("connected: %+v", got)
	}
	stop()
	if got := c.Connections()[0]; got.Connected || got.Version != "1.2.3" || got.Made != 1 {
		t.Errorf("the driver has ended: %+v", got)
	}
	_ = rpcError(t, c.NodeUnpublish(t.Context(), "v1", "/target"))
	if got := c.Connections()[0]; got.Connected || got.LastError == "" {
		t.Errorf("no process listens: %+v", got)
	}
	p.start(csidriver.Config{Name: "another", NodeID: "node-1", Dir: p.path("disks2"), Endpoint: p.socket(), NoOp: true})
	_ = rpcError(t, c.NodeUnpublish(t.Context(), "v1", "/target"))
	if got := c.Connections()[0]; !got.Connected || !strings.Contains(got.LastError, `"another"`) {
		t.Errorf("another driver listens: %+v", got)
	}
}

// TestConnectionsReconnect counts.
func TestConnectionsReconnect(t *testing.T) {
	p := newPlace(t)
	c := p.client()
	for i := range 3 {
		stop := p.start(p.config())
		if err := c.NodeUnpublish(t.Context(), "v1", "/target"); err != nil {
			t.Fatal(err)
		}
		if got := c.Connections()[0].Made; got != i+1 {
			t.Errorf("%d connections made, want %d", got, i+1)
		}
		stop()
	}
}
