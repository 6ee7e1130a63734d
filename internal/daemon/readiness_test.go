package daemon

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/statedir"
	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

var discard = slog.New(slog.DiscardHandler)

func ready(t *testing.T, d *Daemon) *bridgestatus.Readiness {
	t.Helper()
	r, err := d.readiness()
	if err != nil {
		t.Fatal(err)
	}
	return r.(*bridgestatus.Readiness)
}

// TestStates: what is ready, so that an upgrade may go on, and for whom a
// stand-by waits.
func TestStates(t *testing.T) {
	d := newDaemon(Options{Bridge: &bridge.Bridge{NodeName: "n"}})
	who := "flex2csi 1.2.3, which runs since long ago"
	d.standsBy.Store(&who)
	for phase, want := range map[int32]struct {
		state   bridgestatus.State
		ready   bool
		message string
	}{
		starting:   {bridgestatus.Starting, false, "not serving yet"},
		standingBy: {bridgestatus.StandingBy, true, who},
		takingOver: {bridgestatus.TakingOver, true, "calls wait"},
		serving:    {bridgestatus.Serving, true, "serving"},
		draining:   {bridgestatus.Draining, false, "draining"},
	} {
		d.tookSocket.Store(time.Now().UnixNano())
		d.phase.Store(phase)
		r := ready(t, d)
		if r.State != want.state || r.Ready != want.ready || !r.Live || !strings.Contains(r.Message, want.message) || r.NodeName != "n" {
			t.Errorf("phase %d: %+v, want %+v", phase, r, want)
		}
	}
	d.phase.Store(takingOver)
	d.tookSocket.Store(time.Now().Add(-2 * takeOverWait).UnixNano())
	if r := ready(t, d); r.Ready {
		t.Errorf("calls wait for long, and it is ready: %+v", r)
	}
}

// TestLiveness: a restart helps who serves at a socket that leads elsewhere.
func TestLiveness(t *testing.T) {
	d := newDaemon(Options{Bridge: &bridge.Bridge{}, Socket: t.TempDir() + "/gone"})
	d.phase.Store(serving)
	if r := ready(t, d); r.Live || r.Ready || !strings.Contains(r.Message, "gone") {
		t.Errorf("without a socket: %+v", r)
	}
}

// A backendFunc has the callouts of each driver.
type backendFunc func() *flex.Driver

func (f backendFunc) Callouts(string) (*flex.Driver, error) { return f(), nil }

// doing returns a driver that succeeds after do.
func doing(do func(flex.Command)) *flex.Driver {
	return &flex.Driver{Handle: func(_ context.Context, c *flex.Call) (flex.DriverStatus, error) {
		do(c.Command)
		return flex.Success(), nil
	}}
}

// TestCordon: calls that set up a volume are refused, and no others; the next daemon is
// cordoned as well.
func TestCordon(t *testing.T) {
	dir := t.TempDir()
	asked := make(chan flex.Command, 10)
	d := newDaemon(Options{Bridge: &bridge.Bridge{}, StateDir: dir, Metrics: NewMetrics(), Log: discard})
	close(d.turn)
	d.backend = backendFunc(func() *flex.Driver {
		return doing(func(c flex.Command) { asked <- c })
	})
	call := func(argv ...string) flex.DriverStatus {
		return d.handle(t.Context(), &wire.Request{Driver: "a/b", Argv: argv, TimeoutMillis: 60_000})
	}
	if s := call("mount", "/x", "{}"); s.Status != flex.StatusSuccess || len(asked) != 1 {
		t.Fatalf("before: %+v", s)
	}
	if _, err := d.cordon(); err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{{"mount", "/x", "{}"}, {"mountdevice", "/x", "/dev/x", "{}"}, {"attach", "{}", "n"}} {
		if s := call(argv...); s.Status != flex.StatusFailure || s.Code != flex.CodeUnavailable || !strings.Contains(s.Message, "uninstalled") {
			t.Errorf("%s while cordoned: %+v", argv[0], s)
		}
	}
	if s := call("unmount", "/x"); s.Status != flex.StatusSuccess || len(asked) != 2 {
		t.Errorf("unmount while cordoned: %+v", s)
	}
	if r := ready(t, newDaemon(d.Options)); r.CordonedSince == nil || !strings.Contains(r.Message, "cordoned") {
		t.Errorf("the next daemon: %+v", r)
	}
	if _, err := d.uncordon(); err != nil {
		t.Fatal(err)
	}
	if note, err := statedir.GetCordon(dir); note != nil || err != nil {
		t.Errorf("there is still a note: %v, %v", note, err)
	}
	if s := call("mount", "/x", "{}"); s.Status != flex.StatusSuccess {
		t.Errorf("afterwards: %+v", s)
	}
}

