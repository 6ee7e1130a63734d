package mounter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	utilexec "k8s.io/utils/exec"
)

// A commander runs the programs of util-linux and of the filesystems. It is
// what k8s.io/mount-utils wants as its executor, with what that lacks:
//
//   - a child ends with the context (SIGTERM to its process group, so that a
//     filesystem check can stop in good order, then SIGKILL) and with this
//     process, however it ends;
//   - a child's output goes to memory rather than a pipe, so that a daemon
//     that a mount helper leaves running does not delay its caller, and is not
//     killed by SIGPIPE when it writes later;
//   - a child inherits nothing: its directory is empty, its environment and
//     the path where its programs are looked for are fixed, and it gets no
//     descriptors but the standard ones and child.files.
type commander struct {
	ctx context.Context //nolint:containedctx // utilexec.Interface has no place for it
	m   *Mounter
	// failed, if not nil, gets the program that failed last: mount-utils turns
	// that into text, which is no good to read.
	failed *failure
	// fsType, if not "", is that of the disk which mount-utils has checked.
	fsType string
	// keep refuses to format.
	keep bool
}

// why is what failed last, or err if no program did.
func (c commander) why(err error) error {
	if c.failed != nil && c.failed.err != nil {
		return c.failed
	}
	return err
}

// A failure is a program that failed, with what it said.
type failure struct {
	command string
	err     error
}

func (f *failure) Error() string { return f.command + ": " + f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// exitStatus is that of a program that failed, or -1.
func exitStatus(err error) int {
	var exit interface{ ExitStatus() int }
	if errors.As(err, &exit) {
		return exit.ExitStatus()
	}
	return -1
}

var _ utilexec.Interface = commander{}

// childGrace is the window from SIGTERM to SIGKILL: enough for a filesystem
// check to stop in good order, and over before a caller that was itself told to
// end has gone.
const childGrace = 200 * time.Millisecond

// What is kept of a child's output, for messages.
const maxOutput = 16 << 10

func (c commander) Command(name string, args ...string) utilexec.Cmd {
	if name == "fsck" && c.fsType != "" {
		// fsck(8) would start fsck.<type> as a child of its own, which does
		// not end with this process, and would go on writing after it.
		name += "." + c.fsType
	}
	return &child{commander: c, name: name, args: args}
}

func (c commander) CommandContext(ctx context.Context, name string, args ...string) utilexec.Cmd {
	c.ctx = ctx
	return c.Command(name, args...)
}

// LookPath finds a program by its name.
func (c commander) LookPath(name string) (string, error) {
	return lookIn(c.m.Programs+":"+searchPath, name)
}

// A child is one program run to its end. Only what mount-utils uses of
// utilexec.Cmd is implemented; the embedded nil interface stands for the rest.
type child struct {
	utilexec.Cmd
	commander
	name string
	args []string
	// files are inherited, with numbers from firstFile.
	files []*os.File
}

// firstFile is the descriptor that follows the standard ones.
const firstFile = 3

func (c *child) Run() error {
	_, err := c.CombinedOutput()
	return err
}

func (c *child) Output() ([]byte, error) { return c.CombinedOutput() }

// CombinedOutput runs the program and returns what it wrote. The errors are
// those of utilexec: an ExitError, or ErrExecutableNotFound.
func (c *child) CombinedOutput() ([]byte, error) {
	out, err := c.combinedOutput()
	if err != nil && c.failed != nil {
		*c.failed = failure{command: strings.Join(append([]string{c.name}, c.args...), " "), err: withOutput(err, out)}
	}
	return out, err
}

func (c *child) combinedOutput() ([]byte, error) {
	if c.keep && strings.HasPrefix(c.name, "mkfs.") {
		return nil, errKeeps
	}
	path, err := c.LookPath(c.name)
	if err != nil {
		return nil, because(err, "%s is not installed on this node (looked in %s)", c.name, searchPath)
	}
	for try := 1; ; try++ {
		text, err := c.run(path)
		if err == nil || try >= triesAfter(c.name, text) {
			return text, err
		}
		c.m.log().Warn("trying again: a program failed because of another one", "program", path, "said", oneLine(string(text)))
		select {
		case <-c.ctx.Done():
			return text, c.explain(path, c.ctx.Err())
		case <-time.After(tryWait):
		}
	}
}

// tryWait is the pause before a program is started again.
const tryWait = 100 * time.Millisecond

// triesAfter returns how often to start a program after a failure: several times if
// another program caused the failure, which is temporary, and once otherwise.
//
// mkfs.btrfs looks up all devices of the mount table before it writes, and fails if a
// loop device among them was detached meanwhile: its LOOP_GET_STATUS64 fails with ENXIO
// (btrfs-progs, check_mounted_where in common/open-utils.c, resolve_loop_device in
// common/path-utils.c).
//
// btrfs fails while the filesystem is being resized: the kernel completes a resize
// after the program that began it was killed.
func triesAfter(name string, output []byte) int {
	switch {
	case name == "mkfs.btrfs" && bytes.Contains(output, []byte("cannot check mount status of")):
		return 10
	case name == "btrfs" && bytes.Contains(output, []byte("another exclusive operation")):
		return 300
	}
	return 1
}

// run starts the program once.
func (c *child) run(path string) ([]byte, error) {
	out, err := newOutput()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	dir, err := emptyDirectory(c.name)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if err := keepDescriptors(); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(c.ctx, path, c.args...)
	cmd.Dir = fmt.Sprintf("/proc/self/fd/%d", dir.Fd()) // self is the child, before it loses the descriptor
	cmd.Env = childEnvironment()
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = out, out, c.files
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error {
		group := -cmd.Process.Pid
		time.AfterFunc(childGrace, func() { _ = syscall.Kill(group, syscall.SIGKILL) })
		return syscall.Kill(group, syscall.SIGTERM)
	}
	start := time.Now()
	err = runLocked(c.ctx, cmd)
	text := readOutput(out)
	log := c.m.log()
	if err != nil {
		log = log.With("error", err)
	}
	log.Debug("ran", "program", path, "duration", time.Since(start))
	return text, c.explain(path, err)
}

// runLocked runs cmd with the goroutine bound to its thread: the parent-death
// signal is sent when the thread that started the child ends.
func runLocked(ctx context.Context, cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return err
	}
	err := cmd.Wait()
	if ctx.Err() != nil {
		awaitGroup(cmd.Process.Pid)
	}
	return err
}

