package wire

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/hostfile"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// DialBudget is how long a call waits for a daemon that does not listen: long enough
// for a restart, short enough for a kubelet that waits.
const DialBudget = 2 * time.Second

// returnBudget is the same for a daemon that went away in the middle of a call:
// it was there, and is being replaced.
const returnBudget = 10 * time.Second

// tries bounds how often a call is made of which the connection breaks: a long
// one may see several daemons end, and one that kills each must not go on.
const tries = 5

// retryPause is the pause before the second try; it doubles. A daemon that dies may still
// take connections for a moment, and would use up the tries.
const retryPause = 20 * time.Millisecond

// Call sends a request to the daemon (internal/daemon, Server.serve) and returns its answer. If
// the daemon exits before it has answered, Call waits for the next one, longer than for a
// daemon that does not listen, and repeats the request: callouts can be repeated.
//
// If [IsAbsent] holds for the error there is no daemon. Other errors have the
// code failed_precondition if there is one of another version, permission_denied
// if there is one that is not to be trusted, deadline_exceeded if it hangs.
func Call(ctx context.Context, socket string, r *Request) (*Response, error) {
	return call(ctx, socket, r, DialBudget)
}

// CallNow is [Call] without waiting for a daemon that is not there.
func CallNow(ctx context.Context, socket string, r *Request) (*Response, error) {
	return call(ctx, socket, r, 0)
}

