package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// envInside marks a process that Isolate has dealt with. Processes that the
	// tests start inherit it, so that a test binary which executes itself again
	// (a helper process, a fuzz worker) stays in the namespace it is in.
	envInside = "FLEX_TESTENV_INSIDE"
	// envReason says why there is no private mount namespace, if there is none.
	envReason = "FLEX_TESTENV_REASON"
)

// TestingM is the part of *testing.M that matters here. It is also what
// testscript.Main takes.
type TestingM interface{ Run() int }

// Main runs m isolated and ends the process with its exit status:
//
//	func TestMain(m *testing.M) { testenv.Main(m) }
func Main(m TestingM) { os.Exit(Isolate(m).Run()) }

// Isolate returns an m that runs in a private mount namespace. Use it
// where something else wants to run m, as testscript does:
//
//	func TestMain(m *testing.M) {
//		testscript.Main(testenv.Isolate(m), map[string]func(){"flexdriver": main})
//	}
func Isolate(m TestingM) TestingM { return isolated{m} }

// Isolated says that this process was started in a private mount namespace.
func Isolated() { os.Setenv(envInside, "1") }

type isolated struct{ m TestingM }

// Run executes the test binary again in new namespaces and waits for it. It
// does not unshare in this process: unshare(2) changes one thread, and the Go
// runtime starts programs from any of them, which then see different mounts.
func (i isolated) Run() int {
	if os.Getenv(envInside) != "" {
		return i.m.Run()
	}
	// The kernel sends Pdeathsig when the thread that forked ends, not the
	// process, so this goroutine keeps its thread until the child is done.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	cmd, err := start()
	if err == nil {
		return wait(cmd)
	}
	// Not fatal: most tests mount nothing, and those that do say why not.
	os.Setenv(envInside, "1")
	os.Setenv(envReason, err.Error())
	return i.m.Run()
}

// start runs the test binary again, in the best namespaces that are available.
func start() (*exec.Cmd, error) {
	// With Unshareflags (not Cloneflags) package syscall also makes every
	// mount private, recursively, before it executes the program.
	tries := []*syscall.SysProcAttr{{
		Unshareflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings:  []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
		GidMappings:  []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
	}}
	if os.Geteuid() == 0 {
		tries = append([]*syscall.SysProcAttr{{Unshareflags: unix.CLONE_NEWNS}}, tries...)
	}

	var errs []error
	for _, attr := range tries {
		attr.Pdeathsig = unix.SIGKILL
		cmd, err := startIn(attr)
		if err == nil {
			return cmd, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("no private mount namespace: %w", errors.Join(errs...))
}

func startIn(attr *syscall.SysProcAttr) (*exec.Cmd, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the test binary: %w", err)
	}
	cmd := exec.Command(exe)
	cmd.Args = os.Args
	cmd.Env = append(os.Environ(), envInside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = attr
	return cmd, cmd.Start()
}

// wait returns the exit status of cmd. Signals to this process go on to cmd:
// go test asks a test that is too slow for its stacks with SIGQUIT.
func wait(cmd *exec.Cmd) int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT)
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s) // it may be gone by now
		}
	}()
	defer func() { signal.Stop(signals); close(signals) }()

	if err := cmd.Wait(); err != nil && cmd.ProcessState == nil {
		return 1
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return cmd.ProcessState.ExitCode()
}
