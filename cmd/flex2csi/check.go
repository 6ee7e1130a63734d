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
		Use:   "check",
		Short: "Validate a configuration and print it with its defaults",
		Long: `Validate a BridgeConfiguration, expressions included, and print it with its
defaults. All faults are listed; the exit status is 1 if there are any. Notes on
what is valid but needs attention go to standard error.`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			env := streams(c)
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
