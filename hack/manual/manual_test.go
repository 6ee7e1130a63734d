package manual_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/flex2csi/flex2csi/hack/manual"
)

var update = flag.Bool("update", false, "make the man pages anew")

// TestDocuments: the pages in man that are made of documents are up to date. With
// -update (make docs) they are made.
func TestDocuments(t *testing.T) {
	files := map[string]string{}
	for _, d := range manual.Documents() {
		text, err := os.ReadFile("../../docs/" + d.Path)
		if err != nil {
			t.Fatal(err)
		}
		files[d.File()] = d.Man(string(text))
	}
	manual.Check(t, "../..", files, *update, "man/*.5", "man/*.7")
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

// TestFiles: a flag is on both pages with all that is known of it, and the line
// before the flags is not; a help without its usage is an error.
func TestFiles(t *testing.T) {
	set := pflag.NewFlagSet("do", pflag.ContinueOnError)
	set.StringP("to", "t", "a|b", "where to, a `place`")
	set.Bool("hidden", false, "")
	if err := set.MarkHidden("hidden"); err != nil {
		t.Fatal(err)
	}
	c := manual.Command{Name: "it do", Summary: "do it", Flags: set, Usage: "Usage: it do [flags]\n\nDo <it>:\n  it do\n\nFlags:\n\n" + set.FlagUsagesWrapped(80)}
	files, err := manual.Files([]manual.Command{c})
	if err != nil {
		t.Fatal(err)
	}
	for name, wants := range map[string][]string{
		"docs/reference/it-do.md": {"\n    it do [flags]\n", "Do \\<it>:\n\n    it do\n", "| `-t`, `--to` *place* | `a|b` | where to, a place |\n"},
		"man/it-do.1":             {".TH IT-DO 1", ".SH NAME\nit-do \\- do it", ".TP\n\\fB-t\\fP, \\fB--to\\fP \\fIplace\\fP\nwhere to, a place (default: a|b)\n"},
	} {
		for _, want := range wants {
			if !strings.Contains(files[name], want) {
				t.Errorf("%s lacks %q:\n%s", name, want, files[name])
			}
		}
		for _, not := range []string{"hidden", "Flags:"} {
			if strings.Contains(files[name], not) {
				t.Errorf("%s has %q", name, not)
			}
		}
	}
	c.Usage = "Do it.\n" + set.FlagUsagesWrapped(80)
	if _, err := manual.Files([]manual.Command{c}); err == nil {
		t.Error("a help without usage is no error")
	}
}
