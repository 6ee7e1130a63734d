package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/hack/manual"
)

var update = flag.Bool("update", false, "write the reference and the man pages")

// TestManual: each command has a page of the reference and a man page. With -update (make
// manual) they are written: nothing keeps them that the commands do not say.
func TestManual(t *testing.T) {
	files, err := manual.Files(newRoot())
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		manual.Check(t, "../..", files, true, "docs/reference/flex2csi*.md", "man/flex2csi*.1")
	}
	for _, name := range []string{"docs/reference/flex2csi.md", "docs/reference/flex2csi-migrate-apply.md", "man/flex2csi.1", "man/flex2csi-migrate-apply.1"} {
		if files[name] == "" {
			t.Errorf("no %s", name)
		}
	}
}

// TestStatuses: docs/reference/codes.md has the exit statuses of every command that has a
// page.
func TestStatuses(t *testing.T) {
	codes, err := os.ReadFile("../../docs/reference/codes.md")
	if err != nil {
		t.Fatal(err)
	}
	table, _, _ := strings.Cut(string(codes), "\n## Answers")
	files, err := manual.Files(newRoot())
	if err != nil {
		t.Fatal(err)
	}
	for file := range files {
		name, isPage := strings.CutSuffix(filepath.Base(file), ".md")
		if name = strings.ReplaceAll(name, "-", " "); isPage && name != "flex2csi" && !strings.Contains(table, "`"+name+"`") {
			t.Errorf("docs/reference/codes.md has no row for %s", name)
		}
	}
}
