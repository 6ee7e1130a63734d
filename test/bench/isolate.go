package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// envDir marks the process that measures, and says where it may write.
const envDir = "FLEX_BENCH_DIR"

// isolate executes this program again in a mount namespace of its own, in which
// it may mount as it likes. All of that goes with the namespace, so that what
// remains is a directory of plain files.
func isolate(ctx context.Context, stdout, stderr io.Writer) error {
	dir, err := os.MkdirTemp("", "flexdriver-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	// Pdeathsig follows the thread that starts the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, exe)
	cmd.Args = os.Args
	cmd.Env = append(os.Environ(), envDir+"="+dir)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.SysProcAttr = namespaces()
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case errors.As(err, &exit):
		return fmt.Errorf("the process that measures ended: %w", exit)
	}
	return err
}

// namespaces are those that this user may have. With Unshareflags package
// syscall makes all mounts private, too.
func namespaces() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	if os.Geteuid() != 0 {
		attr.Unshareflags |= unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	return attr
}

// A namespace is one more mount namespace: a thread that has it. What the
// thread starts is in it, too.
type namespace struct{ todo chan func() }

func newNamespace() (*namespace, error) {
	n := &namespace{todo: make(chan func())}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the namespace ends with the thread
		ready <- unix.Unshare(unix.CLONE_NEWNS)
		for do := range n.todo {
			do()
		}
	}()
	if err := <-ready; err != nil {
		return nil, fmt.Errorf("make a mount namespace: %w", err)
	}
	return n, nil
}

// do runs f in the namespace.
func (n *namespace) do(f func() error) error {
	done := make(chan error)
	n.todo <- func() { done <- f() }
	return <-done
}

func (n *namespace) close() { close(n.todo) }

// twoNamespaces are for what is compared with few mounts and with many.
func twoNamespaces() (few, many *namespace, closeBoth func(), err error) {
	if few, err = newNamespace(); err != nil {
		return nil, nil, nil, err
	}
	if many, err = newNamespace(); err != nil {
		few.close()
		return nil, nil, nil, err
	}
	return few, many, func() { few.close(); many.close() }, nil
}
