// Command demo shows on this machine, as root, what flexdriver does, by itself
// and with flex2csi: it installs bin/flexdriver into a temporary plugin
// directory, plays the kubelet and kube-controller-manager, and shows each call,
// its answer, its time and what came of it. For the second half it starts
// bin/flex2csi and the CSI driver of the tests:
//
//	make demo
//
// Each step is checked. The exit status is 0 only if all went as it should and
// nothing is left. What it mounts is in a mount namespace of its own, and its
// files in one temporary directory.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/flex2csi/flex2csi/test/csidriver/cli"
	"github.com/flex2csi/flex2csi/test/demo/screen"
)

// These name the programs to show, as in the Makefile.
const (
	envBinary = "FLEXDRIVER_BINARY"
	envDaemon = "FLEX2CSI_BINARY"
)

func main() {
	if filepath.Base(os.Args[0]) == csiDriver {
		os.Exit(cli.Main(os.Args[1:], os.Stderr))
	}
	err := run()
	if err != nil && !errors.Is(err, errTold) {
		fmt.Fprintln(os.Stderr, "demo:", err)
	}
	if err != nil {
		os.Exit(1)
	}
}

// errTold: the story itself has said what is not as it should be.
var errTold = errors.New("stopped")

func run() error {
	if dir, inside := os.LookupEnv(envDir); inside {
		return tell(dir, screen.New(os.Stdout, os.Getenv))
	}
	if err := preflight(binary(envBinary), binary(envDaemon)); err != nil {
		return err
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	return isolate(ended, os.Stdout, os.Stderr)
}

// binary is a program of this project's.
func binary(env string) string {
	if path := os.Getenv(env); path != "" {
		return path
	}
	if env == envDaemon {
		return "bin/flex2csi"
	}
	return "bin/flexdriver"
}

// tell tells the story in dir.
func tell(dir string, s *screen.Screen) error {
	n, err := newNode(dir)
	if err != nil {
		return err
	}
	t := &story{Story: &screen.Story{Screen: s, Short: n.short}, node: n}
	b := &bridge{story: t}
	defer b.end()
	t.prologue()
	t.install()
	t.withoutAttach()
	t.withAttach()
	t.killed()
	t.uninstall()
	b.withoutAttach()
	b.daemonDies()
	b.withAttach()
	b.takeDown()
	t.nothingLeft()
	if !t.epilogue() {
		return errTold
	}
	return nil
}
