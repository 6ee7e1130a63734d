package wire_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/daemon"
	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// TestOneDriverHangs: calls of a driver that hangs come to an end in number, and
// those of another one go on.
func TestOneDriverHangs(t *testing.T) {
	const most, made = 512, 600
	release := make(chan struct{})
	socket := serve(t, func(_ context.Context, r *wire.Request) flex.DriverStatus {
		if r.Driver == "a/hangs" {
			<-release
		}
		return flex.DriverStatus{Status: flex.StatusSuccess}
	})
	call := func(driver string) (*wire.Response, error) {
		return wire.Call(t.Context(), socket, wire.NewRequest(driver, []string{"mount"}, time.Minute))
	}
	var all sync.WaitGroup
	refused := make(chan flex.Code, made)
	for range made {
		all.Go(func() {
			if r, err := call("a/hangs"); err != nil {
				t.Error(err)
			} else if r.Status.Status != flex.StatusSuccess {
				refused <- r.Code
			}
		})
	}
	for range made - most {
		if code := <-refused; code != flex.CodeUnavailable {
			t.Errorf("refused as %s", code)
		}
	}
	if r, err := call("a/well"); err != nil || r.Status.Status != flex.StatusSuccess {
		t.Errorf("a call of another driver: %+v, %v", r, err)
	}
	close(release)
	all.Wait()
	if n := len(refused); n > 0 {
		t.Errorf("%d calls too many were refused", n)
	}
}

// TestRefusalsDoNotFillTheLog: any user of the network namespace may connect to an
// abstract address, as often as he likes.
func TestRefusalsDoNotFillTheLog(t *testing.T) {
	testenv.Need(t, "root")
	said := &log{}
	socket := filepath.Join(t.TempDir(), "s")
	l, err := daemon.ListenOwn(socket)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	s := &daemon.Server{Log: slog.New(slog.NewTextHandler(said, nil)), AllowUID: os.Getuid()}
	go func() { served <- s.Serve(context.Background(), l) }()
	for range 200 {
		if answer, err := askAs(65534, wire.OwnSocket(socket), "{}\n"); err != nil || answer != "" {
			t.Errorf("%q, %v", answer, err)
		}
	}
	l.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if n := strings.Count(said.String(), "\n"); n == 0 || n > 20 {
		t.Errorf("%d lines:\n%s", n, said)
	}
}
