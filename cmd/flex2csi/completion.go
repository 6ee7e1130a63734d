package main

import (
	"slices"

	"github.com/spf13/cobra"
)

func newCompletion() *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Print a completion script for a shell",
		Long: `Print a script that completes commands, flags and their values in a shell.

For "kubectl flex2csi" the completion of kubectl asks a program in the PATH by the name
kubectl_complete-flex2csi: link this program to that name.`,
		Example: `  source <(flex2csi completion bash)
  flex2csi completion zsh >"${fpath[1]}/_flex2csi"
  flex2csi completion fish >~/.config/fish/completions/flex2csi.fish
  flex2csi completion powershell | Out-String | Invoke-Expression
  ln -s "$(command -v kubectl-flex2csi)" ~/bin/kubectl_complete-flex2csi`,
		DisableFlagsInUseLine: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains(shells, args[0]) {
				return usagef("which shell? want %s", oneOf(shells))
			}
			return nil
		},
		ValidArgs: shells,
		RunE: func(c *cobra.Command, args []string) error {
			out := streams(c).out
			switch args[0] {
			case "bash":
				return c.Root().GenBashCompletionV2(out, true)
			case "zsh":
				return c.Root().GenZshCompletion(out)
			case "fish":
				return c.Root().GenFishCompletion(out, true)
			default:
				return c.Root().GenPowerShellCompletionWithDesc(out)
			}
		},
	}
}
