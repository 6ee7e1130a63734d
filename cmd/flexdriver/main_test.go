package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/flex2csi/flex2csi/test/csidriver/cli"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// These name the programs that tests run as processes. The Makefile sets them
// to what it has built; without them they are built.
const (
	envBinary = "FLEXDRIVER_BINARY"
	envDaemon = "FLEX2CSI_BINARY"
)

// csiDriver is what this test binary is called where it is the CSI driver.
const csiDriver = "csidriver"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == csiDriver {
		os.Exit(cli.Main(os.Args[1:], os.Stderr))
	}
	testenv.Main(withPrograms{m})
}

// withPrograms sees to it that there are a flexdriver and a flex2csi when tests
// run. They are the released kind, static and stripped, and not this test
// binary under another name: what a driver does to its file descriptors, and
// what it links, are part of what is tested.
type withPrograms struct{ m *testing.M }

func (w withPrograms) Run() int {
	dir, err := os.MkdirTemp("", "flexdriver-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = errors.Join(provide(dir, envBinary, "../flexdriver"), provide(dir, envDaemon, "../flex2csi"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "flexdriver tests:", err)
		return 1
	}
	return w.m.Run()
}

// provide makes env the absolute path of a program.
func provide(dir, env, pkg string) error {
	path, err := testenv.Program(dir, env, pkg)
	if err != nil {
		return err
	}
	return os.Setenv(env, path)
}
