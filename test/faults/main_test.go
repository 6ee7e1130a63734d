package faults

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/test/csidriver/cli"
	"github.com/flex2csi/flex2csi/test/testenv"
)

const (
	// envRole makes the test binary something else.
	envRole    = "FAULTS_ROLE"
	roleDriver = "csidriver"
	roleWorld  = "world"

	// The programs under test, as make names them; without these they are
	// built.
	envDaemon     = "FLEX2CSI_BINARY"
	envFlexdriver = "FLEXDRIVER_BINARY"
)

func TestMain(m *testing.M) {
	switch os.Getenv(envRole) {
	case roleDriver:
		os.Exit(cli.Main(os.Args[1:], os.Stderr))
	case roleWorld:
		os.Exit(playWorld(os.Stdin, os.Stdout, os.Stderr))
	}
	testenv.Main(onMemory{m})
}

// onMemory runs the tests with a temporary directory on a tmpfs, with short
// names for sockets. It is mounted in the private namespace.
type onMemory struct{ m *testing.M }

func (o onMemory) Run() int {
	dir, err := os.MkdirTemp("", "fl-")
	if err != nil {
		return fail(err)
	}
	defer os.Remove(dir)
	if err := unix.Mount("faults", dir, "tmpfs", 0, "size=4g,mode=0755"); err == nil {
		defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
		os.Setenv("TMPDIR", dir)
	} // else nothing can be mounted here, and the tests skip themselves
	for env, pkg := range map[string]string{envDaemon: "../../cmd/flex2csi", envFlexdriver: "../../cmd/flexdriver"} {
		binary, err := testenv.Program(dir, env, pkg)
		if err != nil {
			return fail(err)
		}
		os.Setenv(env, binary)
	}
	return o.m.Run()
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "faults:", err)
	return 1
}
