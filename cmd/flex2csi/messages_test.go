package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestMessages: each message in docs/troubleshooting.md is one that a program
// says.
func TestMessages(t *testing.T) {
	data, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	var source bytes.Buffer
	for _, root := range []string{"../../internal", "../../cmd", "../../pkg"} {
		if err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			source.Write(text)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	messages := 0
	for _, table := range strings.Split(string(data), "| message |")[1:] {
		table, _, _ = strings.Cut(table, "\n\n")
		for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(table, -1) {
			messages++
			if !bytes.Contains(source.Bytes(), []byte(row[1])) {
				t.Errorf("nothing says %q", row[1])
			}
		}
	}
	if messages < 30 {
		t.Errorf("only %d messages were found", messages)
	}
}
