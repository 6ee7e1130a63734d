package csiclient_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"google.golang.org/grpc"

	"github.com/flex2csi/flex2csi/internal/csiclient"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/test/csidriver"
	"github.com/flex2csi/flex2csi/test/csidriver/calls"
	"github.com/flex2csi/flex2csi/test/csidriver/cli"
)

// envMain makes the test binary a CSI driver.
const envMain = "CSICLIENT_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(envMain) != "" {
		os.Exit(cli.Main(os.Args[1:], os.Stderr))
	}
	os.Exit(m.Run())
}

const driverName = "loop.csi.example.com"

// place is where a driver is, one after the other.
type place struct {
	t   *testing.T
	dir string
}

// newPlace has a short name: the path of a socket has at most 107 bytes.
func newPlace(t *testing.T) *place {
	t.Helper()
	dir, err := os.MkdirTemp("", "csi") //nolint:usetesting // t.TempDir has a long name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &place{t, dir}
}

func (p *place) path(name string) string { return filepath.Join(p.dir, name) }
func (p *place) socket() string          { return p.path("csi.sock") }

// config is a driver that does nothing, well.
func (p *place) config() csidriver.Config {
	return csidriver.Config{Name: driverName, NodeID: "node-1", Dir: p.path("disks"), Endpoint: p.socket(), NoOp: true}
}

// start runs a driver in this process until stop is called or the test ends.
// Each call goes to the log "calls".
func (p *place) start(c csidriver.Config) (stop func()) {
	p.t.Helper()
	log, err := calls.Open(p.path("calls"))
	if err != nil {
		p.t.Fatal(err)
	}
	c.Outer = append([]grpc.UnaryServerInterceptor{log.Answers}, c.Outer...)
	d, err := csidriver.Listen(c)
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Serve(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			p.t.Errorf("the driver ended: %v", err)
		}
		log.Close()
	}
	p.t.Cleanup(stop)
	return stop
}

// startProcess runs a driver that can be killed.
func (p *place) startProcess(args ...string) *exec.Cmd {
	p.t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"--noop", "--dir", p.path("disks"), "--endpoint", p.socket(), "--node-id", "node-1", "--faults", p.path("faults")}, args...)...)
	cmd.Env = append(os.Environ(), envMain+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may be gone
		_ = cmd.Wait()
	})
	return cmd
}

// client finds the node service at the place's socket.
func (p *place) client() *csiclient.Client {
	c := &csiclient.Client{Name: driverName, Node: csiclient.Fixed("unix://" + p.socket())}
	p.t.Cleanup(func() { c.Close() })
	return c
}

// count tells how often a method was called.
func (p *place) count(method string) int {
	p.t.Helper()
	list, err := calls.Read(p.path("calls"))
	if err != nil {
		p.t.Fatal(err)
	}
	n := 0
	for _, c := range list {
		if c.Method == method {
			n++
		}
	}
	return n
}

// rpcError is the error that all methods of a client return.
func rpcError(t *testing.T, err error) *csivol.RPCError {
	t.Helper()
	e, ok := errors.AsType[*csivol.RPCError](err)
	if !ok {
		t.Fatalf("got %v (%T), want an RPCError", err, err)
	}
	return e
}
