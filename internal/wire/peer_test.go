package wire_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/daemon"
	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// askAs sends a line as a user and returns what comes back. The kernel tells
// the daemon who the thread is that connects, so one thread becomes that user,
// and ends as such.
func askAs(uid uintptr, socket, line string) (string, error) {
	type result struct {
		answer string
		err    error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); errno != 0 {
			done <- result{err: errno}
			return
		}
		answer, err := ask(socket, line)
		done <- result{answer, err}
	}()
	r := <-done
	return r.answer, r.err
}

func ask(socket, line string) (string, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	conn := os.NewFile(uintptr(fd), socket)
	defer conn.Close()
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: socket}); err != nil {
		return "", err
	}
	// A daemon that refuses may have gone before the line is written.
	if _, err := io.WriteString(conn, line); err != nil {
		return "", nil
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return "", nil // it was not read
	}
	return string(answer), nil
}

// log is written by the server and read when it has ended.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestOtherUsersAreRefused: neither a call nor a question of another user than
// root is read, even where the modes of socket and directory would let them in.
func TestOtherUsersAreRefused(t *testing.T) {
	testenv.Need(t, "root")
	dir, err := os.MkdirTemp("", "wire") //nolint:usetesting // those above t.TempDir are for root alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	l, err := daemon.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(socket, 0o666); err != nil {
		t.Fatal(err)
	}
	said := &log{}
	s := &daemon.Server{
		Log:       slog.New(slog.NewTextHandler(said, nil)),
		Documents: map[string]daemon.StatusDocument{wire.KindStatus: func() (any, error) { return "everything", nil }},
		Handler: func(context.Context, *wire.Request) flex.DriverStatus {
			return flex.DriverStatus{Status: flex.StatusSuccess}
		},
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background(), l) }()
	for _, line := range []string{
		`{"version":1,"id":"1","driver":"a/b","timeoutMillis":60000,"argv":["unmount","/x"]}` + "\n",
		`{"version":1,"id":"2","kind":"status","timeoutMillis":60000}` + "\n",
	} {
		if answer, err := askAs(0, socket, line); err != nil || !strings.Contains(answer, `"Success"`) {
			t.Errorf("root asks %s and gets %q, %v", line, answer, err)
		}
		if answer, err := askAs(65534, socket, line); err != nil || answer != "" {
			t.Errorf("user 65534 asks %s and gets %q, %v", line, answer, err)
		}
	}
	l.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if n := strings.Count(said.String(), "refused user 65534"); n != 2 {
		t.Errorf("the log tells of %d refusals, want 2:\n%s", n, said)
	}
}
