package trace

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Guard looks at what a watched program and its children do. It may stop
// them: false ends the program before the kernel has done what it asks for.
type Guard interface {
	// Exec is called when a process has another program, of which no
	// instruction has run yet.
	Exec(p Process) bool
	// Before is called before each selected system call.
	Before(c *Call) bool
	// After is called when one has come back for which Before has set c.Await.
	After(c *Call) bool
}

// A Process is one that is stopped.
type Process struct {
	// ID is that of the thread, for /proc, and PID that of the process.
	ID, PID int
}

// Link is what a link in the process's directory of /proc leads to, or "".
func (p Process) Link(name string) string {
	to, _ := os.Readlink(fmt.Sprintf("/proc/%d/%s", p.ID, name))
	return to
}

// Ends reports whether the thread is at its end: it was killed, or another one has ended its process.
// Then it loses its files and its directory while /proc is asked about them.
func (p Process) Ends() bool {
	const exiting = 4 // PF_EXITING
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.ID))
	// proc_pid_stat(5): after the program's name in parentheses the flags are the seventh.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if err != nil || len(fields) < 7 {
		return true
	}
	flags, err := strconv.Atoi(fields[6])
	return err == nil && flags&exiting != 0
}

// A Call is a system call of a stopped process.
type Call struct {
	Process
	Nr   uint64
	Args [6]uint64
	// Await asks for After as well.
	Await bool
	// Result is what the call has returned, and Errno the error, in After.
	Result int64
	Errno  unix.Errno
}

// Text is the string that an argument, counted from 0, points to.
func (c *Call) Text(i int) string { return stringAt(c.ID, c.Args[i]) }

// Memory is what an argument points to.
func (c *Call) Memory(i, length int) []byte {
	buf := make([]byte, length)
	local := []unix.Iovec{{Base: &buf[0]}}
	local[0].SetLen(length)
	n, _ := unix.ProcessVMReadv(c.ID, local, []unix.RemoteIovec{{Base: uintptr(c.Args[i]), Len: length}}, 0)
	return buf[:max(n, 0)]
}

// A Watcher runs programs and shows a guard what they do. Unlike a [Tracer] it
// stops them only for selected system calls, by a filter in the kernel
// (seccomp(2)), so that all others are as fast as ever.
type Watcher struct {
	jobs    chan *job
	asked   chan func() bool
	answers chan bool
	done    chan error
}

// A Watched is what became of a program.
type Watched struct {
	Answer []byte // on standard output and standard error
	Status syscall.WaitStatus
	Late   bool // it was ended, since its time was over
}

type job struct {
	path      string
	argv, env []string
	patience  time.Duration
	guard     Guard
	files     []*os.File
	result    Watched

	leader  int
	threads map[int]*watchedThread
}

type watchedThread struct {
	Process
	call *Call // that it is in, if the guard awaits it
}

// NewWatcher returns one with a thread of its own, where the filter is: what a
// thread starts has its filter. Close ends it.
func NewWatcher(selected []Selection) (*Watcher, error) {
	w := &Watcher{jobs: make(chan *job), asked: make(chan func() bool), answers: make(chan bool), done: make(chan error)}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its filter
		err := confine(selected)
		w.done <- err
		if err != nil {
			return
		}
		for j := range w.jobs {
			w.done <- w.watch(j)
		}
	}()
	return w, <-w.done
}

// Close ends the thread.
func (w *Watcher) Close() { close(w.jobs) }

// Run runs a program to its end, and its children with it. The guard is asked
// on the caller's thread: on the other one it could not even open a file.
func (w *Watcher) Run(path string, argv, env []string, patience time.Duration, guard Guard) (*Watched, error) {
	output, err := newAnswer()
	if err != nil {
		return nil, err
	}
	defer output.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	j := &job{path: path, argv: argv, env: env, patience: patience, guard: guard, files: []*os.File{null, output, output}}
	w.jobs <- j
	for {
		select {
		case question := <-w.asked:
			w.answers <- question()
		case err := <-w.done:
			if err != nil {
				return nil, fmt.Errorf("watch %s: %w", path, err)
			}
			j.result.Answer, err = contentOf(output)
			return &j.result, err
		}
	}
}

// contentOf is all that was written, within reason.
func contentOf(output *os.File) ([]byte, error) {
	st, err := output.Stat()
	if err != nil {
		return nil, err
	}
	text := make([]byte, min(st.Size(), 4<<20))
	n, err := output.ReadAt(text, 0)
	if n == len(text) {
		err = nil
	}
	return text[:n], err
}

