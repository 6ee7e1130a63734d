package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// usage is that of cobra, but long texts of flags are wrapped, and a group has one line.
// It is no template, as [github.com/flex2csi/flex2csi/internal/report] has none.
func usage(c *cobra.Command) error {
	var b strings.Builder
	line := c.UseLine()
	if c.HasAvailableSubCommands() {
		line = c.CommandPath() + " [command]"
	}
	fmt.Fprintf(&b, "Usage:\n  %s\n", line)
	if c.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", c.Example)
	}
	if c.HasAvailableSubCommands() {
		b.WriteString("\nAvailable Commands:\n")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() || sub.Name() == "help" {
				fmt.Fprintf(&b, "  %-*s %s\n", sub.NamePadding(), sub.Name(), sub.Short)
			}
		}
	}
	own, shared := pflag.NewFlagSet("", 0), pflag.NewFlagSet("", 0)
	own.SortFlags, shared.SortFlags = false, false
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if _, ok := f.Annotations[connection]; ok {
			shared.AddFlag(f)
			return
		}
		own.AddFlag(f)
	})
	writeFlags(&b, "Flags", own)
	writeFlags(&b, "Connection Flags", shared)
	writeFlags(&b, "Global Flags", c.InheritedFlags())
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\nUse \"%s [command] --help\" for more information about a command.\n", c.CommandPath())
	}
	_, err := fmt.Fprint(c.OutOrStderr(), b.String())
	return err
}

// plainBool is a flag of which pflag does not see that it is one: after those it prints
// [=true|false], and kubectl does not.
type plainBool struct{ pflag.Value }

func writeFlags(b *strings.Builder, title string, flags *pflag.FlagSet) {
	if flags.HasAvailableFlags() {
		fmt.Fprintf(b, "\n%s:\n%s\n", title, strings.TrimRight(flags.FlagUsagesWrapped(80), " \n"))
	}
}
