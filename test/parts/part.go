package parts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stopPatience is how long a program that is asked to end may take.
const stopPatience = 30 * time.Second

// A Part is one program of a cluster. It can be ended and started again while
// the others stay.
type Part struct {
	Name string
	// Argv is the program's path and its arguments.
	Argv []string
	// Env is its environment; nil: that of this process.
	Env []string
	// Log is the file that gets what it says, in its working directory.
	Log string
	// Ready waits until the program works; nil: it does at once.
	Ready func() error
	// Again is after what time the program is started again when it has ended by
	// itself, as systemd does; 0: it is not.
	Again time.Duration

	mu   sync.Mutex
	cmd  *exec.Cmd // nil: does not run
	done chan struct{}
	ends int
}

// Start starts the program and waits until it works. It does nothing when the
// program runs already.
func (p *Part) Start() error {
	started, err := p.launch()
	if err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	if !started || p.Ready == nil {
		return nil
	}
	if err := p.Ready(); err != nil {
		return fmt.Errorf("%s does not get ready: %w; it said:\n%s", p.Name, err, p.Tail())
	}
	return nil
}

func (p *Part) launch() (started bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		return false, nil
	}
	log, err := os.OpenFile(p.Log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return false, err
	}
	defer log.Close() // the program has its own
	cmd, done, result := exec.Command(p.Argv[0], p.Argv[1:]...), make(chan struct{}), make(chan error)
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.Env = log, log, filepath.Dir(p.Log), p.Env
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL, Setpgid: true}
	go func() {
		runtime.LockOSThread() // Pdeathsig follows the thread that forked
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		result <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
			close(done)
			p.again(cmd)
		}
	}()
	if err := <-result; err != nil {
		return false, err
	}
	p.cmd, p.done = cmd, done
	return true, nil
}

// again starts a program that has ended by itself.
func (p *Part) again(ended *exec.Cmd) {
	if p.Again == 0 {
		return
	}
	time.Sleep(p.Again)
	p.mu.Lock()
	byItself := p.cmd == ended
	if byItself {
		p.cmd = nil
		p.ends++
	}
	p.mu.Unlock()
	if byItself {
		_, _ = p.launch() // else it does not run, and the node is not ready
	}
}

// Ends is how often the program has ended by itself and was started again.
func (p *Part) Ends() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ends
}

// Kill ends the program as a crash of its container would, with all that it has
// started, and waits until it is gone.
func (p *Part) Kill() {
	p.end(func(pid int) error { return unix.Kill(-pid, unix.SIGKILL) })
}

// Stop asks the program to end and waits until it has. If it does not, it is
// killed.
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
	select {
	case <-p.done:
	case <-time.After(stopPatience):
		_ = unix.Kill(-p.cmd.Process.Pid, unix.SIGKILL)
		<-p.done
	}
	p.cmd = nil
}

// Restart is Kill and Start.
func (p *Part) Restart() error {
	p.Kill()
	return p.Start()
}

// Ended says whether the program does not run, be it that it ended by itself.
func (p *Part) Ended() bool {
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

// PID is the process's number, or zero if the program does not run.
func (p *Part) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// tailSize is how much of a log is shown when something went wrong.
const tailSize = 4 << 10

// Tail is the end of the program's log.
func (p *Part) Tail() string {
	text, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-tailSize):])
}
