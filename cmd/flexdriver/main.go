// Command flexdriver is a FlexVolume driver. The kubelet runs it once for
// each callout, from <plugin dir>/<vendor>~<driver>/<driver>, and reads one
// JSON object; people run it to install it and to look into a node.
//
// The way of a call: main → flex.Program → newDriver (callout.go) → flex.Run → the
// backend's function: internal/local → pkg/mounter → fsopen(2) … move_mount(2) (tree.go), or internal/handoff →
// internal/wire → the daemon flex2csi.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/flex2csi/flex2csi/internal/terminal"
)

func main() {
	os.Exit(run(os.Args))
}

// run returns the exit status: 0 for every callout that was answered, unless
// --exit-code is given, because the kubelet logs all arguments, secrets
// included, of a driver that ends with another
// (pkg/volume/flexvolume/driver-call.go:149, Kubernetes v1.37.1).
func run(argv []string) int {
	if command, ok := forPeople(argv); ok {
		if err := command(argv[2:], &terminal.Writer{To: os.Stdout}); err != nil {
			fmt.Fprintf(&terminal.Writer{To: os.Stderr}, "flexdriver %s: %v\n", argv[1], err)
			return 1
		}
		return 0
	}
	return program().Run(argv)
}

// forPeople returns the commands that are no callouts and talk to people.
func forPeople(argv []string) (command, bool) {
	if len(argv) < 2 {
		return nil, false
	}
	switch name := strings.TrimLeft(argv[1], "-"); name {
	case "install":
		return install, true
	case "uninstall":
		return uninstall, true
	case "version":
		return version, true
	case "help", "h":
		return help, true
	}
	return nil, false
}
