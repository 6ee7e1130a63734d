package wire_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/daemon"
	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// serve starts a daemon's end with a handler and returns its socket.
func serve(t *testing.T, handler daemon.Handler) string {
	t.Helper()
	return serveWith(t, &daemon.Server{Handler: handler})
}

func TestCall(t *testing.T) {
	socket := serve(t, func(_ context.Context, r *wire.Request) flex.DriverStatus {
		return flex.DriverStatus{Status: flex.StatusSuccess, Device: r.Driver + " " + strings.Join(r.Argv, ",")}
	})
	got, err := wire.Call(t.Context(), socket, wire.NewRequest("a/b", []string{"mount", "/x"}, time.Second))
	if err != nil || got.Status.Device != "a/b mount,/x" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestCodeCrosses(t *testing.T) {
	socket := serve(t, func(context.Context, *wire.Request) flex.DriverStatus {
		return flex.Failure(flex.Errorf(flex.CodeAborted, "busy"))
	})
	got, err := wire.Call(t.Context(), socket, wire.NewRequest("a/b", []string{"mount"}, time.Second))
	if err != nil || got.Status.Code != flex.CodeAborted || got.Status.Message != "busy" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestAbsent(t *testing.T) {
	start := time.Now()
	_, err := wire.Call(t.Context(), filepath.Join(t.TempDir(), "s"), wire.NewRequest("a/b", []string{"mount"}, time.Minute))
	if flex.CodeOf(err) != flex.CodeUnavailable || !wire.IsAbsent(err) {
		t.Errorf("got %v, want unavailable and absent", err)
	}
	if took := time.Since(start); took > 10*wire.DialBudget {
		t.Errorf("gave up after %v", took)
	}
}

// TestDaemonComesBack: a restart within the dial budget fails no call.
func TestDaemonComesBack(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	go func() {
		time.Sleep(100 * time.Millisecond)
		l, err := daemon.Listen(socket)
		if err != nil {
			t.Error(err)
			return
		}
		s := &daemon.Server{AllowUID: os.Getuid(), Handler: func(context.Context, *wire.Request) flex.DriverStatus {
			go l.Close()
			return flex.DriverStatus{Status: flex.StatusSuccess}
		}}
		_ = s.Serve(context.Background(), l)
	}()
	if _, err := wire.Call(t.Context(), socket, wire.NewRequest("a/b", []string{"mount"}, time.Minute)); err != nil {
		t.Error(err)
	}
}

// flaky is a daemon that exits during the first calls that it gets, and answers those
// after them.
func flaky(t *testing.T, deaths int) (socket string, seen func() []*wire.Request) {
	t.Helper()
	return dying(t, func(calls int) bool { return calls <= deaths })
}

// dying is a daemon that exits during the calls of which dies says so: the first one is 1.
func dying(t *testing.T, dies func(calls int) bool) (socket string, seen func() []*wire.Request) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var requests []*wire.Request
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			line, _ := bufio.NewReader(conn).ReadBytes('\n')
			if r, err := wire.DecodeRequest(line); err == nil {
				requests = append(requests, r)
				if !dies(len(requests)) {
					answer, _ := wire.Encode(wire.Answer(r.ID, flex.DriverStatus{Status: flex.StatusSuccess}))
					_, _ = conn.Write(answer)
				}
			}
			conn.Close()
		}
	}()
	return socket, func() []*wire.Request { l.Close(); <-done; return requests }
}

// TestDaemonDiesInTheMiddle: the call is made again, as the same one, with
// what is left of its time.
func TestDaemonDiesInTheMiddle(t *testing.T) {
	socket, seen := flaky(t, 2)
	_, err := wire.Call(t.Context(), socket, wire.NewRequest("a/b", []string{"mount"}, time.Minute))
	if err != nil {
		t.Error(err)
	}
	requests := seen()
	if len(requests) != 3 || requests[2].ID != requests[0].ID || requests[2].Timeout() > requests[0].Timeout() || requests[2].Timeout() < 30*time.Second {
		t.Errorf("requests: %+v", requests)
	}
}

