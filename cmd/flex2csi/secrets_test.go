package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/csidriver"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// canaryConfig has secrets from everywhere that they can come from.
const canaryConfig = `apiVersion: flex2csi.io/v1alpha1
kind: BridgeConfiguration
drivers:
- flexDriver: example.com/disk
  csiDriver: loop.csi.example.com
  endpoint: unix://DIR/csi.sock
  controllerEndpoint: unix://DIR/csi.sock
  secrets:
    controllerPublish: {file: DIR/secret.yaml}
    nodeStage: {fromFlexSecret: {password: password}}
    nodePublish: {fromFlexSecret: {password: password}}
`

// canaryOptions is a volume with secrets among its options.
func canaryOptions() string {
	return `{"volumeID":"vol-1","share":"//server/share","mountOptions":"noatime,password=canary-flag","accountKey":"canary-context",` +
		`"serviceTokens":"{\"aud\":{\"token\":\"canary-token\"}}","source":"https://me:canary-url@server/x",` +
		`"kubernetes.io/fsType":"ext4","kubernetes.io/readwrite":"rw","kubernetes.io/pvOrVolumeName":"pv1","kubernetes.io/pod.uid":"uid-1","kubernetes.io/pod.name":"web","kubernetes.io/pod.namespace":"shop",` +
		`"kubernetes.io/secret/password":"` + base64.StdEncoding.EncodeToString([]byte("canary-secret")) + `"}`
}

// gossip is a CSI driver that tells everybody all that it was told.
type gossip struct {
	mu    sync.Mutex
	heard strings.Builder
}

func (g *gossip) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	g.mu.Lock()
	fmt.Fprintf(&g.heard, "%v\n", req)
	g.mu.Unlock()
	switch filepath.Base(info.FullMethod) {
	case "ControllerPublishVolume":
		return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{"chapPassword": "canary-chap"}}, nil
	case "NodeStageVolume", "NodeUnstageVolume":
		return handler(ctx, req)
	case "NodePublishVolume": // no final answer, so that the record stays
		return nil, grpcstatus.Errorf(codes.DeadlineExceeded, "mount of %v hangs", req)
	}
	return handler(ctx, req)
}

func (g *gossip) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.heard.String()
}

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestNoSecretGetsOut: whatever a driver says, no secret is in a log at the
// highest level, an answer, a metric, a status or a state file.
func TestNoSecretGetsOut(t *testing.T) {
	testenv.Need(t, "root")
	dir, driver, log := startGossip(t), &gossip{}, &lockedBuffer{}
	runGossip(t, dir, driver)
	stop := startServe(t, dir, log)

	pod := filepath.Join(dir, "kubelet/pods/uid-1/volumes/example.com~disk/pv1")
	if err := os.MkdirAll(filepath.Dir(pod), 0o750); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	var ids []string
	for i, argv := range [][]string{
		{"mount", pod, canaryOptions()},
		{"attach", canaryOptions(), "node-1"},
		{"mount", pod, strings.Replace(canaryOptions(), `"rw"`, `{"a":"canary-json"}`, 1)},
		{"frobnicate", canaryOptions()},
		{"expandfs", canaryOptions(), "", pod, "2000", "1000"},
	} {
		r := wire.NewRequest("example.com/disk", argv, time.Minute)
		answer, err := wire.Call(t.Context(), filepath.Join(dir, "run/s"), r)
		if err != nil {
			t.Fatal(argv[0], err)
		}
		ids = append(ids, r.ID)
		got[fmt.Sprintf("the answer to %s (%d)", argv[0], i)] = fmt.Sprintf("%+v %s", answer, answer.Status.Encode())
		if i == 0 && (answer.Status.Status != flex.StatusFailure || !strings.Contains(answer.Status.Message, "[redacted]")) {
			t.Fatalf("mount answers %+v, want what the driver said, redacted", answer.Status)
		}
	}
	for _, secret := range []string{"canary-flag", "canary-context", "canary-token", "canary-url", "canary-secret", "canary-file", "canary-chap"} {
		if !strings.Contains(driver.String(), secret) {
			t.Errorf("the driver never heard of %s, so that nothing is proved", secret)
		}
	}
	got["metrics"] = metricsOf(t, log)
	statuses(t, dir, got)
	stateFiles(t, dir, got)
	stop()
	statuses(t, dir, got)
	got["log"] = log.String()
	for what, text := range got {
		if strings.Contains(text, "canary") {
			t.Errorf("%s has a secret:\n%s", what, text)
		}
	}
	for _, want := range append(ids, `"level":"DEBUG"`, "share: //server/share", `"method":"NodePublishVolume"`) {
		if !strings.Contains(got["log"], want) {
			t.Errorf("the log lacks %s", want)
		}
	}
	if !strings.Contains(got["metrics"], `csi_sidecar_operations_seconds_count{driver_name="loop.csi.example.com",grpc_status_code="DeadlineExceeded",method_name="/csi.v1.Node/NodePublishVolume"}`) {
		t.Error("the RPC is not measured")
	}
}

