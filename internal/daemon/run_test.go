package daemon

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/statedir"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// freePort is a port at which no process listens.
// It is below the range out of which the kernel gives ports to clients
// (net.ipv4.ip_local_port_range): one from there may be a client's in the moment
// between two listeners.
func freePort(t *testing.T) string {
	t.Helper()
	for port := 20000 + rand.IntN(10000); port < 32768; port++ {
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}

// running is a daemon in this process.
type running struct {
	*Daemon
	t     *testing.T
	end   context.CancelFunc
	ended chan error
}

func start(t *testing.T, o Options, r role) *running {
	t.Helper()
	o.Metrics, o.Log = NewMetrics(), discard
	if o.Bridge == nil {
		o.Bridge = &bridge.Bridge{}
	}
	ctx, end := context.WithCancel(context.Background())
	d := &running{Daemon: newDaemon(o), t: t, end: end, ended: make(chan error, 1)}
	go func() { d.ended <- d.run(ctx, r) }()
	t.Cleanup(end)
	return d
}

func (d *running) is(phase int32) {
	d.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); d.phase.Load() != phase; time.Sleep(time.Millisecond) {
		select {
		case err := <-d.ended:
			d.t.Fatalf("it has ended in phase %d and not in %d: %v", d.phase.Load(), phase, err)
		default:
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("it is in phase %d and not in %d", d.phase.Load(), phase)
		}
	}
}

func (d *running) stop() {
	d.t.Helper()
	d.end()
	if err := <-d.ended; err != nil {
		d.t.Error(err)
	}
}

// TestOneAddress: by hand, two daemons share a network. The one that stands by
// shows its metrics when it is its turn, while the other one still drains.
func TestOneAddress(t *testing.T) {
	o := Options{Socket: filepath.Join(t.TempDir(), "s"), HTTPEndpoint: freePort(t), Drain: time.Minute}
	drained := make(chan struct{})
	first := start(t, o, role{background: []func(context.Context){func(context.Context) { <-drained }}})
	first.is(serving)
	second := start(t, o, role{})
	second.is(standingBy)
	first.end()
	second.is(serving)
	close(drained)
	first.stop()
	response, err := http.Get("http://" + o.HTTPEndpoint + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("got %s", response.Status)
	}
	second.stop()
}

// TestAddressOfAnother: an address that another process keeps is an error.
func TestAddressOfAnother(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d := start(t, Options{Socket: filepath.Join(t.TempDir(), "s"), HTTPEndpoint: l.Addr().String()}, role{})
	if err := <-d.ended; !errors.Is(err, errPortTaken) {
		t.Errorf("got %v", err)
	}
}

// TestOtherSocket: an upgrade that moves the socket hands over as well, by the
// records.
func TestOtherSocket(t *testing.T) {
	dir := t.TempDir()
	daemon := func(socket string) *running {
		store, err := volstate.Open(filepath.Join(dir, "state"))
		if err != nil {
			t.Fatal(err)
		}
		o := Options{Socket: filepath.Join(dir, socket), Store: store, StateDir: filepath.Join(dir, "state")}
		return start(t, o, role{takeOver: store.Lock})
	}
	first := daemon("old")
	first.is(serving)
	second := daemon("new")
	second.is(takingOver)
	time.Sleep(50 * time.Millisecond)
	second.is(takingOver)
	first.stop()
	second.is(takingOver) // the operations of the first may go on
	if err := first.Store.Unlock(); err != nil {
		t.Error(err)
	}
	second.is(serving)
	second.stop()
}

// TestEndWhileWaiting: one that is told to end ends, wherever it waits, and has
// answered nothing.
func TestEndWhileWaiting(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	waiting := func(ctx context.Context) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	taking := start(t, Options{Socket: socket}, role{takeOver: waiting})
	taking.is(takingOver)
	standing := start(t, Options{Socket: socket}, role{takeOver: waiting})
	standing.is(standingBy)
	standing.stop()
	taking.stop()
}

// TestOtherRecords: who has other records must not follow, and is not ready to.
func TestOtherRecords(t *testing.T) {
	testenv.Need(t, "root") // to ask at the socket
	dir := t.TempDir()
	daemon := func(state string) *running {
		t.Helper()
		store, err := volstate.Open(filepath.Join(dir, state))
		if err != nil {
			t.Fatal(err)
		}
		d := newDaemon(Options{})
		r := role{takeOver: store.Lock, locked: store.Locked}
		o := Options{Socket: filepath.Join(dir, "s"), Store: store, StateDir: filepath.Join(dir, state)}
		r.documents = map[string]StatusDocument{wire.KindReady: func() (any, error) { return d.readiness() }}
		running := start(t, o, r)
		d = running.Daemon
		return running
	}
	first := daemon("state")
	first.is(serving)
	other := daemon("other")
	if err := <-other.ended; err == nil || !strings.Contains(err.Error(), "--state-dir") {
		t.Errorf("one with other records: %v", err)
	}
	if phase := other.phase.Load(); phase != starting {
		t.Errorf("it has come to phase %d", phase)
	}
	same := daemon("state")
	same.is(standingBy)
	same.stop()
	first.stop()
	if err := first.Store.Unlock(); err != nil {
		t.Error(err)
	}
}

// TestOwnSocketOnlyAnswers: the abstract address is open to each process of the
// network namespace that has user ID 0, without any capability or a file of the
// node. One told the daemon there to set up no more volumes.
func TestOwnSocketOnlyAnswers(t *testing.T) {
	testenv.Need(t, "root")
	o := Options{Socket: filepath.Join(t.TempDir(), "s"), StateDir: t.TempDir(), Bridge: &bridge.Bridge{}, Log: discard}
	d := start(t, o, role{documents: newDaemon(o).documents()})
	d.is(serving)
	own := wire.OwnSocket(o.Socket)
	deadline := time.Now().Add(10 * time.Second)
	for _, err := wire.Ask(t.Context(), own, wire.KindReady, time.Minute); err != nil; _, err = wire.Ask(t.Context(), own, wire.KindReady, time.Minute) {
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	for _, kind := range []string{wire.KindCordon, wire.KindUncordon, wire.KindStatus} {
		if _, err := wire.Ask(t.Context(), own, kind, time.Minute); flex.CodeOf(err) != flex.CodeFailedPrecondition {
			t.Errorf("%s at the abstract socket: %v", kind, err)
		}
	}
	if note, err := statedir.GetCordon(o.StateDir); note != nil || err != nil {
		t.Errorf("it is cordoned: %v, %v", note, err)
	}
	if _, err := wire.Ask(t.Context(), o.Socket, wire.KindCordon, time.Minute); err != nil {
		t.Errorf("cordon at the socket of the node: %v", err)
	}
	d.stop()
}
