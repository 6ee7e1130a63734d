package manual_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const root = "../.."

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// files returns the files below a directory of the repository that match a pattern.
func files(t *testing.T, dir, pattern string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (d.Name() == "bin" || d.Name() == "testdata" || d.Name() == ".git") {
			return skip(err)
		}
		if ok, _ := filepath.Match(pattern, d.Name()); ok && !d.IsDir() {
			name, _ := filepath.Rel(root, path)
			all = append(all, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	fenced  = regexp.MustCompile("(?s)\n```.*?\n```")
)

// TestLinks: what documents link to is there, headings too.
func TestLinks(t *testing.T) {
	links := 0
	for _, file := range files(t, ".", "*.md") {
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(read(t, file), ""), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, ":") {
				continue // on the network
			}
			links++
			path := file
			if target != "" {
				path = filepath.Join(filepath.Dir(file), target)
			}
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("%s links to %s, which is not there", file, m[1])
			} else if anchor != "" && !slices.Contains(anchors(read(t, path)), anchor) {
				t.Errorf("%s links to %s, and there is no such heading", file, m[1])
			}
		}
	}
	if links < 100 {
		t.Errorf("only %d links were found", links)
	}
}

// anchors are what GitHub makes of headings.
func anchors(text string) (all []string) {
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		name := strings.ToLower(regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`).ReplaceAllString(m[1], "$1"))
		name = regexp.MustCompile(`[^\p{L}\p{N}\- _]`).ReplaceAllString(name, "")
		all = append(all, strings.ReplaceAll(name, " ", "-"))
	}
	return all
}

// TestIndex: docs/README.md leads to every document. Pages of commands are not in the
// repository (make manual).
func TestIndex(t *testing.T) {
	index := read(t, "docs/README.md")
	for _, file := range files(t, "docs", "*.md") {
		name := strings.TrimPrefix(file, "docs/")
		if strings.HasPrefix(name, "reference/flex2csi") || strings.HasPrefix(name, "reference/flexdriver") {
			continue
		}
		if name != "README.md" && (!strings.HasPrefix(name, "adr/") || name == "adr/README.md") && !strings.Contains(index, "("+name+")") {
			t.Errorf("docs/README.md does not name %s", name)
		}
	}
}

// column returns the first cells of the rows of all tables.
func column(text string) (all []string) {
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// TestEvents: docs/reference/events.md has the reasons of all Events, and none more.
func TestEvents(t *testing.T) {
	reasons := map[string]bool{}
	said := regexp.MustCompile(`\bnotify(?:Pods)?\([^"\n]*"([A-Z]\w+)"|\breason\w* += "([A-Z]\w+)"`)
	for _, file := range slices.Concat(files(t, "internal", "*.go"), files(t, "cmd", "*.go")) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, m := range said.FindAllStringSubmatch(read(t, file), -1) {
			reasons[m[1]+m[2]] = true
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(reasons)), column(read(t, "docs/reference/events.md"))); diff != "" {
		t.Errorf("reasons in the code (-), documented (+):\n%s", diff)
	}
}

// TestCodes: docs/reference/codes.md has all error codes, and none more.
func TestCodes(t *testing.T) {
	var codes []string
	for _, m := range regexp.MustCompile(`(?m)^\tCode\w+ +Code = "(\w+)"`).FindAllStringSubmatch(read(t, "pkg/flex/error.go"), -1) {
		codes = append(codes, m[1])
	}
	_, table, _ := strings.Cut(read(t, "docs/reference/codes.md"), "\n## Error codes")
	if diff := cmp.Diff(codes, column(table)); diff != "" || len(codes) == 0 {
		t.Errorf("codes in the code (-), documented (+):\n%s", diff)
	}
}

// TestTestsInDocuments: a test that a document cites is there.
func TestTestsInDocuments(t *testing.T) {
	var source strings.Builder
	for _, file := range files(t, ".", "*_test.go") {
		source.WriteString(read(t, file))
	}
	cited := 0
	for _, file := range slices.Concat(files(t, "docs", "*.md"), files(t, "test", "*.md"), files(t, "pkg", "*.md"), files(t, "internal", "*.md")) {
		for _, m := range regexp.MustCompile("`(Test[A-Z]\\w+)`").FindAllStringSubmatch(read(t, file), -1) {
			cited++
			if !strings.Contains(source.String(), "\nfunc "+m[1]+"(t *testing.T)") {
				t.Errorf("%s cites %s, which is not there", file, m[1])
			}
		}
	}
	if cited < 30 {
		t.Errorf("only %d tests are cited", cited)
	}
}

func skip(err error) error {
	if err != nil {
		return err
	}
	return fs.SkipDir
}
