package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
)

func newCheck() *cobra.Command {
	var config string
	var quiet bool
	format := outputFormat{formats: []string{asYAML, asJSON}}
	c := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Validate a configuration and print it with its defaults",
		Long: `Validate a BridgeConfiguration, expressions included, and print it with its
defaults. All faults are listed; the exit status is 1 if there are any. Notes on
what is valid but needs attention go to standard error.`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 || len(args) == 1 && c.Flags().Changed("config") {
				return usagef("unexpected argument %q: check takes one file", args[len(args)-1])
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			env := streams(c)
			if len(args) > 0 {
				config = args[0]
			}
			loaded, err := loadConfig(bridgeconfig.Loader{}, config, env)
			if err != nil || quiet {
				return err
			}
			for _, note := range loaded.Notes(false) {
				fmt.Fprintf(env.err, "note: %s\n", note)
			}
			text, err := loaded.Encode()
			if err != nil {
				return err
			}
			return format.printYAML(env.out, text)
		},
	}
	addConfig(c.Flags(), &config)
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "print faults only")
	format.add(c)
	return c
}
