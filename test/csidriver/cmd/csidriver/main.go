// Csidriver is the project's example CSI driver; see test/csidriver/README.md.
package main

import (
	"os"

	"github.com/flex2csi/flex2csi/test/csidriver/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], os.Stderr)) }
