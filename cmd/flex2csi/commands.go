package main

import (
	"context"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/flex2csi/flex2csi/internal/version"
)

// environment has the streams of the process.
type environment struct {
	in       io.Reader
	out, err io.Writer
}

func streams(c *cobra.Command) environment {
	return environment{in: c.InOrStdin(), out: c.OutOrStdout(), err: c.ErrOrStderr()}
}

// newRoot returns flex2csi. The file of each command has its constructor.
func newRoot() *cobra.Command {
	root := group(&cobra.Command{
		Use:   "flex2csi",
		Short: "Run FlexVolumes on CSI drivers",
		Long: `flex2csi runs FlexVolumes on CSI drivers.

Exit status: 0 if the command succeeded, 1 if it failed or found something
wrong, 2 for a usage error. Standard error has the reason.`,
		Version:           version.Get().Text("flex2csi"),
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
	},
		newCheck(), newCompletion(), newController(), newDoctor(), newInstall(), newMap(), newMigrate(), newPreset(),
		newReady(), newServe(), newStatus(), newUninstall(), newVersion(),
	)
	root.SetVersionTemplate("{{.Version}}\n")
	// Long texts of flags are wrapped, and a group has one line of usage.
	root.SetUsageTemplate(strings.NewReplacer(
		"FlagUsages ", "FlagUsagesWrapped 80 ", "{{if .Runnable}}", "{{if and .Runnable (not .HasAvailableSubCommands)}}",
	).Replace(root.UsageTemplate()))
	checkHelpArguments(root)
	each(root, func(c *cobra.Command) { c.Flags().SortFlags = false })
	return root
}

// each visits a command and all of its subcommands.
func each(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, sub := range c.Commands() {
		each(sub, visit)
	}
}

// group makes c a command that does nothing without one of its subcommands.
func group(c *cobra.Command, subcommands ...*cobra.Command) *cobra.Command {
	c.AddCommand(subcommands...)
	c.DisableFlagsInUseLine = true
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(c *cobra.Command, args []string) error {
		var names []string
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				names = append(names, sub.Name())
			}
		}
		if len(args) > 0 {
			return usagef("unknown command %q: want one of %s", args[0], strings.Join(names, ", "))
		}
		return usagef("missing command: want one of %s", strings.Join(names, ", "))
	}
	return c
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

// usageError is an error in the command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// noArguments is for commands that take only flags. cobra.NoArgs reports an unknown
// command instead.
func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("unexpected argument %q", args[0])
	}
	return nil
}

// untilInterrupted returns a context that ends with Ctrl-C.
func untilInterrupted(c *cobra.Command) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
}
