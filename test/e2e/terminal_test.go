package e2e

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A session is a program on a terminal of its own, below a shell, as sshd has it.
type session struct {
	t      *T
	screen *os.File
	// ended is closed when shell and program have ended.
	ended chan struct{}

	mu   sync.Mutex
	said strings.Builder
}

// session starts a program on a terminal. With its screen closed the kernel and the shell's end
// send SIGHUP, and each write to the terminal fails.
func (t *T) session(argv ...string) *session {
	t.Helper()
	screen, tty, err := openTerminal()
	t.must(err)
	defer tty.Close()
	alive, held, err := os.Pipe()
	t.must(err)
	// Not exec: the shell leads the session, and the program is a job of it.
	shell := exec.CommandContext(t.ctx(), "/bin/sh", append([]string{"-c", `"$@"; exit $?`, "sh"}, argv...)...)
	shell.Stdin, shell.Stdout, shell.Stderr = tty, tty, tty
	shell.ExtraFiles = []*os.File{held} // which its last process closes
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	// A test that was started with nohup ignores SIGHUP, as would all that it starts.
	hangUps := make(chan os.Signal, 1)
	signal.Notify(hangUps, unix.SIGHUP)
	err = shell.Start()
	signal.Stop(hangUps)
	t.must(errors.Join(err, held.Close()))
	s := &session{t: t, screen: screen, ended: make(chan struct{})}
	go func() { _, _ = io.Copy(s, screen) }() // until one of the two ends
	go func() {
		defer close(s.ended)
		_, _ = io.Copy(io.Discard, alive)
		_ = shell.Wait() // by a signal, mostly
		alive.Close()
	}()
	return s
}

// openTerminal makes a pseudo-terminal (pts(4)).
func openTerminal() (screen, tty *os.File, err error) {
	screen, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	conn, err := screen.SyscallConn() // Fd would have a read keep the screen open
	if err != nil {
		return nil, nil, err
	}
	number := uint32(0)
	var failed error
	err = conn.Control(func(fd uintptr) {
		failed = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0)
		if failed == nil {
			number, failed = unix.IoctlGetUint32(int(fd), unix.TIOCGPTN)
		}
	})
	if err := errors.Join(err, failed); err != nil {
		return nil, nil, errors.Join(err, screen.Close())
	}
	tty, err = os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY, 0)
	return screen, tty, err
}

func (s *session) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.said.Write(p)
}

// text is what has been on the screen.
func (s *session) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.said.String()
}

// answer types a line when the program has asked for it.
func (s *session) answer(question, line string) {
	s.t.Helper()
	s.t.wait("the question "+question, func() error {
		if !strings.Contains(s.text(), question) {
			return errors.New(s.text())
		}
		return nil
	})
	_, err := io.WriteString(s.screen, line+"\n")
	s.t.must(err)
}

// wantEnd waits until shell and program have ended.
func (s *session) wantEnd(patience time.Duration) {
	s.t.Helper()
	select {
	case <-s.ended:
	case <-time.After(patience):
		s.t.Fatalf("the command does not end within %s", patience)
	}
}
