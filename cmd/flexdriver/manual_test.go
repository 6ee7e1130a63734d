package main

import (
	"bytes"
	"io"
	"testing"

	"github.com/spf13/pflag"

	"github.com/flex2csi/flex2csi/hack/manual"
)

// TestManual: docs/reference and man are what the program says of itself. With
// -update (make docs) they are made.
func TestManual(t *testing.T) {
	const status = "0, or 1 if something went wrong or the command was called in a wrong way; standard error says what."
	installing := func(w io.Writer) *pflag.FlagSet {
		f, _ := new(settings).flags(w)
		return f.set
	}
	uninstalling := func(w io.Writer) *pflag.FlagSet {
		f, _ := uninstallFlags(w)
		return f.set
	}
	versions := func(w io.Writer) *pflag.FlagSet {
		set, _ := versionFlags(w)
		return set
	}
	commands := []manual.Command{
		commandOf(t, "flexdriver install", installing, "put a FlexVolume driver under a kubelet", "configuration.md"),
		commandOf(t, "flexdriver uninstall", uninstalling, "take a FlexVolume driver away", ""),
		commandOf(t, "flexdriver version", versions, "print what this is", ""),
	}
	for i := range commands {
		commands[i].Status = status
	}
	var text bytes.Buffer
	if err := help(nil, &text); err != nil {
		t.Fatal(err)
	}
	commands = append(commands, manual.Command{
		Name: "flexdriver", Summary: "a FlexVolume driver", Usage: text.String(), Flags: new(calloutFlags).set(), More: "debugging.md",
		Status: "0 for every callout that was answered, whatever the answer; 1 with --exit-code if the answer is not Success.",
	})
	files, err := manual.Files(commands)
	if err != nil {
		t.Fatal(err)
	}
	manual.Check(t, "../..", files, *update, "docs/reference/flexdriver*.md", "man/flexdriver*.1")
}

func commandOf(t *testing.T, name string, flags func(io.Writer) *pflag.FlagSet, summary, more string) manual.Command {
	t.Helper()
	var text bytes.Buffer
	set := flags(&text)
	set.Usage()
	return manual.Command{Name: name, Summary: summary, Usage: text.String(), Flags: set, More: more}
}
