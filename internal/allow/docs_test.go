package allow

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the lists into docs/volumes.md")

const (
	listsBegin = "<!-- Lists of internal/allow: go test ./internal/allow -update writes them. -->\n"
	listsEnd   = "<!-- End of the lists. -->\n"
)

// TestDocs: docs/volumes.md shows the lists as they are.
func TestDocs(t *testing.T) {
	const path = "../../docs/volumes.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(text), listsBegin)
	_, after, ok2 := strings.Cut(rest, listsEnd)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no place for the lists", path)
	}
	want := before + listsBegin + tables() + listsEnd + after
	if want == string(text) {
		return
	}
	if !*update {
		t.Fatalf("%s does not show the lists; go test ./internal/allow -update writes them", path)
	}
	if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

func tables() string {
	var b strings.Builder
	b.WriteString("\n### Options of mkfs\n")
	for _, tt := range []struct {
		title string
		list  list
	}{{"ext4, ext3", mkfsExt}, {"xfs", mkfsXFS}, {"btrfs", mkfsBtrfs}} {
		table(&b, tt.title, tt.list)
	}
	b.WriteString("\n### Mount options\n")
	for _, tt := range []struct {
		title string
		list  list
	}{
		{"every volume", mountAttributes},
		{"every volume but `path`", mountEvery},
		{"ext4, ext3", mountExt},
		{"xfs", mountXFS},
		{"btrfs", mountBtrfs},
		{"`medium: memory`", mountMemory},
		{"nfs, nfs4", mountNFS},
		{"cifs, smb3", mountCIFS},
		{"ceph", mountCeph},
		{"glusterfs", mountGluster},
		{"9p", mount9P},
		{"virtiofs", mountLists()["virtiofs"]},
		{"lustre", mountLustre},
		{"every `fuse.PROGRAM`", mountFUSE},
		{"fuse.s3fs", mountS3FS},
		{"fuse.sshfs", mountSSHFS},
	} {
		table(&b, tt.title, tt.list)
	}
	b.WriteString("\n### Sources\n\n| fsType | source |\n|---|---|\n")
	for _, fsType := range append(SourceTypes(), "fuse.PROGRAM") {
		fmt.Fprintf(&b, "| `%s` | %s |\n", fsType, formOf(strings.ToLower(fsType)).text)
	}
	b.WriteString("\n")
	return b.String()
}

// table writes the lines of a list, those without a value together.
func table(b *strings.Builder, title string, l list) {
	fmt.Fprintf(b, "\n| %s | value |\n|---|---|\n", title)
	var bare []string
	for names, grammar := range l.lines() {
		if grammar == "-" {
			bare = append(bare, names...)
		}
	}
	if len(bare) > 0 {
		fmt.Fprintf(b, "| %s | none |\n", quoted(bare))
	}
	for names, grammar := range l.lines() {
		if grammar != "-" {
			fmt.Fprintf(b, "| %s | %s |\n", quoted(names), describeAll(grammar))
		}
	}
}
