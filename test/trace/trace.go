// Package trace runs a program under ptrace(2). A [Tracer] kills it when it has
// made a certain system call: for tests of what a killed program leaves. A
// [Watcher] shows what it and its children are about to do: for tests of what
// they may not.
//
// # When not to use it
//
// A traced program is many times slower, one that is watched only as far as it
// makes the system calls that are watched for. What happens at a time, rather
// than at a system call, is for a timer.
package trace

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// answerLink begins the link of the descriptor that gets the program's output.
const answerLink = "/memfd:answer"

// childPatience is how long a child may live after the program was killed. One
// that is told to end by the kernel needs a few milliseconds.
const childPatience = 3 * time.Second

// A Step is one system call that a traced process has made, as it comes back.
type Step struct {
	// Program is the Tracer's Name, or the name of a child.
	Program string
	Class   Class
	// What describes the call: "move_mount …/v1".
	What string
}

func (s Step) String() string { return s.Program + ": " + s.What }

// A Victim decides about each step, but those that are private, whether the
// world ends there.
type Victim interface {
	// After returns whom to kill.
	After(s Step) Target
}

// A Target is who is killed.
type Target int

// The targets.
const (
	None   Target = iota
	Leader        // the program
	Child         // the one that made the step
)

// A Result is what became of a program that ran under trace.
type Result struct {
	Steps  []Step
	Killed bool   // the program was killed
	Hit    Step   // after this
	Answer string // on standard output and standard error
	Took   time.Duration
	// Survivors are children that did not die with the program.
	Survivors []string
}

// A Tracer runs one program once.
type Tracer struct {
	// Name is what steps of the program itself are called by.
	Name string
	// Follow traces the program's children as well.
	Follow bool
	Victim Victim
	// KillAfter, if not 0, kills the program when so much time has passed.
	KillAfter time.Duration
	// Sockets has what goes out through sockets count as changing the world:
	// another process is at the other end.
	Sockets bool
	// OnStart, if set, is called with the program once it runs.
	OnStart func(p *os.Process)

	table   table
	result  Result
	leader  int
	own     string // the program's file: what a child runs until it is born
	process *os.Process
	threads map[int]*thread
	dying   bool
}

// A thread is one that is traced.
type thread struct {
	program string
	process int
	pending *Step // the system call that it is in
	// unborn: a child of the driver that has not begun its program yet. It
	// still runs the driver's code, which ends it if the driver is gone.
	unborn bool
}

// OnThread calls do on a thread of its own, which then ends. For the kernel a
// child belongs to the thread that started it, and a tracer waits for any child
// of its thread: the threads must not be shared.
func OnThread(do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked
		done <- do()
	}()
	return <-done
}

// Run traces a process from its start to its end.
func (tr *Tracer) Run(path string, argv, env []string) (*Result, error) {
	tr.table = newTable()
	if err := OnThread(func() error { return tr.trace(path, argv, env) }); err != nil {
		return nil, fmt.Errorf("trace %s: %w", path, err)
	}
	return &tr.result, nil
}

func (tr *Tracer) trace(path string, argv, env []string) error {
	output, err := newAnswer()
	if err != nil {
		return err
	}
	defer output.Close()
	start := time.Now()
	if err := tr.start(path, argv, env, output); err != nil {
		return err
	}
	defer func() { _ = tr.process.Release() }()
	if tr.KillAfter > 0 {
		timer := time.AfterFunc(tr.KillAfter, func() { _ = tr.process.Kill() })
		defer timer.Stop()
	}
	if err := tr.loop(); err != nil {
		_ = tr.process.Kill()
		return err
	}
	tr.result.Took = time.Since(start)
	text := make([]byte, 64<<10)
	n, _ := output.ReadAt(text, 0)
	tr.result.Answer = string(text[:n])
	return nil
}

// newAnswer makes a file for the driver's output: unlike a pipe it needs no
// reader, and a child that has it open delays no process.
func newAnswer() (*os.File, error) {
	fd, err := unix.MemfdCreate(strings.TrimPrefix(answerLink, "/memfd:"), unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), answerLink), nil
}

func (tr *Tracer) start(path string, argv, env []string, output *os.File) error {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	tr.process, err = os.StartProcess(path, argv, &os.ProcAttr{
		Env:   env,
		Files: []*os.File{null, output, output},
		Sys:   &syscall.SysProcAttr{Ptrace: true},
	})
	if err != nil {
		return err
	}
	tr.leader = tr.process.Pid
	tr.threads = map[int]*thread{tr.leader: {program: tr.Name, process: tr.leader}}
	var status unix.WaitStatus
	if _, err := unix.Wait4(tr.leader, &status, unix.WALL, nil); err != nil {
		return fmt.Errorf("wait for the start: %w", err)
	}
	tr.own = programOf(tr.leader) // now: of a dead process it is not known
	options := unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_EXITKILL | unix.PTRACE_O_TRACECLONE
	if tr.Follow {
		options |= unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_TRACEEXEC
	}
	if err := unix.PtraceSetOptions(tr.leader, options); err != nil {
		return err
	}
	if tr.OnStart != nil {
		tr.OnStart(tr.process)
	}
	tr.step(tr.leader, Step{Program: tr.Name, Class: Changing, What: "exec"})
	tr.resume(tr.leader, 0)
	return nil
}

