package wire_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/internal/wire/wireserver"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// serveDocuments starts a daemon's end that answers questions and no calls.
func serveDocuments(t *testing.T, documents map[string]func() any) string {
	t.Helper()
	return serveWith(t, &wireserver.Server{Documents: documents, Handler: func(context.Context, *wire.Request) flex.DriverStatus {
		t.Error("a question was taken for a callout")
		return flex.DriverStatus{}
	}})
}

func TestAsk(t *testing.T) {
	large := strings.Repeat("x", 2*wire.MaxLine)
	socket := serveDocuments(t, map[string]func() any{wire.KindStatus: func() any { return map[string]string{"large": large} }})
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

func TestAskNobody(t *testing.T) {
	if _, err := wire.Ask(t.Context(), filepath.Join(t.TempDir(), "s"), wire.KindStatus, time.Minute); !wire.IsAbsent(err) {
		t.Errorf("got %v, want that nobody is there", err)
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
func serveWith(t *testing.T, s *wireserver.Server) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := wireserver.Listen(socket)
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