// TestDaemonKeepsDying: that is not for ever, and not "no daemon": it may have
// begun something.
func TestDaemonKeepsDying(t *testing.T) {
	socket, seen := flaky(t, 1000)
	_, err := wire.Call(t.Context(), socket, wire.NewRequest("a/b", []string{"mount"}, time.Minute))
	if flex.CodeOf(err) != flex.CodeUnavailable || wire.IsAbsent(err) {
		t.Errorf("got %v, want unavailable and not absent", err)
	}
	if n := len(seen()); n > 10 {
		t.Errorf("the call was made %d times", n)
	}
}

// TestDaemonDiesSlowly: while a daemon dies, it may take a connection and close it, as
// often as one makes it.
func TestDaemonDiesSlowly(t *testing.T) {
	var first time.Time
	socket, _ := dying(t, func(calls int) bool {
		if calls == 1 {
			first = time.Now()
		}
		return time.Since(first) < 100*time.Millisecond
	})
	if _, err := wire.Call(t.Context(), socket, wire.NewRequest("a/b", []string{"mount"}, time.Minute)); err != nil {
		t.Error(err)
	}
}

// TestDaemonEndsInTheMiddle: a call that cannot be finished before the daemon
// ends is left to the next one.
func TestDaemonEndsInTheMiddle(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	ctx, end := context.WithCancel(t.Context())
	defer end()
	first, err := daemon.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	s := &daemon.Server{AllowUID: os.Getuid(), Handler: func(ctx context.Context, _ *wire.Request) flex.DriverStatus {
		first.Close()
		end()
		<-ctx.Done()
		return flex.Failure(ctx.Err())
	}}
	go func() { ended <- s.Serve(ctx, first) }()
	go func() {
		<-ctx.Done()
		next, err := daemon.Listen(socket)
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { next.Close() })
		s := &daemon.Server{AllowUID: os.Getuid(), Handler: func(context.Context, *wire.Request) flex.DriverStatus {
			return flex.DriverStatus{Status: flex.StatusSuccess}
		}}
		_ = s.Serve(context.Background(), next)
	}()
	if _, err := wire.Call(t.Context(), socket, wire.NewRequest("a/b", []string{"mount"}, time.Minute)); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestCallerLeaves: the daemon learns that its caller has left.