func (w *Watcher) ask(question func() bool) bool {
	w.asked <- question
	return <-w.answers
}

func (w *Watcher) watch(j *job) error {
	process, err := os.StartProcess(j.path, j.argv, &os.ProcAttr{Env: j.env, Files: j.files, Sys: &syscall.SysProcAttr{Ptrace: true, Setpgid: true}})
	if err != nil {
		return err
	}
	defer func() { _ = process.Release() }()
	j.leader = process.Pid
	j.threads = map[int]*watchedThread{j.leader: {Process: Process{ID: j.leader, PID: j.leader}}}
	var status unix.WaitStatus
	if _, err := unix.Wait4(j.leader, &status, unix.WALL, nil); err != nil {
		return fmt.Errorf("wait for the start: %w", err)
	}
	const options = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_EXITKILL | unix.PTRACE_O_TRACESECCOMP |
		unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_TRACEEXEC
	if err := unix.PtraceSetOptions(j.leader, options); err != nil {
		return errors.Join(err, process.Kill())
	}
	late := make(chan bool, 1)
	timer := time.AfterFunc(j.patience, func() { late <- true; _ = process.Kill() })
	defer timer.Stop()
	_ = unix.PtraceCont(j.leader, 0)
	err = w.loop(j)
	j.result.Late = len(late) > 0
	return err
}

func (w *Watcher) loop(j *job) error {
	for len(j.threads) > 0 {
		var status unix.WaitStatus
		tid, err := unix.Wait4(-1, &status, unix.WALL|unix.WNOTHREAD, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ECHILD):
			return nil
		case err != nil:
			return err
		case status.Exited() || status.Signaled():
			delete(j.threads, tid)
			if tid == j.leader {
				j.result.Status = syscall.WaitStatus(status)
				j.end()
			}
		case status.Stopped():
			w.stopped(j, tid, status)
		}
	}
	return nil
}

// end kills what is left of the program.
func (j *job) end() {
	for _, t := range j.threads {
		_ = unix.Kill(t.PID, unix.SIGKILL)
	}
}

// thread returns what is known of a thread, and has a worker ask /proc about a
// new one: it can stop for the first time before its maker tells of it.
func (w *Watcher) thread(j *job, tid int) *watchedThread {
	t := j.threads[tid]
	if t == nil {
		t = &watchedThread{Process: Process{ID: tid}}
		w.ask(func() bool { t.PID = processOf(tid); return true })
		j.threads[tid] = t
	}
	return t
}

// stopped deals with one stop of one thread and lets it go on.
func (w *Watcher) stopped(j *job, tid int, status unix.WaitStatus) {
	t := w.thread(j, tid)
	goOn, signal := true, 0
	switch s := status.StopSignal(); {
	case s == unix.SIGTRAP|0x80:
		goOn = w.returned(j, t)
	case s == unix.SIGTRAP && status.TrapCause() == unix.PTRACE_EVENT_EXEC:
		t.PID = tid
		goOn = w.ask(func() bool { return j.guard.Exec(t.Process) })
	case s == unix.SIGTRAP && status.TrapCause() == unix.PTRACE_EVENT_SECCOMP:
		goOn = w.begins(j, t)
	case s == unix.SIGTRAP && status.TrapCause() > 0:
		// A new thread or child, which stops by itself.
	case s == unix.SIGSTOP:
		// How it reports for the first time.
	default:
		signal = int(s)
	}
	switch { // what fails here concerns a thread that is being killed
	case !goOn:
		j.end()
	case t.call != nil:
		_ = unix.PtraceSyscall(tid, signal)
	default:
		_ = unix.PtraceCont(tid, signal)
	}
}

func (w *Watcher) begins(j *job, t *watchedThread) bool {
	var info syscallInfo
	if err := info.read(t.ID); err != nil || info.op != unix.PTRACE_SYSCALL_INFO_SECCOMP {
		return err != nil // killed meanwhile
	}
	c := &Call{Process: t.Process, Nr: info.nr(), Args: info.args()}
	goOn := w.ask(func() bool { return j.guard.Before(c) })
	t.call = nil
	if c.Await {
		t.call = c
	}
	return goOn
}

func (w *Watcher) returned(j *job, t *watchedThread) bool {
	c := t.call
	t.call = nil
	var info syscallInfo
	if err := info.read(t.ID); err != nil || c == nil {
		return true
	}
	c.Result, c.Errno = int64(info.fields[0]), info.errno()
	return w.ask(func() bool { return j.guard.After(c) })
}
