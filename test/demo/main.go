// Command demo shows on this machine, as root, what flexdriver does: it
// installs bin/flexdriver into a temporary plugin directory, plays the kubelet
// and kube-controller-manager, and shows each call, its answer, its time and
// what came of it:
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
	"syscall"
)

// envBinary names the flexdriver to show, as in the Makefile.
const envBinary = "FLEXDRIVER_BINARY"

func main() {
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
		return tell(dir, newScreen(os.Stdout, os.Getenv))
	}
	if err := preflight(binary()); err != nil {
		return err
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	return isolate(ended, os.Stdout, os.Stderr)
}

func binary() string {
	if path := os.Getenv(envBinary); path != "" {
		return path
	}
	return "bin/flexdriver"
}

// tell tells the story in dir.
func tell(dir string, s *screen) error {
	n, err := newNode(dir, binary())
	if err != nil {
		return err
	}
	t := &story{screen: s, node: n}
	t.prologue()
	t.install()
	t.withoutAttach()
	t.withAttach()
	t.killed()
	t.uninstall()
	t.nothingLeft()
	if !t.epilogue() {
		return errTold
	}
	return nil
}
