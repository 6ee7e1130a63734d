// Command demo-migrate shows how a FlexVolume becomes a CSI volume under a pod
// that writes to it:
//
//	make demo-migrate
//
// It starts a Kubernetes of one node (test/node/README.md), installs flex2csi from the
// project's manifests, has a pod count onto a FlexVolume, and runs flex2csi
// migrate. What is seen meanwhile is shown as it comes, and each step is checked.
// The exit status is 0 only if all went as it should and nothing is left.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/flex2csi/flex2csi/test/demo/screen"
	"github.com/flex2csi/flex2csi/test/node"
)

func main() {
	os.Exit(node.Isolate("", os.Stderr, func() int {
		err := run(screen.New(os.Stdout, os.Getenv))
		if err != nil && !errors.Is(err, errTold) {
			fmt.Fprintln(os.Stderr, "demo-migrate:", err)
		}
		if err != nil {
			return 1
		}
		return 0
	}))
}

// errTold: the story itself has said what is not as it should be.
var errTold = errors.New("stopped")

// Where the Makefile has what is shown.
const (
	envDaemon = "FLEX2CSI_BINARY"
	envImages = "FLEX_IMAGES"
)

func run(s *screen.Screen) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	t := &story{Story: &screen.Story{Screen: s}, ctx: ctx, flex2csi: os.Getenv(envDaemon), images: os.Getenv(envImages)}
	if t.flex2csi == "" || t.images == "" {
		return fmt.Errorf("$%s and $%s are not set: run make demo-migrate", envDaemon, envImages)
	}
	t.prologue()
	t.startNode()
	t.install()
	t.count()
	t.plan()
	t.apply()
	t.nextPod()
	t.farewell()
	t.nothingLeft()
	if !t.epilogue() {
		return errTold
	}
	return nil
}
