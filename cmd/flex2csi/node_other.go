//go:build !linux

package main

import "github.com/spf13/cobra"

// nodeCommands: nodes run Linux.
func nodeCommands() []*cobra.Command { return nil }
