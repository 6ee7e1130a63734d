package wire

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// DialBudget is how long a daemon that is not there is waited for: long enough
// for one that is being restarted, short enough for a kubelet that waits.
const DialBudget = 2 * time.Second

// Call sends a request to the daemon and returns its answer. Its errors have
// the code unavailable if there is no daemon, so that the callout may do
// without; failed_precondition if there is one of another version, or one that
// is not to be trusted.
func Call(ctx context.Context, socket string, r *Request) (*Response, error) {
	line, err := Encode(r)
	if err != nil {
		return nil, flex.Errorf(flex.CodeInvalidArgument, "send the call to flex2csi: %w", err)
	}
	conn, err := dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	// A daemon that keeps its promise answers in time; one that hangs must
	// not make us hang.
	if err := conn.SetDeadline(deadline(ctx, r)); err != nil {
		return nil, flex.Errorf(flex.CodeInternal, "bound the call to flex2csi: %w", err)
	}
	if _, err := conn.Write(line); err != nil {
		return nil, broken(socket, err)
	}
	answer, err := bufio.NewReaderSize(&limited{conn, MaxLine}, 4096).ReadBytes('\n')
	if err != nil {
		return nil, broken(socket, err)
	}
	return DecodeResponse(answer, r.ID)
}

func deadline(ctx context.Context, r *Request) time.Time {
	at := time.Now().Add(r.Timeout() + 2*time.Second)
	if d, ok := ctx.Deadline(); ok && d.Before(at) {
		return d
	}
	return at
}

// broken: the daemon took the call and went away. What it had begun goes on
// when it is back, and the kubelet calls again.
func broken(socket string, err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return flex.Errorf(flex.CodeDeadlineExceeded, "flex2csi (%s) has not answered in time; what it does goes on, and the next call finds it", socket)
	}
	return flex.Errorf(flex.CodeUnavailable, "flex2csi (%s) ended while it had the call: %w; what it had begun goes on when it is back", socket, err)
}

// limited reads at most n bytes.
type limited struct {
	f *os.File
	n int
}

func (l *limited) Read(p []byte) (int, error) {
	if l.n <= 0 {
		return 0, fmt.Errorf("the answer has more than %d bytes", MaxLine)
	}
	n, err := l.f.Read(p[:min(len(p), l.n)])
	l.n -= n
	return n, err
}

// dial connects, trying again for a while if nobody listens.
func dial(ctx context.Context, socket string) (*os.File, error) {
	if err := trust(socket); err != nil {
		return nil, err
	}
	giveUp := time.Now().Add(DialBudget)
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		conn, err := connect(socket)
		if err == nil {
			return conn, nil
		}
		absent := errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EAGAIN)
		if !absent {
			return nil, flex.Errorf(flex.CodeFailedPrecondition, "connect to flex2csi at %s: %w", socket, err)
		}
		if time.Now().Add(wait).After(giveUp) || ctx.Err() != nil {
			return nil, flex.Errorf(flex.CodeUnavailable, "flex2csi does not listen at %s (%w): is its pod running on this node?", socket, err)
		}
		time.Sleep(wait)
	}
}

func connect(socket string) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: socket}); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), socket), nil
}

// trust refuses a socket that somebody else could have put there: the call
// has secrets in it.
func trust(socket string) error {
	for _, path := range [...]string{filepath.Dir(socket), socket} {
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			continue // not there; connecting says so better
		}
		if st.Uid != 0 && int(st.Uid) != os.Getuid() {
			return flex.Errorf(flex.CodePermissionDenied, "%s belongs to user %d and not to root; the call, which may hold secrets, is not sent there", path, st.Uid)
		}
		if st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Mode&0o022 != 0 && st.Mode&unix.S_ISVTX == 0 {
			return flex.Errorf(flex.CodePermissionDenied, "others than root can write to %s (mode %o); the call, which may hold secrets, is not sent there", path, st.Mode&0o7777)
		}
	}
	return nil
}
