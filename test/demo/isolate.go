package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// envDir marks the process that tells the story, and says where it may write.
const envDir = "FLEX_DEMO_DIR"

// preflight says in one line what is missing.
func preflight(binaries ...string) error {
	if os.Geteuid() != 0 {
		return errors.New("needs root, for loop devices and mounts: run it with sudo")
	}
	for _, binary := range binaries {
		if _, err := os.Stat(binary); err != nil {
			return fmt.Errorf("%s is not there: run make demo, which builds it", binary)
		}
	}
	_ = exec.Command("modprobe", "--quiet", "loop").Run() // the next lines tell
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		return errors.New("this machine has no loop devices (/dev/loop-control)")
	}
	for _, program := range []string{"mkfs.ext4", "mkfs.xfs", "xfs_growfs"} {
		if !installed(program) {
			return fmt.Errorf("%s is not installed: make setup installs it (packages e2fsprogs and xfsprogs)", program)
		}
	}
	return nil
}

func installed(program string) bool {
	for dir := range strings.SplitSeq(searchPath, ":") {
		if _, err := os.Stat(filepath.Join(dir, program)); err == nil {
			return true
		}
	}
	return false
}

// isolate executes this program again in a mount namespace of its own, and
// looks afterwards whether anything is left outside of it.
func isolate(ended <-chan os.Signal, stdout, stderr io.Writer) error {
	dir, err := os.MkdirTemp("", "flexdriver-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	// Pdeathsig follows the thread that starts the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), envDir+"="+dir)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	// With Unshareflags package syscall makes all mounts private, too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("make a private mount namespace: %w", err)
	}
	go func() {
		<-ended
		_ = cmd.Process.Kill() // it may be done already
	}()
	if err := cmd.Wait(); err != nil {
		return ending(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("something is left: %w", err)
	}
	return nil
}

// ending is quiet where the story itself has said what went wrong.
func ending(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return errTold
	}
	return fmt.Errorf("interrupted (%w)", err)
}
