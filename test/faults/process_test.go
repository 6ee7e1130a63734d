package faults

import (
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A process is a program that is started again whenever it ends, as a node
// does with its daemons, unless it is held.
type process struct {
	command func() *exec.Cmd
	// ended hears of each end; asked says that the world wanted it.
	ended func(state *os.ProcessState, asked bool)

	mu    sync.Mutex
	held  bool
	asked bool
	cmd   *exec.Cmd     // nil: does not run
	done  chan struct{} // closed when cmd has ended
}

// restartPause is what a node takes to notice.
const restartPause = 5 * time.Millisecond

// start starts the program, unless it runs or is held.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held || p.cmd != nil {
		return nil
	}
	cmd, done, started := p.command(), make(chan struct{}), make(chan error)
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = unix.SIGKILL
	go func() {
		runtime.LockOSThread() // Pdeathsig follows the thread that forked
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // its state says it all
			p.over(cmd, done)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	p.cmd, p.done, p.asked = cmd, done, false
	return nil
}

// over is the end of one run of the program.
func (p *process) over(cmd *exec.Cmd, done chan struct{}) {
	p.mu.Lock()
	p.cmd = nil
	asked, held := p.asked, p.held
	p.mu.Unlock()
	close(done)
	if p.ended != nil {
		p.ended(cmd.ProcessState, asked)
	}
	if !held {
		time.Sleep(restartPause)
		_ = p.start() // the next look says what is wrong
	}
}

// hold ends the program with a signal, and keeps it down until release.
func (p *process) hold(signal syscall.Signal) {
	p.mu.Lock()
	p.held, p.asked = true, true
	cmd, done := p.cmd, p.done
	p.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Signal(signal) // it may be gone
	<-done
}

// signal sends a signal that does not end the program.
func (p *process) signal(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return os.ErrProcessDone
	}
	return p.cmd.Process.Signal(s)
}

// stop stops the process, and waits until it has: kill(2) returns when one thread
// has heard of SIGSTOP, and on a busy machine the others answer a call meanwhile.
func (p *process) stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return os.ErrProcessDone
	}
	if err := p.cmd.Process.Signal(unix.SIGSTOP); err != nil {
		return err
	}
	return unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
}

// release starts what was held.
func (p *process) release() error {
	p.mu.Lock()
	p.held = false
	p.mu.Unlock()
	return p.start()
}
