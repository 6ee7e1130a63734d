// Package bridgetest runs the daemon as a process of its own and leads a volume
// through its life by it, call by call, as flexdriver would: for tests of CSI
// drivers that are processes as well.
package bridgetest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/daemon"
	"github.com/flex2csi/flex2csi/test/testenv"
)

const (
	// FlexDriver is the driver name that the kubelet would call.
	FlexDriver = "example.com/disk"
	// envBinary names the daemon under test. Without it one is built.
	envBinary = "FLEX2CSI_BINARY"
	nodeName  = "node-1"
)

// Bridge is a node with the daemon on it.
type Bridge struct {
	*testenv.KubeletDir
	t *testing.T
	// dir is short: the path of a socket has at most 107 bytes.
	dir    string
	binary string
	daemon *daemon.Daemon
	// Flags are further ones of the daemon.
	Flags []string
	// started counts the processes.
	started int
}

// New returns a node on which nothing runs yet.
func New(t *testing.T) *Bridge {
	t.Helper()
	dir, err := os.MkdirTemp("", "bridge") //nolint:usetesting // t.TempDir has a long name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	testenv.LeakCheck(t, dir)
	b := &Bridge{KubeletDir: testenv.Kubelet(t), t: t, dir: dir, binary: os.Getenv(envBinary)}
	if b.binary == "" {
		b.binary = b.build()
	}
	forgetResult()
	return b
}

// forgetResult keeps go test from showing this result again after the daemon
// has changed, of which it knows nothing: without its log of files it has none
// to compare (cmd/go/internal/test, saveOutput).
func forgetResult() {
	for _, arg := range os.Args {
		if log, ok := strings.CutPrefix(arg, "-test.testlogfile="); ok {
			_ = os.Remove(log) // absent is what we want
		}
	}
}

// build makes a daemon, from the module that this one is part of or names.
func (b *Bridge) build() string {
	b.t.Helper()
	binary := b.Path("flex2csi")
	cmd := exec.Command("go", "build", "-o", binary, "github.com/flex2csi/flex2csi/cmd/flex2csi")
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/flex2csi/flex2csi").Output()
	if err != nil {
		b.t.Fatalf("find the daemon's module: %v", err)
	}
	cmd.Dir = strings.TrimSpace(string(module))
	if out, err := cmd.CombinedOutput(); err != nil {
		b.t.Fatalf("build the daemon: %v\n%s", err, out)
	}
	return binary
}

// Path is a place for a file of the test, short enough for a socket.
func (b *Bridge) Path(name string) string { return filepath.Join(b.dir, name) }

// Endpoint is the socket of the CSI driver.
func (b *Bridge) Endpoint() string { return "unix://" + b.Path("csi.sock") }

// Serve starts the daemon for a CSI driver at Endpoint. What is in more is
// added to the driver's configuration, as lines of YAML.
func (b *Bridge) Serve(csiDriver string, more ...string) *daemon.Process {
	b.t.Helper()
	b.daemon = &daemon.Daemon{
		Dir: b.dir, KubeletDir: b.Root, NodeName: nodeName,
		Drivers: []daemon.Driver{{FlexDriver: FlexDriver, CSIDriver: csiDriver, Endpoint: b.Path("csi.sock"), More: more}},
	}
	if err := b.daemon.Configure(); err != nil {
		b.t.Fatal(err)
	}
	return b.Start(exec.Command(b.binary, b.daemon.Args(b.Flags...)...))
}

// Start starts a process that ends with the test, and shows what it said if
// the test fails.
func (b *Bridge) Start(cmd *exec.Cmd) *daemon.Process {
	b.t.Helper()
	b.started++
	p, err := daemon.Start(cmd, b.Path(fmt.Sprintf("log-%d", b.started)), "")
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := p.End(syscall.SIGTERM); err != nil {
			b.t.Log(err) // not all CSI drivers end well
		}
		if b.t.Failed() {
			b.t.Logf("%s said:\n%s", filepath.Base(cmd.Path), p.Said(20_000))
		}
	})
	return p
}

// Call makes a callout and returns the answer.
func (b *Bridge) Call(args ...string) flex.DriverStatus {
	b.t.Helper()
	status, err := b.daemon.Call(context.Background(), FlexDriver, daemon.Patience, args...)
	if err != nil {
		b.t.Fatal(err)
	}
	return status
}

// Send makes a callout once and does not wait for the answer.
func (b *Bridge) Send(args ...string) {
	go func() {
		_, _ = wire.CallNow(context.Background(), b.daemon.Socket(), wire.NewRequest(FlexDriver, args, daemon.Patience))
	}()
}

// Must makes a callout that has to succeed.
func (b *Bridge) Must(args ...string) flex.DriverStatus {
	b.t.Helper()
	status := b.Call(args...)
	if status.Status != flex.StatusSuccess {
		b.t.Fatalf("%s answered %s: %s", args[0], status.Status, status.Message)
	}
	return status
}