// loop handles stops until no traced process is left.
func (tr *Tracer) loop() error {
	var deadline time.Time
	for len(tr.threads) > 0 {
		var status unix.WaitStatus
		flags := unix.WALL | unix.WNOTHREAD
		if !deadline.IsZero() {
			flags |= unix.WNOHANG
		}
		tid, err := unix.Wait4(-1, &status, flags, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ECHILD):
			return nil
		case err != nil:
			return err
		case tid == 0 && time.Now().After(deadline):
			tr.endSurvivors()
		case tid == 0:
			time.Sleep(100 * time.Microsecond)
		case status.Exited() || status.Signaled():
			delete(tr.threads, tid)
			if tid == tr.leader {
				tr.leaderEnded(status)
				deadline = time.Now().Add(childPatience)
			}
		case status.Stopped():
			tr.stopped(tid, status)
		}
	}
	return nil
}

// leaderEnded: from here on no child is allowed to go on, so that one that the
// kernel does not end is found even if it would have ended soon by itself.
func (tr *Tracer) leaderEnded(status unix.WaitStatus) {
	tr.result.Killed = tr.result.Killed || status.Signaled() && status.Signal() == unix.SIGKILL
	tr.dying = tr.result.Killed
}

// endSurvivors notes which children are still there, and ends them.
func (tr *Tracer) endSurvivors() {
	for _, t := range tr.threads {
		if !slices.Contains(tr.result.Survivors, t.program) {
			tr.result.Survivors = append(tr.result.Survivors, t.program)
		}
		_ = unix.Kill(t.process, unix.SIGKILL)
	}
}

// stopped deals with one stop of one thread and lets it go on.
func (tr *Tracer) stopped(tid int, status unix.WaitStatus) {
	t := tr.thread(tid)
	deliver := 0
	switch signal := status.StopSignal(); {
	case signal == unix.SIGTRAP|0x80:
		tr.syscallStop(tid, t)
	case signal == unix.SIGTRAP && status.TrapCause() == unix.PTRACE_EVENT_EXEC:
		t.program, t.unborn = programOf(tid), false
	case signal == unix.SIGTRAP && status.TrapCause() > 0:
		// A new thread or child; thread() finds out by itself.
	case signal == unix.SIGSTOP:
		// How a new thread or child reports for the first time.
	default:
		deliver = int(signal)
	}
	if !tr.dying || t.unborn {
		tr.resume(tid, deliver)
	}
}

// resume fails only for a thread that is being killed.
func (tr *Tracer) resume(tid, signal int) { _ = unix.PtraceSyscall(tid, signal) }

// thread returns what is known about a thread, and asks /proc about a new one.
func (tr *Tracer) thread(tid int) *thread {
	t := tr.threads[tid]
	if t == nil {
		t = &thread{program: tr.Name, process: processOf(tid)}
		if t.process != tr.leader {
			t.program = programOf(tid)
			t.unborn = t.program == tr.own
		}
		tr.threads[tid] = t
	}
	return t
}

// syscallStop is at the entry or at the end of a system call.
func (tr *Tracer) syscallStop(tid int, t *thread) {
	var info syscallInfo
	if err := info.read(tid); err != nil {
		return // killed meanwhile
	}
	switch info.op {
	case unix.PTRACE_SYSCALL_INFO_ENTRY:
		t.pending = tr.begin(tid, t, info.nr(), info.args())
		if t.pending != nil && info.nr() == unix.SYS_EXIT_GROUP {
			tr.step(tid, *t.pending) // it never comes back
		}
	case unix.PTRACE_SYSCALL_INFO_EXIT:
		if t.pending == nil {
			return
		}
		s := *t.pending
		t.pending = nil
		if errno := info.errno(); errno != 0 {
			s.Class = min(s.Class, Looking) // what failed has changed nothing
			s.What += " = " + errno.Error()
		}
		tr.step(tid, s)
	}
}

// step records a system call that has come back, and kills who should be.
func (tr *Tracer) step(tid int, s Step) {
	tr.result.Steps = append(tr.result.Steps, s)
	if tr.Victim == nil || tr.result.Killed {
		return
	}
	switch tr.Victim.After(s) {
	case Leader:
		tr.result.Killed, tr.result.Hit = true, s
		tr.dying = true
		_ = unix.Kill(tr.leader, unix.SIGKILL)
	case Child:
		tr.result.Hit = s
		_ = unix.Kill(tr.threads[tid].process, unix.SIGKILL)
	}
}

// begin describes a system call by its arguments; nil if it is private.
func (tr *Tracer) begin(tid int, t *thread, nr uint64, args [6]uint64) *Step {
	k := tr.table.of(nr)
	if k.class == Private {
		return nil
	}
	var link, path string
	what := k.name
	if k.fd > 0 {
		link, _ = os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", tid, int32(args[k.fd-1])))
		what += " " + link
	}
	if k.path > 0 {
		path = stringAt(tid, args[k.path-1])
		what += " " + path
	}
	if k.number > 0 {
		what += fmt.Sprintf(" %#x", args[k.number-1])
	}
	if k.class == Changing {
		k.class = tr.refine(nr, args, link, path)
	}
	if k.class == Private || nr == unix.SYS_READ && isPassing(link) {
		return nil
	}
	return &Step{Program: t.program, Class: k.class, What: what}
}
