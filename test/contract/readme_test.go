package contract

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// TestChecklistNamesEveryTest keeps README.md true in both directions.
func TestChecklistNamesEveryTest(t *testing.T) {
	names := func(pattern string, files ...string) []string {
		var all []string
		for _, file := range files {
			body, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(body), -1) {
				all = append(all, m[1])
			}
		}
		return all
	}
	files, err := filepath.Glob("*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests: %v", err)
	}
	written := names("`(Test\\w+)`", "README.md")
	real := names(`(?m)^func (Test[A-Z]\w+)\(t \*testing\.T\)`, files...)
	for _, name := range real {
		if !slices.Contains(written, name) {
			t.Errorf("README.md does not name %s", name)
		}
	}
	for _, name := range written {
		if !slices.Contains(real, name) {
			t.Errorf("README.md names %s, which does not exist", name)
		}
	}
}