// startGossip lays out a node.
func startGossip(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "f2c") //nolint:usetesting // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for name, content := range map[string]string{
		"config.yaml": strings.ReplaceAll(canaryConfig, "DIR", dir),
		"secret.yaml": "key: canary-file\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func runGossip(t *testing.T, dir string, g *gossip) {
	t.Helper()
	d, err := csidriver.Listen(csidriver.Config{
		Name: "loop.csi.example.com", NodeID: "n1", Dir: filepath.Join(dir, "disks"), Endpoint: filepath.Join(dir, "csi.sock"), NoOp: true, Attach: true,
		Outer: []grpc.UnaryServerInterceptor{g.intercept},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the driver ended: %v", err)
		}
	})
}

// startServe runs the daemon in this process, at the highest verbosity.
func startServe(t *testing.T, dir string, log io.Writer) (stop func()) {
	t.Helper()
	env := environment{err: log}
	o := serveOptions{
		socket: filepath.Join(dir, "run/s"), stateDir: filepath.Join(dir, "state"), kubeletDir: filepath.Join(dir, "kubelet"), nodeName: "node-1",
		httpEndpoint: "127.0.0.1:0", verbosity: 9, bootIDFile: bridge.BootIDFile,
	}
	c, err := loadConfig(bridgeconfig.Loader{}, filepath.Join(dir, "config.yaml"), env)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- o.run(ctx, c, o.logger(env)) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serve ended: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// metricsOf finds the endpoint in the log.
func metricsOf(t *testing.T, log *lockedBuffer) string {
	t.Helper()
	address := regexp.MustCompile(`"address":"([^"]+)"`).FindStringSubmatch(log.String())
	if address == nil {
		t.Fatalf("the log does not tell the endpoint:\n%s", log)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if code, text := fetch(t, "http://"+address[1]+path); code != http.StatusOK {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	_, text := fetch(t, "http://"+address[1]+"/metrics")
	return text
}

func fetch(t *testing.T, url string) (int, string) {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(text)
}

// statuses adds what flex2csi status says in all forms.
func statuses(t *testing.T, dir string, got map[string]string) {
	t.Helper()
	for _, flags := range []string{"", "-o wide", "--by pod -o wide", "-o json", "-o yaml"} {
		var out, errs bytes.Buffer
		args := append([]string{"status", "--socket", filepath.Join(dir, "run/s"), "--state-dir", filepath.Join(dir, "state")}, strings.Fields(flags)...)
		if code := run(args, environment{out: &out, err: &errs}); code != 0 {
			t.Fatalf("status %s: %d: %s", flags, code, errs.String())
		}
		if !strings.Contains(out.String(), "pv1") {
			t.Errorf("status %s does not show the volume:\n%s", flags, out.String())
		}
		got[fmt.Sprintf("status %s (%d)", flags, len(got))] = out.String() + errs.String()
	}
}

func stateFiles(t *testing.T, dir string, got map[string]string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(filepath.Join(dir, "state"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		files++
		text, err := os.ReadFile(path)
		got["state file "+path] = string(text)
		return err
	})
	if err != nil || files == 0 {
		t.Fatalf("%d state files, %v", files, err)
	}
}
