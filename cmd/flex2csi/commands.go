package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"github.com/flex2csi/flex2csi/internal/version"
)

// environment is what a command has of the process.
type environment struct {
	in       io.Reader
	out, err io.Writer
}

// A command is one of flex2csi's.
type command struct {
	name    string
	args    string // as usage shows them
	summary string
	run     func(args []string, env environment) error
	flags   func(env environment) *pflag.FlagSet // for the reference
	// sub are the commands of a command that does nothing by itself.
	sub []command
}

// commands are all that there are, in the order of help.
func commands() []command {
	return []command{
		{name: "serve", args: "--node-name NAME [flags]", summary: "be the daemon of a node", run: serve, flags: new(serveOptions).flags},
		{name: "status", args: "[flags] [NAME...]", summary: "show volumes, drivers and what is under way on this node", run: status, flags: new(statusOptions).flags},
		{name: "check", args: "[flags]", summary: "validate a configuration and print it with its defaults", run: check, flags: new(checkOptions).flags},
		{name: "doctor", args: "[flags]", summary: "look for what is wrong on this node, or in the cluster", run: examine, flags: new(doctorOptions).flags},
		{name: "map", args: "[flags] [CALLOUT ARGS...]", summary: "show what a CSI driver would be asked for a volume", run: mapVolume, flags: new(mapFlags).set},
		{name: "preset", args: "list | show [flags] NAME...", summary: "configurations for FlexVolume drivers that are widely used", run: presets, flags: new(presetOptions).flags},
		{name: "migrate", args: "COMMAND [flags]", summary: "make CSI PersistentVolumes of FlexVolume ones", flags: migrateFlags, sub: migrateCommands()},
		{name: "install", args: "[flags]", summary: "put the drivers of a configuration under the kubelet of this node", run: installDrivers, flags: new(installOptions).flags},
		{name: "uninstall", args: "[flags]", summary: "take the drivers of this node away, unless they are in use", run: uninstallDrivers, flags: new(uninstallOptions).flags},
		{name: "ready", args: "[flags]", summary: "say whether FlexVolumes work on this node", run: ready, flags: new(readyOptions).flags},
		{name: "version", args: "[--json]", summary: "print what this is", run: printVersion, flags: new(versionOptions).flags},
	}
}

// find returns the command that args begin with, and the rest of them.
func find(args []string) (command, []string, error) {
	if len(args) == 0 {
		return command{}, nil, usagef("which command? there are %s", strings.Join(names(commands()), ", "))
	}
	switch args[0] {
	case "help", "--help", "-h":
		return command{name: "help", run: help}, nil, nil
	case "--version": // as the CSI sidecars have it
		args = append([]string{"version"}, args[1:]...)
	}
	for _, c := range commands() {
		if c.name == args[0] {
			return c.choose(args[1:])
		}
	}
	return command{}, nil, usagef("there is no command %q, only %s", args[0], strings.Join(names(commands()), ", "))
}

// choose returns the command of a command that args begin with, if it has any.
func (c command) choose(args []string) (command, []string, error) {
	if len(c.sub) == 0 {
		return c, args, nil
	}
	if len(args) == 0 {
		return c, nil, usagef("say %s", strings.Join(names(c.sub), ", "))
	}
	switch args[0] {
	case "help", "--help", "-h":
		c.run = func(_ []string, env environment) error {
			c.flags(env).Usage()
			return nil
		}
		return c, nil, nil
	}
	for _, s := range c.sub {
		if s.word() == args[0] {
			return s, args[1:], nil
		}
	}
	return c, nil, usagef("%q is not known, only %s", args[0], strings.Join(names(c.sub), ", "))
}

// word is the last one of a command's name.
func (c command) word() string { return c.name[strings.LastIndex(c.name, " ")+1:] }

func names(of []command) (all []string) {
	for _, c := range of {
		all = append(all, c.word())
	}
	return all
}

// everyCommand are all, with those of others.
func everyCommand() (all []command) {
	for _, c := range commands() {
		all = append(append(all, c), c.sub...)
	}
	return all
}

// title is how a command's messages begin.
func (c command) title() string { return strings.TrimSpace("flex2csi " + c.name) }

// help is what shows how a command is used.
func (c command) help() string {
	if c.name == "" {
		return "help"
	}
	return c.name + " --help"
}

// usageError is a command called in a wrong way.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// flags makes the flag set of a command. about is what its help says first.
func flags(name, about string, env environment) *pflag.FlagSet {
	set := pflag.NewFlagSet(name, pflag.ContinueOnError)
	set.SortFlags = false
	// What follows a callout is the callout's, even if it begins with a dash.
	set.SetInterspersed(false)
	set.SetOutput(env.err)
	set.Usage = func() {
		for _, c := range everyCommand() {
			if c.name == name {
				fmt.Fprintf(env.out, "Usage: flex2csi %s %s\n\n%s\n\n%s", name, c.args, about, set.FlagUsagesWrapped(80))
			}
		}
	}
	return set
}

// parse parses the flags of a command that takes nothing else.
func parse(set *pflag.FlagSet, args []string) error {
	if err := set.Parse(args); err != nil {
		return &usageError{err}
	}
	if set.NArg() > 0 {
		return usagef("%q is one argument too many", set.Arg(0))
	}
	return nil
}

func help(_ []string, env environment) error {
	var b strings.Builder
	b.WriteString("flex2csi runs FlexVolumes on CSI drivers.\n\nUsage: flex2csi COMMAND [flags]\n\n")
	for _, c := range commands() {
		fmt.Fprintf(&b, "  %-10s %s\n", c.name, c.summary)
	}
	b.WriteString("\nflex2csi COMMAND --help says more.\n")
	_, err := io.WriteString(env.out, b.String())
	return err
}

// versionOptions are the flags of version.
type versionOptions struct{ json bool }

func (o *versionOptions) flags(env environment) *pflag.FlagSet {
	set := flags("version", "Print what this is.", env)
	set.BoolVar(&o.json, "json", false, "print a JSON object")
	return set
}

func printVersion(args []string, env environment) error {
	var o versionOptions
	if err := parse(o.flags(env), args); err != nil {
		return err
	}
	return version.Get().Print(env.out, "flex2csi", o.json)
}
