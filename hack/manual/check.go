package manual

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Check fails t for each file below root that is not what it ought to be, and for
// those that fit the patterns and ought not to be. With update it makes it so.
func Check(t *testing.T, root string, files map[string]string, update bool, patterns ...string) {
	t.Helper()
	for name, want := range files {
		path := filepath.Join(root, name)
		got, err := os.ReadFile(path)
		if err == nil && string(got) == want {
			continue
		}
		if update {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		t.Errorf("%s is not up to date: run make docs. It has (-), and ought to have (+):\n%s", name, cmp.Diff(string(got), want))
	}
	for _, name := range left(t, root, files, patterns) {
		if !update {
			t.Errorf("%s is of nothing that there is: run make docs", name)
		} else if err := os.Remove(filepath.Join(root, name)); err != nil {
			t.Error(err)
		}
	}
}

// left are files that fit the patterns, and that nothing makes.
func left(t *testing.T, root string, files map[string]string, patterns []string) (all []string) {
	t.Helper()
	for _, pattern := range patterns {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			name, err := filepath.Rel(root, path)
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := files[name]; !ok && !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all
}