// TestSettingUp: cordon counts a call that was accepted before it.
func TestSettingUp(t *testing.T) {
	d := newDaemon(Options{Bridge: &bridge.Bridge{}, StateDir: t.TempDir(), Metrics: NewMetrics(), Log: discard})
	close(d.turn)
	begun, end := make(chan struct{}), make(chan struct{})
	d.backend = backendFunc(func() *flex.Driver {
		return doing(func(flex.Command) { close(begun); <-end })
	})
	answered := make(chan flex.DriverStatus)
	go func() {
		answered <- d.handle(t.Context(), &wire.Request{Driver: "a/b", Argv: []string{"mount", "/x", "{}"}, TimeoutMillis: 60_000})
	}()
	<-begun
	r, err := d.cordon()
	if err != nil {
		t.Fatal(err)
	}
	if n := r.(*bridgestatus.Readiness).SettingUp; n != 1 {
		t.Errorf("%d calls set up, want 1", n)
	}
	close(end)
	if s := <-answered; s.Status != flex.StatusSuccess {
		t.Errorf("the call that was let in: %+v", s)
	}
	if n := ready(t, d).SettingUp; n != 0 {
		t.Errorf("%d calls set up, want none", n)
	}
}

// TestTurn: callouts wait for the one before; a callout is not begun if its caller
// leaves meanwhile.
func TestTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(Options{Bridge: &bridge.Bridge{}, StateDir: t.TempDir(), Metrics: NewMetrics(), Log: discard})
		calls := 0
		d.backend = backendFunc(func() *flex.Driver {
			return doing(func(flex.Command) { calls++ })
		})
		mount := func(ctx context.Context) <-chan flex.DriverStatus {
			answer := make(chan flex.DriverStatus, 1)
			go func() {
				answer <- d.handle(ctx, &wire.Request{Driver: "a/b", Argv: []string{"mount", "/x", "{}"}, TimeoutMillis: 60_000})
			}()
			synctest.Wait()
			return answer
		}
		leaving, leave := context.WithCancelCause(t.Context())
		left, stayed := mount(leaving), mount(t.Context())
		late, cancel := context.WithTimeoutCause(t.Context(), time.Second, flex.Errorf(flex.CodeDeadlineExceeded, "still in progress"))
		defer cancel()
		if s := <-mount(late); s.Code != flex.CodeDeadlineExceeded || !strings.Contains(s.Message, "replaced") {
			t.Errorf("a call that waits for too long: %+v", s)
		}
		leave(errors.New("the caller has left"))
		if s := <-left; s.Status != flex.StatusFailure {
			t.Errorf("a call without its caller: %+v", s)
		}
		close(d.turn)
		if s := <-stayed; s.Status != flex.StatusSuccess || calls != 1 {
			t.Errorf("the call that waited: %+v, %d calls", s, calls)
		}
		if s := <-mount(leaving); s.Status != flex.StatusFailure || calls != 1 {
			t.Errorf("a call without its caller before it was read: %+v, %d calls", s, calls)
		}
	})
}

// TestReach: a CSI driver that is away is named with the reason, and who asks
// does not wait for it twice.
func TestReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := false
		d := newDaemon(Options{Bridge: &bridge.Bridge{}, StateDir: t.TempDir(), Drivers: []ConfiguredDriver{{
			FlexDriver: "a/b", CSIDriver: "c",
			Connections: func() []csivol.Connection { return []csivol.Connection{{Service: "node", Connected: up}} },
			Reach: func(ctx context.Context) error {
				<-ctx.Done() // as a driver that hangs
				return errors.New("no driver listens")
			},
		}}})
		d.phase.Store(serving)
		took := func() (*bridgestatus.Service, time.Duration) {
			start := time.Now()
			drivers := d.reachDrivers()
			return &drivers[0].Services[0], time.Since(start)
		}
		if s, d := took(); s.Connected || d != reachWait {
			t.Errorf("at first: %+v after %v", s, d)
		}
		time.Sleep(reachTimeout)
		if s, d := took(); s.Connected || s.LastError != "no driver listens" || d != 0 {
			t.Errorf("then: %+v after %v", s, d)
		}
		up = true
		if s, d := took(); !s.Connected || s.LastError != "" || d != 0 {
			t.Errorf("in the end: %+v after %v", s, d)
		}
		time.Sleep(reachTimeout) // the last try ends
	})
}
