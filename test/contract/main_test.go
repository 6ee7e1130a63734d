package contract

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	// envBinary names the flexdriver under test. Without it one is built.
	envBinary = "FLEXDRIVER_BINARY"
	// envPrograms is the directory with the other programs that take part: the
	// daemon and CSI drivers. What is not in it is built when it is wanted.
	envPrograms = "FLEX_PROGRAMS"
	// envInside says that this process runs the tests: "root" as root in a mount
	// namespace of its own, "none" as another user.
	envInside = "FLEX_CONTRACT_INSIDE"
	// envRole makes the test binary a helper process, see roles.
	envRole = "FLEX_CONTRACT_ROLE"
)

// TestMain runs the tests in a mount namespace of their own, in which nothing
// is shared with the machine: what they mount cannot be seen outside and is
// gone when they end, whatever way they end.
func TestMain(m *testing.M) {
	if role := os.Getenv(envRole); role != "" {
		os.Exit(roles()[role](os.Args[1:]))
	}
	if os.Getenv(envInside) != "" {
		os.Exit(runInside(m))
	}
	status, err := runOutside()
	if err != nil {
		fmt.Fprintln(os.Stderr, "contract:", err)
		os.Exit(1)
	}
	os.Exit(status)
}

// runInside makes this process the one to which orphans are given, so that the
// leak check sees a child that outlives its driver call.
func runInside(m *testing.M) int {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, "contract: become subreaper:", err)
		return 1
	}
	return m.Run()
}

// runOutside provides the binary and executes this test binary again, as root
// in a mount namespace of its own. It does not unshare in this process: that
// changes one thread, and the Go runtime starts programs from any of them.
func runOutside() (int, error) {
	binary, cleanup, err := driverBinary()
	if err != nil {
		return 0, err
	}
	defer cleanup()
	if os.Getenv(envPrograms) == "" {
		dir, err := os.MkdirTemp("", "programs-")
		if err != nil {
			return 0, err
		}
		defer os.RemoveAll(dir)
		if err := os.Setenv(envPrograms, dir); err != nil {
			return 0, err
		}
	}

	runtime.LockOSThread() // Pdeathsig follows the thread that forked
	defer runtime.UnlockOSThread()
	// With Unshareflags package syscall also makes every mount private.
	private := &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL, Unshareflags: unix.CLONE_NEWNS}
	cmd, err := startInside("root", binary, private)
	if err != nil { // the tests that need it say so
		cmd, err = startInside("none", binary, &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL})
	}
	if err != nil {
		return 0, fmt.Errorf("start the tests: %w", err)
	}
	_ = cmd.Wait() // the state below says it all
	forgetResult()
	if cmd.ProcessState.Success() {
		return 0, nil
	}
	return max(1, cmd.ProcessState.ExitCode()), nil // -1 if it was killed
}

// forgetResult keeps go test from showing this result again after the driver
// has changed: it looks only at files of this module, of which the binary is
// none, and at nothing without its log (cmd/go/internal/test, saveOutput).
func forgetResult() {
	for _, arg := range os.Args {
		if log, ok := strings.CutPrefix(arg, "-test.testlogfile="); ok {
			_ = os.Remove(log) // absent is what we want
		}
	}
}

func startInside(where, binary string, attr *syscall.SysProcAttr) (*exec.Cmd, error) {
	cmd := exec.Command(self(), os.Args[1:]...)
	cmd.Env = append(os.Environ(), envInside+"="+where, envBinary+"="+binary)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = attr
	return cmd, cmd.Start()
}

// driverBinary returns the path of the flexdriver to test.
func driverBinary() (path string, cleanup func(), err error) {
	if path := os.Getenv(envBinary); path != "" {
		path, err := filepath.Abs(path)
		return path, func() {}, err
	}
	dir, err := os.MkdirTemp("", "flexdriver-")
	if err != nil {
		return "", nil, err
	}
	path = filepath.Join(dir, "flexdriver")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "./cmd/flexdriver")
	build.Dir = filepath.Join("..", "..")
	build.Env = buildEnv("CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		os.RemoveAll(dir)
		return "", nil, fmt.Errorf("build flexdriver: %w\n%s", err, strings.TrimSpace(string(out)))
	}
	return path, func() { os.RemoveAll(dir) }, nil
}

// buildEnv is for building what is not of this module: the flags of this build
// (-modfile, say) are not those of others.
func buildEnv(more ...string) []string {
	return append(append(os.Environ(), "GOFLAGS=-buildvcs=false", "GOWORK=off"), more...)
}
