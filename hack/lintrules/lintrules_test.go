//go:build lintselftest

// Package lintrules proves that each rule in .golangci.yml fires. A rule with
// a mistake in it reports nothing, which looks exactly like clean code.
package lintrules

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

// TestRules lints the files of testdata/bad.txtar, which form a module of this
// project's name. A comment "want LINTER: TEXT" on a line must be answered by
// an issue of that linter with that text on that line, and by no other issue.
func TestRules(t *testing.T) {
	linter := os.Getenv("GOLANGCI_LINT")
	if linter == "" {
		t.Fatal("run make lint-selftest: GOLANGCI_LINT names the program")
	}
	rules, err := os.ReadFile("../../.golangci.yml")
	if err != nil {
		t.Fatal(err)
	}
	archive, err := txtar.ParseFile("testdata/bad.txtar")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	// Paths in rules are relative to the directory of the configuration.
	archive.Files = append(archive.Files, txtar.File{Name: ".golangci.yml", Data: rules})
	var want []string
	for _, f := range archive.Files {
		name := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
		want = append(want, wanted(f.Name, f.Data)...)
	}
	got := lint(t, dir, linter, want)
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("issues (-want +got):\n%s", diff)
	}
	if len(want) == 0 {
		t.Error("no want comments")
	}
}

// wanted returns "FILE:LINE LINTER: TEXT" for each want comment.
func wanted(name string, data []byte) []string {
	var want []string
	for i, line := range bytes.Split(data, []byte("\n")) {
		for _, text := range strings.Split(string(line), "// want ")[1:] {
			want = append(want, place(name, i+1)+" "+strings.TrimSpace(text))
		}
	}
	return want
}

// lint returns the issues in the form of want; the text of an issue is cut to
// that of the want that it answers.
func lint(t *testing.T, dir, linter string, want []string) []string {
	t.Helper()
	cmd := exec.Command(linter, "run", "--output.json.path", "stdout", "--output.text.path", os.DevNull,
		"--show-stats=false", "--max-issues-per-linter=0", "--max-same-issues=0", "--issues-exit-code=0", "./...")
	cmd.Dir = dir
	// Its cache remembers the files of an earlier run by directories that are gone.
	cmd.Env = append(os.Environ(), "GOLANGCI_LINT_CACHE="+t.TempDir())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("golangci-lint: %v\n%s", err, stderr.Bytes())
	}
	var report struct {
		Issues []struct {
			FromLinter, Text string
			Pos              struct {
				Filename string
				Line     int
			}
		}
	}
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("golangci-lint: %v\n%s", err, out)
	}
	var got []string
	for _, i := range report.Issues {
		issue := place(i.Pos.Filename, i.Pos.Line) + " " + i.FromLinter + ": " + i.Text
		for _, w := range want {
			at, text, _ := strings.Cut(w, ": ")
			if strings.HasPrefix(issue, at+": ") && strings.Contains(issue, text) {
				issue = w
				break
			}
		}
		got = append(got, issue)
	}
	return got
}

func place(name string, line int) string { return name + ":" + strconv.Itoa(line) }
