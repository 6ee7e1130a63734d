package main

import "github.com/spf13/cobra"

// nodeCommands are those that work on a node.
func nodeCommands() []*cobra.Command {
	return []*cobra.Command{newController(), newInstall(), newReady(), newServe(), newUninstall()}
}
