package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/internal/testenv"
)

// envBinary names the flexdriver that tests run as a process. The Makefile
// sets it to what it has built; without it one is built.
const envBinary = "FLEXDRIVER_BINARY"

func TestMain(m *testing.M) { testenv.Main(withDriver{m}) }

// withDriver sees to it that envBinary names a flexdriver when tests run. It
// is the released kind, static and stripped, and not this test binary under
// another name: what it does to its file descriptors, and what it links, are
// part of what is tested.
type withDriver struct{ m *testing.M }

func (w withDriver) Run() int {
	cleanup, err := provideDriver()
	if err != nil {
		fmt.Fprintln(os.Stderr, "flexdriver tests:", err)
		return 1
	}
	defer cleanup()
	return w.m.Run()
}

func provideDriver() (cleanup func(), err error) {
	if path := os.Getenv(envBinary); path != "" {
		path, err := filepath.Abs(path)
		if err == nil {
			_, err = os.Stat(path)
		}
		return func() {}, setBinary(path, err)
	}
	dir, err := os.MkdirTemp("", "flexdriver-")
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "flexdriver")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", path, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("build flexdriver: %w\n%s", err, strings.TrimSpace(string(out)))
	}
	return func() { os.RemoveAll(dir) }, setBinary(path, nil)
}

func setBinary(path string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", envBinary, err)
	}
	return os.Setenv(envBinary, path)
}
