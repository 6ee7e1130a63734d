package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Process is a program that ends with the test, whatever way that ends.
type Process struct {
	*exec.Cmd
	log string
}

// Start starts a program that writes to a log, and returns when it listens at a socket;
// empty: it is not waited for.
func Start(cmd *exec.Cmd, log, socket string) (*Process, error) {
	p := &Process{cmd, log}
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove the socket of the process before: %w", err)
	}
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	cmd.Stdout, cmd.Stderr = f, f
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if err := p.listens(socket); err != nil {
		_ = p.End(unix.SIGKILL)
		return nil, err
	}
	return p, nil
}

func (p *Process) listens(socket string) error {
	for deadline := time.Now().Add(Patience); socket != ""; time.Sleep(time.Millisecond) {
		if unix.Access(socket, unix.F_OK) == nil {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s does not listen after %v: %s", filepath.Base(p.Path), Patience, p.Said(2000))
		}
	}
	return nil
}

// End ends the process unless it has ended, and returns what it says of that. One that
// was killed says nothing.
func (p *Process) End(signal syscall.Signal) error {
	if p == nil || p.ProcessState != nil {
		return nil
	}
	if err := p.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if err := p.Wait(); err != nil && signal != unix.SIGKILL {
		return fmt.Errorf("%s: %w: %s", filepath.Base(p.Path), err, p.Said(2000))
	}
	return nil
}

// Said is the end of its log, at most so many bytes of it.
func (p *Process) Said(bytes int) string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-bytes):])
}
