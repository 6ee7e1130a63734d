package node

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// initialise is the first process in the namespaces. It makes a machine of
// them, starts the program once more and reaps orphans.
// When it ends the kernel kills everything in the node.
func initialise(dir string) (status int, err error) {
	if err := cgroups(dir).join(); err != nil {
		return 0, err
	}
	if err := mountAll(dir); err != nil {
		return 0, err
	}
	if err := unix.Sethostname([]byte(Name)); err != nil {
		return 0, fmt.Errorf("set the host's name: %w", err)
	}
	if err := addAddresses(); err != nil {
		return 0, err
	}
	if err := os.Setenv(envStage, stageInside); err != nil {
		return 0, err
	}
	exe, err := os.Executable()
	if err != nil {
		return 0, err
	}
	child, err := os.StartProcess(exe, os.Args, &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, //nolint:forbidigo // it is this program once more
	})
	if err != nil {
		return 0, err
	}
	// pid 1 gets no signal that it does not handle.
	stop := passSignals(func(s os.Signal) { _ = unix.Kill(child.Pid, s.(syscall.Signal)) })
	defer stop()
	return reap(child.Pid)
}

// reap waits for all orphans until the child ends.
func reap(child int) (status int, err error) {
	for {
		var w syscall.WaitStatus
		switch pid, err := syscall.Wait4(-1, &w, 0, nil); {
		case err == unix.EINTR: //nolint:errorlint // a number
		case err != nil:
			return 0, fmt.Errorf("wait for processes: %w", err)
		case pid == child && (w.Exited() || w.Signaled()):
			return statusOf(w), nil
		}
	}
}
