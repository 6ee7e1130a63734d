package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagError says what a flag takes; package pflag quotes strconv instead.
func flagError(_ *cobra.Command, err error) error {
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
