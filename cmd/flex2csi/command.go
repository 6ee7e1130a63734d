package main

import (
	"context"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// environment has the streams of the process.
type environment struct {
	name     string // of the program's file
	in       io.Reader
	out, err io.Writer
}

func streams(c *cobra.Command) environment {
	return environment{in: c.InOrStdin(), out: c.OutOrStdout(), err: c.ErrOrStderr()}
}

// each visits a command and all of its subcommands.
func each(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, sub := range c.Commands() {
		each(sub, visit)
	}
}

// group makes c a command that shows its help without one of its subcommands.
func group(c *cobra.Command, subcommands ...*cobra.Command) *cobra.Command {
	c.AddCommand(subcommands...)
	c.DisableFlagsInUseLine = true
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknownCommand(c, args[0])
		}
		return c.Help()
	}
	return c
}

func subcommandsOf(c *cobra.Command) string {
	var names []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return strings.Join(names, ", ")
}

// unknownCommand names those with a similar name, and all.
func unknownCommand(c *cobra.Command, name string) error {
	similar := ""
	c.SuggestionsMinimumDistance = 2
	if names := c.SuggestionsFor(name); len(names) > 0 {
		similar = fmt.Sprintf(" (did you mean %s?)", strings.Join(names, " or "))
	}
	return usagef("unknown command %q%s: want one of %s", name, similar, subcommandsOf(c))
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
