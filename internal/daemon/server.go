package daemon

// This file is the daemon's end of the wire: a unix socket for root,
// one request for each connection.

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// A Handler answers one callout. Its context ends when the caller's patience
// does, or the caller.
type Handler func(ctx context.Context, r *wire.Request) flex.DriverStatus

// A StatusDocument answers a question. What it returns is made JSON of.
type StatusDocument func() (any, error)

// A Server serves one socket.
type Server struct {
	// Handler answers callouts: internal/daemon, Daemon.handle; nil: there are none here.
	Handler Handler
	// Documents answer questions, by their kind.
	Documents map[string]StatusDocument
	Log       *slog.Logger
	// AllowUID is a user besides root who may call: who runs this, if it is not
	// root.
	AllowUID int

	calls  sync.WaitGroup
	limits limits
}

// readWait bounds how long a peer may take to send its line.
const readWait = 5 * time.Second

// Serve answers calls until the listener is closed, and returns when the last
// one is answered.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	defer s.calls.Wait()
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			s.log().Warn("accept", "error", err)
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(50 * time.Millisecond): // out of descriptors, perhaps
			}
			continue
		}
		s.calls.Go(func() {
			defer conn.Close()
			if err := s.serve(ctx, conn); err != nil {
				if ok, more := s.limits.complain(time.Now()); ok {
					s.log().Warn("a call could not be served", "error", err, "suppressed", more)
				}
			}
		})
	}
}

func (s *Server) log() *slog.Logger {
	if s.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return s.Log
}

// serve is one connection: check who calls, read, handle, answer.
func (s *Server) serve(ctx context.Context, conn net.Conn) error {
	if err := s.authorise(conn); err != nil {
		return err
	}
	line, err := s.read(conn)
	if len(line) == 0 && errors.Is(err, io.EOF) {
		return nil // who only looked who listens
	}
	if err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	callCtx, left := context.WithCancelCause(ctx)
	defer left(nil)
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	go watch(conn, left)
	answer, err := s.answer(ctx, callCtx, line)
	if err != nil {
		return err
	}
	if err := conn.SetWriteDeadline(time.Now().Add(readWait)); err != nil {
		return err
	}
	_, err = conn.Write(answer) // a caller that left is no trouble: the work is recorded
	if errors.Is(err, unix.EPIPE) {
		return nil
	}
	return err
}

// read returns the request's line. Few are long, so few may be at a time.
func (s *Server) read(conn net.Conn) ([]byte, error) {
	defer s.limits.read(conn)()
	if err := conn.SetReadDeadline(time.Now().Add(readWait)); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(io.LimitReader(conn, shortLine)).ReadBytes('\n')
	if len(line) < shortLine || err == nil {
		return line, err
	}
	defer s.limits.readLong()()
	rest, err := bufio.NewReader(io.LimitReader(conn, wire.MaxLine-shortLine)).ReadBytes('\n')
	return append(line, rest...), err
}

// watch returns when the connection ends. If it is the caller who ends it, he
// is told to have left: killed, perhaps. He has nothing to say after his line.
func watch(conn net.Conn, left context.CancelCauseFunc) {
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		left(flex.Errorf(flex.CodeCanceled, "the caller has left"))
	}
}

// answer returns the line that answers a line. The first context ends with the
// server, the second one with the caller, too.
func (s *Server) answer(ending, ctx context.Context, line []byte) ([]byte, error) {
	r, err := wire.DecodeRequest(line)
	if err != nil {
		return wire.Encode(wire.Answer(r.ID, flex.Failure(err)))
	}
	done, err := s.limits.begin(r.Driver)
	if err != nil {
		return wire.Encode(wire.Answer(r.ID, flex.Failure(err)))
	}
	defer done()
	if r.Kind == "" && s.Handler != nil {
		return s.callout(ending, ctx, r)
	}
	document, err := s.document(r.Kind)
	if err != nil {
		return wire.Encode(wire.Answer(r.ID, flex.Failure(err)))
	}
	answer := wire.Answer(r.ID, flex.DriverStatus{Status: flex.StatusSuccess})
	answer.Document = document
	return wire.EncodeDocument(answer)
}

// callout answers a callout. One that fails because the server is ending gets
// no answer: the driver makes the call again, and reaches the next server.
func (s *Server) callout(ending, ctx context.Context, r *wire.Request) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.Timeout(), flex.Errorf(flex.CodeDeadlineExceeded, "still in progress after %v", r.Timeout()))
	defer cancel()
	status := s.Handler(ctx, r)
	if status.Status != flex.StatusSuccess && ending.Err() != nil {
		return nil, fmt.Errorf("call %s is left to the next flex2csi: %s", r.ID, status.Message)
	}
	return wire.Encode(wire.Answer(r.ID, status))
}

// document answers a question.
func (s *Server) document(kind string) (json.RawMessage, error) {
	f, ok := s.Documents[kind]
	if !ok {
		return nil, flex.Errorf(flex.CodeFailedPrecondition, "this flex2csi does not know requests of the kind %q; bring it to the release of who asks", kind)
	}
	document, err := f()
	if err != nil {
		return nil, err
	}
	return json.Marshal(document)
}

// authorise lets in root only (SO_PEERCRED).
func (s *Server) authorise(conn net.Conn) error {
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return errors.New("not a unix socket")
	}
	raw, err := unixConn.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if credErr != nil {
		return credErr
	}
	if cred.Uid != 0 && (s.AllowUID == 0 || int(cred.Uid) != s.AllowUID) {
		return fmt.Errorf("refused user %d (pid %d): only root may call", cred.Uid, cred.Pid)
	}
	return nil
}
