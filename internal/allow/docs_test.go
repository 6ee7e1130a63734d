package allow

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the lists into docs/reference/options.md")

const (
	listsBegin = "<!-- Lists of internal/allow: go test ./internal/allow -update writes them. -->\n"
	listsEnd   = "<!-- End of the lists. -->\n"
)

// TestDocs: docs/reference/options.md shows the lists as they are.
func TestDocs(t *testing.T) {
	const path = "../../docs/reference/options.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(text), listsBegin)
	_, after, ok2 := strings.Cut(rest, listsEnd)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no place for the lists", path)
	}
	want := before + listsBegin + lists() + listsEnd + after
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

func lists() string {
	var b strings.Builder
	b.WriteString("\n## Mount options\n")
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
		bullets(&b, tt.title, tt.list)
	}
	b.WriteString("\n## Sources\n\n| fsType | source |\n|---|---|\n")
	forms := map[string][]string{}
	for _, fsType := range append(SourceTypes(), "fuse.PROGRAM", "fuse.s3fs", "fuse.sshfs") {
		form := formOf(strings.ToLower(fsType)).text
		forms[form] = append(forms[form], fsType)
	}
	for _, form := range slices.SortedFunc(maps.Keys(forms), func(a, b string) int { return strings.Compare(forms[a][0], forms[b][0]) }) {
		fmt.Fprintf(&b, "| %s | %s |\n", quoted(forms[form]), form)
	}
	b.WriteString("\n")
	return b.String()
}

// bullets writes the lines of a list, those without a value together.
func bullets(b *strings.Builder, title string, l list) {
	fmt.Fprintf(b, "\n**%s**\n\n", title)
	var bare []string
	for names, grammar := range l.lines() {
		if grammar == "-" {
			bare = append(bare, names...)
		}
	}
	if len(bare) > 0 {
		fmt.Fprintf(b, "- %s\n", quoted(paired(bare)))
	}
	for names, grammar := range l.lines() {
		if grammar != "-" {
			fmt.Fprintf(b, "- %s: %s\n", quoted(names), brief(describe(grammar)))
		}
	}
}

// paired writes acl and noacl as one.
func paired(names []string) (all []string) {
	for _, name := range names {
		switch yes, no := strings.CutPrefix(name, "no"); {
		case slices.Contains(names, "no"+name):
			all = append(all, "[no]"+name)
		case !no || !slices.Contains(names, yes):
			all = append(all, name)
		}
	}
	return all
}

// levels returns `name:1`, `name:2` and so on.
func levels(name string, last int) string {
	var all []string
	for i := range last {
		all = append(all, fmt.Sprintf("%s:%d", name, i+1))
	}
	return quoted(all)
}

var limits = regexp.MustCompile(`(\d[kmg]?) to (\d)`)

// brief leaves out what docs/reference/options.md says once, before the lists.
func brief(values string) string {
	values = strings.NewReplacer(
		"a name (letters, digits, `.`, `-`, `_`)", "NAME",
		"a host name or address", "HOST",
		"an octal mode", "MODE",
		"none, or ", "none or ",
		levels("zlib", 9), "`zlib:1`–`zlib:9`",
		levels("zstd", 15), "`zstd:1`–`zstd:15`",
	).Replace(values)
	return limits.ReplaceAllString(values, "$1–$2")
}
