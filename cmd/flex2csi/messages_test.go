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

// TestMessages: each of our messages in docs/troubleshooting.md is one that a
// program says.
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
	_, ours, _ := strings.Cut(string(data), "\n## Messages of flex2csi\n")
	ours, _, _ = strings.Cut(ours, "\n## ")
	messages := 0
	for _, entry := range regexp.MustCompile("(?m)^- (`[^`]+`(?:, `[^`]+`)*): ").FindAllStringSubmatch(ours, -1) {
		for _, message := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(entry[1], -1) {
			messages++
			if !bytes.Contains(source.Bytes(), []byte(message[1])) {
				t.Errorf("nothing says %q", message[1])
			}
		}
	}
	if messages < 30 {
		t.Errorf("only %d messages were found", messages)
	}
}