// awaitGroup waits for what a child started and left: mount(8) goes at once
// when it is told to, and its helper has its time to end in good order.
func awaitGroup(pgid int) {
	for late := time.Now().Add(2 * childGrace); time.Now().Before(late); time.Sleep(5 * time.Millisecond) {
		if errors.Is(syscall.Kill(-pgid, 0), syscall.ESRCH) {
			return
		}
	}
}

func (c *child) explain(path string, err error) error {
	if err == nil {
		return nil
	}
	if c.ctx.Err() != nil {
		return fmt.Errorf("%s was ended: %w", path, context.Cause(c.ctx))
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return &utilexec.ExitErrorWrapper{ExitError: exit}
	}
	return err
}

// newOutput makes a file in memory that can be closed to writers later.
func newOutput() (*os.File, error) {
	fd, err := unix.MemfdCreate("output", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make room for a child's output: %w", err)
	}
	return os.NewFile(uintptr(fd), "output"), nil
}

// readOutput returns the end of the output and refuses any more of it: who
// still has the file open must not fill the memory.
func readOutput(out *os.File) []byte {
	_, _ = unix.FcntlInt(out.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	size, err := out.Seek(0, io.SeekEnd)
	if err != nil {
		return nil
	}
	buf := make([]byte, min(size, maxOutput))
	n, _ := out.ReadAt(buf, size-int64(len(buf)))
	return buf[:n]
}

// withOutput adds what a program said to the error it ended with.
func withOutput(err error, output []byte) error {
	text := oneLine(string(output))
	if err == nil || text == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, text)
}
