package bridge_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDuties: what internal/lifecycle/lifecycle.md says of where a duty lives is true.
func TestDuties(t *testing.T) {
	text, err := os.ReadFile("../lifecycle/lifecycle.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "| duty | where |\n|---|---|\n")
	if !found {
		t.Fatal("the table of duties is gone")
	}
	rows := 0
	for row := range strings.Lines(table) {
		cells := strings.Split(row, " | ")
		if len(cells) != 2 {
			break
		}
		rows++
		for place := range strings.SplitSeq(cells[1], ";") {
			checkPlace(t, strings.TrimSpace(row), place)
		}
	}
	if rows < 30 {
		t.Errorf("only %d duties", rows)
	}
}

// checkPlace looks for "`file or package` `function`, `function`".
func checkPlace(t *testing.T, row, place string) {
	t.Helper()
	spans := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(place, -1)
	if len(spans) == 0 {
		t.Errorf("%s: names nothing", row)
		return
	}
	source := readSource(t, row, spans[0][1])
	for _, span := range spans[1:] {
		name := span[1]
		if !regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + regexp.QuoteMeta(name) + `\(`).MatchString(source) {
			t.Errorf("%s: no function %s in %s", row, name, spans[0][1])
		}
	}
}

// readSource reads a file, or all of a package.
func readSource(t *testing.T, row, name string) string {
	t.Helper()
	path := filepath.Join("..", name)
	if strings.HasPrefix(name, "pkg/") {
		path = filepath.Join("../..", name)
	}
	files := []string{path}
	if !strings.HasSuffix(name, ".go") {
		files, _ = filepath.Glob(filepath.Join(path, "*.go"))
	}
	var all strings.Builder
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Errorf("%s: %v", row, err)
		}
		all.Write(source)
	}
	if all.Len() == 0 {
		t.Errorf("%s: there is no %s", row, name)
	}
	return all.String()
}