func call(ctx context.Context, socket string, r *Request, budget time.Duration) (response *Response, err error) {
	// A daemon that keeps its promise answers in time; one that hangs must
	// not make us hang.
	deadline := deadline(ctx, r)
	until := time.Now().Add(r.Timeout())
	for try := range tries {
		if try > 0 {
			select {
			case <-time.After(retryPause << (try - 1)):
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		response, err = once(ctx, socket, r, until, budget, deadline)
		if _, broken := errors.AsType[*brokenError](err); !broken {
			return response, err
		}
		if budget > 0 {
			budget = returnBudget
		}
	}
	return nil, err
}

// once is one connection. The daemon has as long as is left when it is there.
func once(ctx context.Context, socket string, r *Request, until time.Time, budget time.Duration, deadline time.Time) (*Response, error) {
	conn, err := dial(ctx, socket, budget)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if r.own {
		if err := checkOwn(conn, socket); err != nil {
			return nil, err
		}
	}
	sent := *r
	sent.TimeoutMillis = max(time.Until(until).Milliseconds(), 1)
	line, err := Encode(&sent)
	if err != nil {
		return nil, flex.Errorf(flex.CodeInvalidArgument, "send the call to flex2csi: %w", err)
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, flex.Errorf(flex.CodeInternal, "bound the call to flex2csi: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := conn.Write(line); err != nil {
		return nil, noAnswer(ctx, socket, err)
	}
	answer, err := bufio.NewReaderSize(&limited{conn, r.limit()}, 4096).ReadBytes('\n')
	if err != nil {
		return nil, noAnswer(ctx, socket, err)
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

// brokenError: the daemon took the call and went away. What it had begun goes
// on when it is back.
type brokenError struct {
	socket string
	err    error
}

func (e *brokenError) Error() string {
	return fmt.Sprintf("flex2csi (%s) ended while it had the call: %v; what it had begun goes on when it is back", e.socket, e.err)
}

func (e *brokenError) Unwrap() error { return e.err }

func noAnswer(ctx context.Context, socket string, err error) error {
	switch {
	case errors.Is(err, errTooLong):
		return flex.Errorf(flex.CodeInternal, "read the answer of flex2csi (%s): %w", socket, err)
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded), ctx.Err() == nil && errors.Is(err, os.ErrDeadlineExceeded):
		return flex.Errorf(flex.CodeDeadlineExceeded, "flex2csi (%s) has not answered in time; what it does goes on, and the next call finds it", socket)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return &flex.Error{Code: flex.CodeUnavailable, Err: &brokenError{socket, err}}
}

var errTooLong = errors.New("it is longer than it may be")

// limited reads at most n bytes.
type limited struct {
	f *os.File
	n int
}

func (l *limited) Read(p []byte) (int, error) {
	if l.n <= 0 {
		return 0, errTooLong
	}
	n, err := l.f.Read(p[:min(len(p), l.n)])
	l.n -= n
	return n, err
}

// absentError says that no daemon listens at the socket.
type absentError struct {
	socket string
	err    error
}

func (e *absentError) Error() string {
	return fmt.Sprintf("flex2csi does not listen at %s (%v): is its pod running on this node?", e.socket, e.err)
}

func (e *absentError) Unwrap() error { return e.err }

// IsAbsent reports whether an error of [Call] says that there is no daemon, so
// that the call is not under way.
func IsAbsent(err error) bool {
	_, absent := errors.AsType[*absentError](err)
	return absent
}

// dial connects, retrying for a while if no daemon listens.
func dial(ctx context.Context, socket string, budget time.Duration) (*os.File, error) {
	if err := checkSocket(socket); err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		budget = min(budget, time.Until(deadline)/2) // the rest is for doing without
	}
	giveUp := time.Now().Add(budget)
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		conn, err := connect(socket)
		if err == nil {
			return checkPeer(conn, socket)
		}
		late := time.Now().Add(wait).After(giveUp)
		switch {
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED):
			if late {
				return nil, &flex.Error{Code: flex.CodeUnavailable, Err: &absentError{socket, err}}
			}
		case errors.Is(err, unix.EAGAIN):
			if late {
				return nil, flex.Errorf(flex.CodeUnavailable, "flex2csi (%s) takes no more calls: too many wait already", socket)
			}
		case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
			return nil, flex.Errorf(flex.CodePermissionDenied, "connect to flex2csi at %s: %w; only root may", socket, err)
		default:
			return nil, flex.Errorf(flex.CodeFailedPrecondition, "connect to flex2csi at %s: %w", socket, err)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func connect(socket string) (*os.File, error) {
	address, release, err := Address(socket)
	if err != nil {
		return nil, err
	}
	defer release()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: address}); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), socket), nil
}

// maxAddress is what fits into a sockaddr_un (unix(7)).
const maxAddress = 107

// Address returns a path of the socket that the kernel takes, good until
// release is called. Below a plugin directory paths can be longer than that.
func Address(socket string) (path string, release func(), err error) {
	if len(socket) <= maxAddress {
		return socket, func() {}, nil
	}
	dir, err := unix.Open(filepath.Dir(socket), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir, filepath.Base(socket)), func() { unix.Close(dir) }, nil
}

// checkSocket refuses a socket that another user could have created: the call has
// secrets in it.
func checkSocket(socket string) error {
	if isAbstract(socket) {
		return nil // it has no place; checkPeer looks who is there
	}
	refuse := func(err error) error {
		return flex.Errorf(flex.CodePermissionDenied, "%w; the call, which may hold secrets, is not sent there", err)
	}
	// What is not there, connecting says better.
	if err := hostfile.CheckTrustedDir(filepath.Dir(socket), true); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return refuse(err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(socket, &st); err == nil && st.Uid != 0 && int(st.Uid) != os.Getuid() {
		return refuse(fmt.Errorf("%s belongs to the user with ID %d (chown root)", socket, st.Uid))
	}
	return nil
}

func isAbstract(socket string) bool { return strings.HasPrefix(socket, "@") }

// checkPeer refuses the process of another user at an abstract address, which any
// process may take.
func checkPeer(conn *os.File, socket string) (*os.File, error) {
	if !isAbstract(socket) {
		return conn, nil
	}
	cred, err := peer(conn)
	if err == nil && cred.Uid != 0 && int(cred.Uid) != os.Getuid() {
		err = fmt.Errorf("the user with ID %d listens there", cred.Uid)
	}
	if err != nil {
		conn.Close()
		return nil, flex.Errorf(flex.CodePermissionDenied, "ask flex2csi at %s: %w", socket, err)
	}
	return conn, nil
}

// checkOwn refuses a process that this PID namespace does not have: the kernel
// knows no number for it here (unix(7), pid_namespaces(7)).
func checkOwn(conn *os.File, socket string) error {
	cred, err := peer(conn)
	if err != nil {
		return flex.Errorf(flex.CodeInternal, "look who listens at %s: %w", socket, err)
	}
	if cred.Pid == 0 {
		return &flex.Error{Code: flex.CodeUnavailable, Err: &absentError{socket, errors.New("only one of another container does")}}
	}
	return nil
}

// peer is who listens.
func peer(conn *os.File) (cred *unix.Ucred, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	control := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return cred, errors.Join(control, err)
}
