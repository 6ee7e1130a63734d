// Command flex2csi is the bridge from FlexVolume to CSI: a daemon on each node
// that does for FlexVolumes what the kubelet's own CSI plugin does for CSI
// volumes, and what people need to look into it.
//
// The way of a call: kubelet → flexdriver → internal/wire → internal/daemon →
// internal/mapping → internal/bridge → internal/csiclient → CSI driver.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"
)

func main() {
	os.Exit(run(os.Args[1:], environment{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}

// run returns the exit status: 0, 1 if something is wrong, 2 if it was called
// in a wrong way.
func run(args []string, env environment) int {
	c, args, err := find(args)
	if err == nil {
		err = c.run(args, env)
	}
	var usage *usageError
	switch {
	case err == nil, errors.Is(err, pflag.ErrHelp):
		return 0
	case errors.As(err, &usage):
		fmt.Fprintf(env.err, "%s: %v\nflex2csi %s says more.\n", c.title(), err, c.help())
		return 2
	}
	fmt.Fprintf(env.err, "%s: %v\n", c.title(), err)
	return 1
}