func TestCallerLeaves(t *testing.T) {
	arrived, told := make(chan struct{}), make(chan error, 1)
	socket := serve(t, func(ctx context.Context, _ *wire.Request) flex.DriverStatus {
		close(arrived)
		<-ctx.Done()
		told <- context.Cause(ctx)
		return flex.Failure(context.Cause(ctx))
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	if _, err := wire.Call(ctx, socket, wire.NewRequest("a/b", []string{"mount"}, time.Hour)); err == nil {
		t.Error("there is an answer")
	}
	if err := <-told; flex.CodeOf(err) != flex.CodeCanceled || !strings.Contains(err.Error(), "left") {
		t.Errorf("told that %v", err)
	}
}

// TestInterrupted: a signal ends the wait for an answer at once.
func TestInterrupted(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	socket := serve(t, func(context.Context, *wire.Request) flex.DriverStatus {
		close(arrived)
		<-release
		return flex.DriverStatus{Status: flex.StatusSuccess}
	})
	defer close(release)
	why := errors.New("a signal")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-arrived; cancel(why) }()
	if _, err := wire.Call(ctx, socket, wire.NewRequest("a/b", []string{"mount"}, time.Hour)); !errors.Is(err, why) {
		t.Errorf("got %v, want %v", err, why)
	}
}

// TestDaemonHangs: the driver does not.
func TestDaemonHangs(t *testing.T) {
	release := make(chan struct{})
	socket := serve(t, func(context.Context, *wire.Request) flex.DriverStatus {
		<-release
		return flex.DriverStatus{Status: flex.StatusSuccess}
	})
	defer close(release)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := wire.Call(ctx, socket, wire.NewRequest("a/b", []string{"mount"}, time.Minute))
	if flex.CodeOf(err) != flex.CodeDeadlineExceeded {
		t.Errorf("got %v, want deadline_exceeded", err)
	}
}

func TestOthersMayNotWriteThere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := daemon.Listen(filepath.Join(dir, "s")); err == nil {
		t.Error("the daemon listens where any user can replace its socket")
	}
	_, err := wire.Call(t.Context(), filepath.Join(dir, "s"), wire.NewRequest("a/b", []string{"mount"}, time.Second))
	if flex.CodeOf(err) != flex.CodePermissionDenied {
		t.Errorf("the driver calls there: %v", err)
	}
	// Nor by way of a link, though links are all right.
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	_, err = wire.CallNow(t.Context(), filepath.Join(link, "s"), wire.NewRequest("a/b", []string{"mount"}, time.Second))
	if flex.CodeOf(err) != flex.CodePermissionDenied {
		t.Errorf("the driver calls there by way of a link: %v", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err = wire.CallNow(t.Context(), filepath.Join(link, "s"), wire.NewRequest("a/b", []string{"mount"}, time.Second))
	if !wire.IsAbsent(err) {
		t.Errorf("a link to a good directory: %v", err)
	}
}

func TestTwoDaemons(t *testing.T) {
	socket := serve(t, nil)
	if l, err := daemon.Listen(socket); err == nil {
		l.Close()
		t.Error("two daemons listen at one socket")
	}
}

func TestDecodeRequest(t *testing.T) {
	good := `{"version":1,"id":"x","driver":"a/b","timeoutMillis":1,"argv":["init"],"later":{"a":[1]}}`
	if r, err := wire.DecodeRequest([]byte(good + "\n")); err != nil || r.ID != "x" {
		t.Errorf("%s: %+v, %v", good, r, err)
	}
	for _, bad := range []string{
		"", "{", "null", "[]", `"x"`, good + good, good + "\n" + good,
		strings.Replace(good, `"version":1`, `"version":2`, 1),
		strings.Replace(good, `["init"]`, `[]`, 1),
		strings.Replace(good, `"timeoutMillis":1`, `"timeoutMillis":-1`, 1),
	} {
		if r, err := wire.DecodeRequest([]byte(bad)); err == nil {
			t.Errorf("%s: %+v, want an error", bad, r)
		}
	}
	_, err := wire.DecodeRequest([]byte(strings.Replace(good, `"version":1`, `"version":7`, 1)))
	if flex.CodeOf(err) != flex.CodeFailedPrecondition || !strings.Contains(err.Error(), "version 7") || !strings.Contains(err.Error(), "version 1") {
		t.Errorf("another version: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"version":1,"id":"x","driver":"a/b","timeoutMillis":1,"argv":["init"]}`))
	f.Add([]byte(`{"version":1,"id":"x","status":{"status":"Success"}}`))
	f.Add([]byte(`{"argv":[null],"timeoutMillis":1e400}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		if r, err := wire.DecodeRequest(line); err == nil {
			again, err := wire.Encode(r)
			if err != nil {
				t.Skip() // too long for the wire
			}
			if _, err := wire.DecodeRequest(again); err != nil {
				t.Errorf("%s was taken, and not taken when written again: %v", line, err)
			}
		}
		if r, err := wire.DecodeResponse(line, "x"); err == nil && !json.Valid(r.Status.Encode()) {
			t.Errorf("%s was taken and cannot be answered", line)
		}
	})
}

// TestLongPath: the plugin directory and the names of drivers may take more
// than the 107 bytes that the kernel has room for in an address.
func TestLongPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 100), strings.Repeat("e", 100))
	socket := filepath.Join(dir, ".s")
	l, err := daemon.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	s := &daemon.Server{AllowUID: os.Getuid(), Handler: func(context.Context, *wire.Request) flex.DriverStatus {
		return flex.DriverStatus{Status: flex.StatusSuccess}
	}}
	go func() { ended <- s.Serve(context.Background(), l) }()
	if _, err := wire.Call(t.Context(), socket, wire.NewRequest("a/b", []string{"attach"}, time.Minute)); err != nil {
		t.Error(err)
	}
	if _, err := wire.CallNow(t.Context(), filepath.Join(dir, "none"), wire.NewRequest("a/b", []string{"attach"}, time.Minute)); !wire.IsAbsent(err) {
		t.Errorf("where no daemon listens: %v", err)
	}
	l.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 2 { // the socket and its lock
		t.Errorf("there are %v, %v", names, err)
	}
}
