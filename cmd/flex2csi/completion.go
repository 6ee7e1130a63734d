package main

import (
	"slices"

	"github.com/spf13/cobra"
)

func newCompletion() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print a completion script for a shell",
		Long:  "Print a script that completes commands, flags and their values in a shell.",
		Example: `  source <(flex2csi completion bash)
  flex2csi completion zsh >"${fpath[1]}/_flex2csi"
  flex2csi completion fish >~/.config/fish/completions/flex2csi.fish`,
		DisableFlagsInUseLine: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains([]string{"bash", "zsh", "fish"}, args[0]) {
				return usagef("which shell? bash, zsh or fish")
			}
			return nil
		},
		ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(c *cobra.Command, args []string) error {
			out := streams(c).out
			switch args[0] {
			case "bash":
				return c.Root().GenBashCompletionV2(out, true)
			case "zsh":
				return c.Root().GenZshCompletion(out)
			default:
				return c.Root().GenFishCompletion(out, true)
			}
		},
	}
}
