package node

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// envStage says which of the three processes of Isolate this is.
	envStage    = "FLEX_NODE_STAGE"
	stageInit   = "init"
	stageInside = "inside"
	// envDir is the node's directory as the machine sees it.
	envDir = "FLEX_NODE_DIR"
)

// Isolate executes this program again, with the same arguments, inside a new
// node that keeps its files in dir, and returns the status with which it ended.
// There, Isolate calls run. So it has to be the first that a program does:
//
//	func main() { os.Exit(node.Isolate(dir(), os.Stderr, run)) }
//
// What is wrong with the node itself is told to stderr.
//
// Without a dir it makes one, which is gone afterwards.
//
// With the program everything ends that it has started, however it ends, and
// all mounts are gone. Two nodes with different directories know nothing of
// each other.
func Isolate(dir string, stderr io.Writer, run func() int) int {
	var status int
	var err error
	switch os.Getenv(envStage) {
	case stageInside:
		return run()
	case stageInit:
		status, err = initialise(os.Getenv(envDir))
	default:
		status, err = outside(dir)
	}
	if err != nil {
		fmt.Fprintf(stderr, "node: %v\n", err)
		return max(status, 1)
	}
	return status
}

// outside is what happens there.
func outside(dir string) (status int, err error) {
	if os.Geteuid() != 0 {
		return 0, errors.New("needs root, for namespaces and mounts: run it with sudo")
	}
	if dir != "" {
		dir, err = filepath.Abs(dir)
		if err != nil {
			return 0, err
		}
		return enter(dir)
	}
	dir, err = os.MkdirTemp("", "flex2csi-node")
	if err != nil {
		return 0, err
	}
	status, err = enter(dir)
	return status, errors.Join(err, os.RemoveAll(dir))
}

// enter starts the node's first process, waits for
// its end and removes what is not in a namespace.
func enter(dir string) (status int, err error) {
	l, err := lock(dir)
	if err != nil {
		return 0, err
	}
	defer l.Close()
	groups := cgroups(dir)
	if err := groups.make(); err != nil {
		return 0, err
	}
	status, err = again(dir)
	return status, errors.Join(err, groups.remove(), detachLoops(dir))
}

// again executes this program as the first process of new namespaces.
func again(dir string) (status int, err error) {
	exe, err := os.Executable()
	if err != nil {
		return 0, err
	}
	// Pdeathsig follows the thread that starts the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command(exe)
	cmd.Args = os.Args
	cmd.Env = append(os.Environ(), envStage+"="+stageInit, envDir+"="+dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr //nolint:forbidigo // it is this program once more
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		// With Unshareflags (not Cloneflags) package syscall also makes every
		// mount private.
		Unshareflags: unix.CLONE_NEWNS,
		Pdeathsig:    unix.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("make namespaces: %w", err)
	}
	r := running{Outside: os.Getpid(), Init: cmd.Process.Pid}
	if err := r.write(dir); err != nil {
		return 0, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	stop := passSignals(func(s os.Signal) { _ = cmd.Process.Signal(s) }) // it may be gone by now
	defer stop()
	err = cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	return statusOf(cmd.ProcessState.Sys().(syscall.WaitStatus)), nil
}

// passSignals passes on the signals of a terminal and of go test.
func passSignals(to func(os.Signal)) (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGHUP)
	go func() {
		for s := range signals {
			to(s)
		}
	}()
	return func() { signal.Stop(signals); close(signals) }
}

// statusOf is what a shell would say.
func statusOf(w syscall.WaitStatus) int {
	if w.Signaled() {
		return 128 + int(w.Signal())
	}
	return w.ExitStatus()
}
