// Command flex2csi is the bridge from FlexVolume to CSI: a daemon on each node
// that does for FlexVolumes what the kubelet's own CSI plugin does for CSI
// volumes, and the commands that install, inspect and replace it.
//
// The path of a call: kubelet → flexdriver → internal/wire → internal/daemon →
// internal/bridge (internal/mapping makes the volume, internal/lifecycle decides) →
// internal/csiclient → CSI driver. internal/README.md has it step by step, and the path
// of a migration.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/flex2csi/flex2csi/internal/terminal"
)

func main() {
	os.Exit(run(os.Args[1:], environment{name: filepath.Base(os.Args[0]), in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}

// run returns the exit status: 0, 1 if the command failed, 2 for a usage error. An error
// before the command begins is a usage error.
func run(args []string, env environment) int {
	env.out, env.err = &terminal.Writer{To: colored(env.out)}, &terminal.Writer{To: env.err}
	root := newRoot()
	args, typed := calledBy(env.name, root, args)
	root.SetArgs(args)
	root.SetIn(env.in)
	root.SetOut(env.out)
	root.SetErr(env.err)
	begun := false
	each(root, func(c *cobra.Command) {
		if do := c.RunE; do != nil {
			c.RunE = func(c *cobra.Command, args []string) error {
				begun = true
				return do(c, args)
			}
		}
	})
	c, err := root.ExecuteC()
	var usage *usageError
	switch {
	case err == nil:
		return 0
	case !begun || errors.As(err, &usage):
		fmt.Fprintf(env.err, "%s: %v\nSee '%s --help' for usage.\n", c.CommandPath(), typed(groupError(err).Error()), c.CommandPath())
		return 2
	}
	fmt.Fprintf(env.err, "%s: %v\n", c.CommandPath(), typed(err.Error()))
	return 1
}

// newRoot returns flex2csi. The file of each command has its constructor. The builds for macOS
// and Windows have the commands that need no node.
func newRoot() *cobra.Command {
	root := group(&cobra.Command{
		Use:   "flex2csi",
		Short: "Run FlexVolumes on CSI drivers",
		Long: `flex2csi runs FlexVolumes on CSI drivers.

Exit status: 0 if the command succeeded, 1 if it failed or found something
wrong, 2 for a usage error. Standard error has the reason.`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
	},
		append(nodeCommands(), newAssess(), newCheck(), newCompletion(), newDoctor(), newMap(), newMigrate(), newPreset(), newStatus(), newVersion())...,
	)
	root.SetFlagErrorFunc(flagError)
	root.SetUsageFunc(usage)
	addVersionFlag(root)
	checkHelpArguments(root)
	each(root, func(c *cobra.Command) {
		c.Flags().SortFlags = false
		c.InitDefaultHelpFlag()
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() == "bool" {
				f.Value = plainBool{f.Value}
			}
		})
	})
	return root
}

// checkHelpArguments makes an unknown command a usage error of cobra's help, too.
func checkHelpArguments(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() != "help" {
			continue
		}
		c.Args = func(_ *cobra.Command, args []string) error {
			if _, rest, err := root.Find(args); err != nil || len(rest) > 0 {
				return usagef("unknown command %q", strings.Join(args, " "))
			}
			return nil
		}
	}
}
