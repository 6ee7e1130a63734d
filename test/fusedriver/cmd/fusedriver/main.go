// Fusedriver is a CSI driver for tests. Its mounts die with it; see package fusedriver.
package main

import (
	"os"

	"github.com/flex2csi/flex2csi/test/fusedriver"
)

func main() { os.Exit(fusedriver.Main(os.Args[1:], os.Stderr)) }
