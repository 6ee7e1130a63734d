package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/flex2csi/flex2csi/hack/manual"
)

// TestManual: each command has a page of the reference and a man page. With -update (make
// manual) they are written, as those of flex2csi: what flexdriver links has no room for
// cobra, so that its commands are described for that here.
func TestManual(t *testing.T) {
	var text bytes.Buffer
	if err := help(nil, &text); err != nil {
		t.Fatal(err)
	}
	root := describe(t, "Run FlexVolumes, by itself or with flex2csi", text.String(), program().FlagSet(),
		"0 for every callout that was answered, whatever the answer; 1 with --exit-code if the answer is not Success.")
	for _, c := range []struct {
		short string
		flags func(io.Writer) *pflag.FlagSet
	}{
		{"Install a FlexVolume driver on this node", func(w io.Writer) *pflag.FlagSet { return new(settings).flags(w).set }},
		{"Remove a FlexVolume driver from this node", func(w io.Writer) *pflag.FlagSet { return uninstallFlags(w).set }},
		{"Print the version", versionFlags},
	} {
		var text bytes.Buffer
		set := c.flags(&text)
		set.Usage()
		root.AddCommand(describe(t, c.short, text.String(), set,
			"0, or 1 if something failed or for a usage error; standard error has the reason."))
	}
	files, err := manual.Files(root)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		manual.Check(t, "../..", files, true, "docs/reference/flexdriver*.md", "man/flexdriver*.1")
	}
	if len(files) != 8 {
		t.Errorf("%d pages, want two of each command", len(files))
	}
}

// describe makes a command of what --help prints: the usage, a text, the flags.
func describe(t *testing.T, short, usage string, set *pflag.FlagSet, status string) *cobra.Command {
	t.Helper()
	usage, ok := strings.CutSuffix(usage, set.FlagUsagesWrapped(80))
	line, long, ok2 := strings.Cut(usage, "\n\n")
	if !ok || !ok2 {
		t.Fatalf("this has no usage, or does not end with its flags:\n%s", usage)
	}
	use := strings.TrimPrefix(line, "Usage: flexdriver ")
	if strings.HasPrefix(use, "[") {
		use = "flexdriver " + use
	}
	long = strings.TrimSuffix(strings.TrimSpace(long), "Flags, for people, stand before the callout:")
	c := &cobra.Command{
		Use: use, Short: short, Long: strings.TrimSpace(long) + "\n\nExit status: " + status,
		DisableFlagsInUseLine: true, Run: func(*cobra.Command, []string) {},
	}
	c.Flags().SortFlags = false
	c.Flags().AddFlagSet(set)
	return c
}
