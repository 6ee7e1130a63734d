package crash

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/test/testenv"
)

const (
	// envBinary names the flexdriver under test, as make does. Without it one
	// is built.
	envBinary = "FLEXDRIVER_BINARY"
	// driverProgram is what it is called in a trace.
	driverProgram = "flexdriver"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(envRole); role != "" {
		os.Exit(play(role, os.Args[1:]))
	}
	testenv.Main(onMemory{m})
}

// onMemory runs the tests with their temporary directories on a tmpfs, since
// they copy disk images all the time. It is mounted in the private namespace.
// What a killed process leaves is the same there: SIGKILL empties no cache.
type onMemory struct{ m *testing.M }

func (o onMemory) Run() int {
	dir, err := os.MkdirTemp("", "crash-")
	if err != nil {
		return fail(err)
	}
	defer os.Remove(dir)
	if err := unix.Mount("crash", dir, "tmpfs", 0, "size=4g,mode=0755"); err == nil {
		defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
		os.Setenv("TMPDIR", dir)
		if err := layMountProgram(dir); err != nil {
			return fail(err)
		}
	} // else nothing can be mounted here, and the tests skip themselves
	binary, err := testenv.Program(dir, envBinary, "../../cmd/flexdriver")
	if err != nil {
		return fail(err)
	}
	os.Setenv(envBinary, binary)
	return o.m.Run()
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "crash:", err)
	return 1
}
