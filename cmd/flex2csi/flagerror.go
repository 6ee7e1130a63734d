package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagError says what a flag takes; package pflag quotes strconv instead. A group of
// commands sees the flags of a misspelt one first.
func flagError(c *cobra.Command, err error) error {
	if args := c.Flags().Args(); c.HasSubCommands() && len(args) > 0 {
		return unknownCommand(c, args[0])
	}
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	want, ok := map[string]string{
		"int":      "a whole number",
		"int64":    "a whole number",
		"uint":     "a whole number from 0",
		"bool":     "true or false",
		"duration": "a duration such as 90s or 5m",
	}[invalid.GetFlag().Value.Type()]
	if !ok {
		return err
	}
	return fmt.Errorf("--%s %s: want %s", invalid.GetFlag().Name, invalid.GetValue(), want)
}

// groupError says which flags exclude each other, as package cobra does of the whole group.
func groupError(err error) error {
	before, ok := strings.CutSuffix(err.Error(), "] were all set")
	if !ok {
		return err
	}
	flags := strings.Fields(before[strings.LastIndex(before, "[")+1:])
	return fmt.Errorf("--%s exclude each other: give one of them", strings.Join(flags, " and --"))
}
