package main

import (
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// plugin is what kubectl calls for "kubectl flex2csi", and completer what it calls for the
// completion of that (k8s.io/kubectl/pkg/cmd/plugin/plugin_completion.go, v0.37.1).
const (
	plugin    = "kubectl-flex2csi"
	completer = "kubectl_complete-flex2csi"
)

// calledBy returns the arguments for a program that was started by a name, and what makes the
// commands in its texts those that work so.
func calledBy(name string, root *cobra.Command, args []string) ([]string, func(string) string) {
	name = strings.TrimSuffix(name, ".exe")
	if name == completer {
		return append([]string{cobra.ShellCompRequestCmd}, args...), strings.Clone
	}
	if name != plugin {
		return args, strings.Clone
	}
	var commands []string
	for _, c := range root.Commands() {
		commands = append(commands, c.Name())
	}
	command := regexp.MustCompile(`(?m)(^|[\s"'(])flex2csi (` + strings.Join(commands, "|") + `)\b`)
	typed := func(text string) string { return command.ReplaceAllString(text, "${1}kubectl flex2csi $2") }
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl flex2csi"}
	each(root, func(c *cobra.Command) { c.Long, c.Example = typed(c.Long), typed(c.Example) })
	return args, typed
}
