package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// choice is a flag that takes one of a few values, which shells complete.
type choice struct {
	value  *string
	values []string
}

// addChoice adds one. The value before is the default.
func addChoice(c *cobra.Command, value *string, values []string, name, shorthand, usage string) {
	c.Flags().VarP(&choice{value, values}, name, shorthand, usage+": "+strings.Join(values, ", "))
	completes(c, name, fixed(values))
}

func (f *choice) String() string { return *f.value }

// Type implements pflag.Value.
func (f *choice) Type() string { return "string" }

// Set takes one of the values.
func (f *choice) Set(value string) error {
	if !slices.Contains(f.values, value) {
		return fmt.Errorf("want %s", oneOf(f.values))
	}
	*f.value = value
	return nil
}

func oneOf(values []string) string {
	if len(values) == 1 {
		return values[0]
	}
	return "one of " + strings.Join(values, ", ")
}
