package controlplane

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// envPrograms is the directory with the programs.
const envPrograms = "FLEX_PROGRAMS"

// A Part is one program of the control plane. It can be ended and started again
// while the others stay.
type Part struct {
	name string
	argv []string
	log  string
	// ready waits until the program works; nil: it does at once.
	ready func() error

	mu   sync.Mutex
	cmd  *exec.Cmd // nil: does not run
	done chan struct{}
}

// Program describes a program of $FLEX_PROGRAMS: one of the control plane's, or
// another that is to end with the test.
func (p *Plane) Program(name string, args ...string) *Part {
	p.t.Helper()
	log, err := os.CreateTemp(p.dir, name+"-*.log")
	p.check(err)
	p.check(log.Close())
	return &Part{name: name, argv: append([]string{filepath.Join(os.Getenv(envPrograms), name)}, args...), log: log.Name()}
}

// Start starts the program and waits until it works. It does nothing when the
// program runs already.
func (p *Part) Start() error {
	started, err := p.launch()
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	if !started || p.ready == nil {
		return nil
	}
	if err := p.ready(); err != nil {
		return fmt.Errorf("%s does not get ready: %w; it said:\n%s", p.name, err, p.tail())
	}
	return nil
}

func (p *Part) launch() (started bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		return false, nil
	}
	log, err := os.OpenFile(p.log, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return false, err
	}
	defer log.Close() // the program has its own
	cmd, done, result := exec.Command(p.argv[0], p.argv[1:]...), make(chan struct{}), make(chan error)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, filepath.Dir(p.log)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL, Setpgid: true}
	go func() {
		runtime.LockOSThread() // Pdeathsig follows the thread that forked
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		result <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
			close(done)
		}
	}()
	if err := <-result; err != nil {
		return false, err
	}
	p.cmd, p.done = cmd, done
	return true, nil
}

// Kill ends the program as a crash of its container would, with all that it has
// started, and waits until it is gone.
func (p *Part) Kill() {
	p.end(func(pid int) error { return unix.Kill(-pid, unix.SIGKILL) })
}

// Stop asks the program to end and waits until it has.
func (p *Part) Stop() {
	p.end(func(pid int) error { return unix.Kill(pid, unix.SIGTERM) })
}

func (p *Part) end(signal func(pid int) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return
	}
	select {
	case <-p.done: // by itself: its number may be another's by now
	default:
		_ = signal(p.cmd.Process.Pid) // it may be about to end
	}
	<-p.done
	p.cmd = nil
}

// Restart is Kill and Start.
func (p *Part) Restart() error {
	p.Kill()
	return p.Start()
}

// ended says whether the program ended by itself.
func (p *Part) ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return true
	}
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// tailSize is how much of a log a failed test shows.
const tailSize = 4 << 10

// tail is the end of the program's log.
func (p *Part) tail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-tailSize):])
}
