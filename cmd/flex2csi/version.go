package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/flex2csi/flex2csi/internal/version"
)

func newVersion() *cobra.Command {
	format := outputFormat{formats: []string{table, asJSON, asYAML}}
	var json bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			info := version.Get()
			if json {
				return info.Print(streams(c).out, "flex2csi", true)
			}
			return format.print(streams(c).out, info, func(out io.Writer, _ bool) error {
				_, err := fmt.Fprintln(out, info.Text("flex2csi"))
				return err
			})
		},
	}
	c.Flags().BoolVar(&json, "json", false, "print a JSON object in one line")
	format.add(c)
	return c
}

// addVersionFlag adds --version. The one that cobra adds prints a template, or other words
// than version does.
func addVersionFlag(root *cobra.Command) {
	root.InitDefaultHelpFlag() // comes first
	asked := root.Flags().Bool("version", false, "version for flex2csi")
	missing := root.RunE
	root.RunE = func(c *cobra.Command, args []string) error {
		if *asked {
			return version.Get().Print(c.OutOrStdout(), "flex2csi", false)
		}
		return missing(c, args)
	}
}
