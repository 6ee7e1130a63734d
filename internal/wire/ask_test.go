package wire_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/daemon"
	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// serveDocuments starts a daemon's end that answers questions and no calls.
func serveDocuments(t *testing.T, documents map[string]daemon.StatusDocument) string {
	t.Helper()
	return serveWith(t, &daemon.Server{Documents: documents, Handler: func(context.Context, *wire.Request) flex.DriverStatus {
		t.Error("a question was taken for a callout")
		return flex.DriverStatus{}
	}})
}

func TestAsk(t *testing.T) {
	large := strings.Repeat("x", 2*wire.MaxLine)
	socket := serveDocuments(t, map[string]daemon.StatusDocument{wire.KindStatus: func() (any, error) { return map[string]string{"large": large}, nil }})
	document, err := wire.Ask(t.Context(), socket, wire.KindStatus, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := json.Unmarshal(document, &got); err != nil || got["large"] != large {
		t.Errorf("the document does not come through whole: %v, %d bytes", err, len(document))
	}
}

// TestAskWhatIsNotKnown: of a daemon that does not know the question, and of
// one that does not know questions at all.
func TestAskWhatIsNotKnown(t *testing.T) {
	for name, socket := range map[string]string{
		"another question": serveDocuments(t, nil),
		"no questions": serve(t, func(context.Context, *wire.Request) flex.DriverStatus {
			return flex.DriverStatus{Status: flex.StatusSuccess} // whatever it takes it for
		}),
	} {
		_, err := wire.Ask(t.Context(), socket, "weather", time.Minute)
		if flex.CodeOf(err) != flex.CodeFailedPrecondition || !strings.Contains(err.Error(), "older release") || wire.IsAbsent(err) {
			t.Errorf("%s: got %v, want failed_precondition and what to do", name, err)
		}
	}
}

func TestAskAbsent(t *testing.T) {
	if _, err := wire.Ask(t.Context(), filepath.Join(t.TempDir(), "s"), wire.KindStatus, time.Minute); !wire.IsAbsent(err) {
		t.Errorf("got %v, want that there is no daemon", err)
	}
}

// TestQuestionOnTheWire: what an older daemon sees has neither driver nor argv,
// which it refuses.
func TestQuestionOnTheWire(t *testing.T) {
	for line, valid := range map[string]bool{
		`{"version":1,"kind":"status","id":"1","timeoutMillis":1}`:  true,
		`{"version":1,"kind":"status","id":"1"}`:                    false,
		`{"version":1,"id":"1","timeoutMillis":1}`:                  false,
		`{"version":1,"id":"1","timeoutMillis":1,"argv":["mount"]}`: false,
	} {
		if _, err := wire.DecodeRequest([]byte(line)); (err == nil) != valid {
			t.Errorf("%s: got %v, want valid=%t", line, err, valid)
		}
	}
	line, err := wire.Encode(wire.NewRequest("a/b", []string{"mount"}, time.Second))
	if err != nil || bytes.Contains(line, []byte("kind")) {
		t.Errorf("a callout is now %s, %v: an older daemon may not expect that", line, err)
	}
}

// serveWith starts a daemon's end and returns its socket.
func serveWith(t *testing.T, s *daemon.Server) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := daemon.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	s.AllowUID = os.Getuid()
	go func() { done <- s.Serve(context.Background(), l) }()
	t.Cleanup(func() {
		l.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return socket
}

// TestAskOwn: a process answers for itself while another one has the socket,
// and only where there is no such process the other one is asked.
func TestAskOwn(t *testing.T) {
	name := func(s string) map[string]daemon.StatusDocument {
		return map[string]daemon.StatusDocument{wire.KindReady: func() (any, error) { return s, nil }}
	}
	socket := serveWith(t, &daemon.Server{Documents: name("shared")})
	check := func(when, want string) {
		t.Helper()
		got, err := wire.AskOwn(t.Context(), socket, wire.KindReady, time.Minute)
		if err != nil || string(got) != want {
			t.Errorf("%s: %s answers, %v; want %s", when, got, err, want)
		}
	}
	check("alone", `"shared"`)
	l, err := daemon.ListenOwn(socket)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := daemon.ListenOwn(socket); err == nil {
		again.Close()
		t.Error("two processes have one own socket")
	}
	served := make(chan error, 1)
	s := &daemon.Server{Documents: name("own"), AllowUID: os.Getuid()}
	go func() { served <- s.Serve(context.Background(), l) }()
	check("with an own socket", `"own"`)
	// Callouts are for the shared one.
	answer, err := wire.CallNow(t.Context(), wire.OwnSocket(socket), wire.NewRequest("a/b", []string{"mount"}, time.Minute))
	if err != nil || answer.Status.Status == flex.StatusSuccess {
		t.Errorf("a callout at the own socket: %+v, %v", answer, err)
	}
	l.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
	check("afterwards", `"shared"`)
	if _, err := wire.AskOwn(t.Context(), "", wire.KindReady, time.Minute); !wire.IsAbsent(err) {
		t.Errorf("without a socket: %v", err)
	}
}

// TestOwnSocketOfAnother: any process may take an abstract address.
func TestOwnSocketOfAnother(t *testing.T) {
	testenv.Need(t, "root")
	socket := filepath.Join(t.TempDir(), "s")
	listening := make(chan error)
	end := make(chan struct{})
	defer close(end)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534)
		if errno != 0 {
			listening <- errno
			return
		}
		l, err := daemon.ListenOwn(socket)
		listening <- err
		if err == nil {
			<-end
			l.Close()
		}
	}()
	if err := <-listening; err != nil {
		t.Fatal(err)
	}
	if _, err := wire.AskOwn(t.Context(), socket, wire.KindReady, time.Minute); flex.CodeOf(err) != flex.CodePermissionDenied {
		t.Errorf("got %v, want permission_denied", err)
	}
}
