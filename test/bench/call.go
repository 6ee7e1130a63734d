package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cost is what a call took.
type cost struct {
	wall, cpu        time.Duration
	faults, switches int64
}

func (c cost) plus(d cost) cost {
	return cost{c.wall + d.wall, c.cpu + d.cpu, c.faults + d.faults, c.switches + d.switches}
}

// A program is started as the kubelet starts a driver: standard output and
// error in one pipe, read to its end.
type program struct {
	path string
	env  []string
	want string // in the output; nothing means that nothing may be there
}

// call runs the program once. It uses fork, exec and wait4 by themselves,
// because the goroutines of package os/exec would be measured, too.
func (p program) call(args ...string) (cost, error) {
	r, w, err := pipe()
	if err != nil {
		return cost{}, err
	}
	defer unix.Close(r)
	start := time.Now()
	pid, err := p.start(args, w, false)
	unix.Close(w)
	if err != nil {
		return cost{}, err
	}
	output, readErr := readAll(r)
	var usage unix.Rusage
	status, waitErr := wait(pid, &usage)
	took := time.Since(start)
	if err := errors.Join(readErr, waitErr, p.judge(args, status, output)); err != nil {
		return cost{}, err
	}
	return cost{
		wall: took, cpu: time.Duration(usage.Utime.Nano() + usage.Stime.Nano()),
		faults: usage.Minflt + usage.Majflt, switches: usage.Nvcsw + usage.Nivcsw,
	}, nil
}

// judge makes sure that what was measured did its work.
func (p program) judge(args []string, status unix.WaitStatus, output []byte) error {
	found := bytes.Contains(output, []byte(p.want))
	if status.Exited() && status.ExitStatus() == 0 && found && (p.want != "" || len(output) == 0) {
		return nil
	}
	return fmt.Errorf("%s %s ended with status %d and said: %s", filepath.Base(p.path), strings.Join(args, " "), status.ExitStatus(), bytes.TrimSpace(output))
}

func pipe() (r, w int, err error) {
	var fds [2]int
	err = unix.Pipe2(fds[:], unix.O_CLOEXEC)
	return fds[0], fds[1], err
}

// start starts the program with w as standard output and error, and nothing to
// read.
func (p program) start(args []string, w int, trace bool) (pid int, err error) {
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(null)
	pid, err = syscall.ForkExec(p.path, append([]string{p.path}, args...), &syscall.ProcAttr{
		Env:   p.env,
		Files: []uintptr{uintptr(null), uintptr(w), uintptr(w)},
		Sys:   &syscall.SysProcAttr{Ptrace: trace},
	})
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", p.path, err)
	}
	return pid, nil
}

func wait(pid int, usage *unix.Rusage) (status unix.WaitStatus, err error) {
	for {
		_, err = unix.Wait4(pid, &status, 0, usage)
		if !errors.Is(err, unix.EINTR) {
			return status, err
		}
	}
}

func readAll(fd int) ([]byte, error) {
	var all []byte
	buf := make([]byte, 8192)
	for {
		n, err := unix.Read(fd, buf)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return all, err
		case n == 0:
			return all, nil
		default:
			all = append(all, buf[:n]...)
		}
	}
}

// memory is in bytes.
type memory struct {
	peak    int64 // resident
	private int64 // of it, what is not the mapped file, at the end
}

// peak returns the peak memory of a call. The figure of wait4 includes the parent: the
// child shares its memory until exec (fs/exec.c, exec_mmap). So the child is stopped
// before its exit and examined.
func (p program) peak(args ...string) (memory, error) {
	runtime.LockOSThread() // only the thread that started it may trace it
	defer runtime.UnlockOSThread()
	r, w, err := pipe()
	if err != nil {
		return memory{}, err
	}
	defer unix.Close(r)
	pid, err := p.start(args, w, true)
	unix.Close(w)
	if err != nil {
		return memory{}, err
	}
	if _, err := wait(pid, nil); err != nil { // stopped at exec
		return memory{}, err
	}
	if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACEEXIT|unix.PTRACE_O_EXITKILL); err != nil {
		return memory{}, err
	}
	var most memory
	for signal := 0; ; {
		if err := unix.PtraceCont(pid, signal); err != nil {
			return memory{}, err
		}
		status, err := wait(pid, nil)
		if err != nil {
			return memory{}, err
		}
		if !status.Stopped() {
			output, err := readAll(r)
			return most, errors.Join(err, p.judge(args, status, output))
		}
		signal = int(status.StopSignal())
		if status.TrapCause() == unix.PTRACE_EVENT_EXIT {
			signal = 0
			if most, err = memoryOf(pid); err != nil {
				return memory{}, err
			}
		}
	}
}

func memoryOf(pid int) (m memory, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return m, err
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch name {
		case "VmHWM":
			m.peak = kib << 10
		case "RssAnon":
			m.private = kib << 10
		}
	}
	if m.peak == 0 {
		return m, errors.New("the kernel tells no VmHWM")
	}
	return m, nil
}
