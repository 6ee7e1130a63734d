package manual_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/flex2csi/flex2csi/hack/manual"
)

var update = flag.Bool("update", false, "write the man pages")

// TestDocuments: documents become man pages. With -update (make manual) they are written.
func TestDocuments(t *testing.T) {
	files := map[string]string{}
	for _, d := range manual.Documents() {
		text, err := os.ReadFile("../../docs/" + d.Path)
		if err != nil {
			t.Fatal(err)
		}
		files[d.File()] = d.Man(string(text))
		if page := files[d.File()]; !strings.Contains(page, "\n.SH NAME\n"+d.Name+" ") || len(page) < len(text)/2 {
			t.Errorf("%s is no page of %s:\n%.200s", d.File(), d.Path, page)
		}
	}
	if *update {
		manual.Check(t, "../..", files, true, "man/*.5", "man/*.7")
	}
}

// TestMan: a document's page has no tables, and links say where they lead.
func TestMan(t *testing.T) {
	d := manual.Document{Path: "x.md", Name: "x", Section: 7, Summary: "all of x"}
	got := d.Man("# X\n\nSee [this](mapping.md#a), [that](rbac.md).\n\n| a | default | |\n|---|---|---|\n| `b` | 1 | what b \\| c is |\n")
	for _, want := range []string{".SH NAME\nx \\- all of x", "See this (flex2csi-mapping(7)), that (docs/rbac.md).", ".TP\n\\fBb\\fR (default: 1)\nwhat b | c is\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, ".TS") {
		t.Errorf("the page has a table:\n%s", got)
	}
}

// TestFiles: the pages have what help has, without hidden flags and without a
// date.
func TestFiles(t *testing.T) {
	do := &cobra.Command{Use: "do [NAME...]", Short: "Do it", Run: func(*cobra.Command, []string) {}}
	do.Flags().StringP("to", "t", "a|b", "`place` to go to")
	do.Flags().Bool("hidden", false, "")
	if err := do.Flags().MarkHidden("hidden"); err != nil {
		t.Fatal(err)
	}
	it := &cobra.Command{Use: "it", Short: "It", Example: "  it do a"}
	it.AddCommand(do)
	files, err := manual.Files(it)
	if err != nil {
		t.Fatal(err)
	}
	for name, wants := range map[string][]string{
		"docs/reference/it.md":    {"Made from the program", "\n## it\n", "```\n  it do a\n```", "* [it do](it-do.md)\t - Do it\n"},
		"docs/reference/it-do.md": {"```\nit do [NAME...] [flags]\n```", "  -t, --to place            place to go to (default \"a|b\")\n", "* [it](it.md)\t - It\n"},
		"man/it.1":                {"\\fBit-do(1)\\fP"},
		"man/it-do.1":             {`.TH "IT-DO" "1" "" "flex2csi" "flex2csi"`, "it-do - Do it", "\\fB-t\\fP, \\fB--to\\fP"},
	} {
		for _, want := range wants {
			if !strings.Contains(files[name], want) {
				t.Errorf("%s lacks %q:\n%s", name, want, files[name])
			}
		}
		if strings.Contains(files[name], "hidden") {
			t.Errorf("%s has a hidden flag", name)
		}
	}
	if len(files) != 4 {
		t.Errorf("%d pages", len(files))
	}
}
