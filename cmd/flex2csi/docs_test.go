package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestExamples maps the examples of docs/mapping.md: in each of its sections,
// the first block of YAML is the configuration and the second one the manifests,
// and the lines of the third one are printed, in this order.
func TestExamples(t *testing.T) {
	data, err := os.ReadFile("../../docs/mapping.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := 0
	for _, section := range strings.Split(string(data), "\n## ")[1:] {
		title, _, _ := strings.Cut(section, "\n")
		if !strings.HasPrefix(title, "Example") {
			continue
		}
		examples++
		t.Run(title, func(t *testing.T) {
			parts := blocks(section)
			if len(parts) != 3 {
				t.Fatalf("%d blocks of YAML, want 3", len(parts))
			}
			out := mapExample(t, section, parts[0], parts[1])
			for line := range strings.Lines(parts[2]) {
				_, rest, ok := strings.Cut("\n"+out, "\n"+line)
				if !ok {
					t.Fatalf("%q is not printed, or not there:\n%s", line, out)
				}
				out = rest
			}
		})
	}
	if examples < 1 {
		t.Error("no example")
	}
}

// mapExample calls flex2csi map with the flags that the text names.
func mapExample(t *testing.T, section, config, input string) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	args := []string{"map", "--config", write("config.yaml", config), "-f", write("input.yaml", input)}
	if strings.Contains(section, "With `--attach`") {
		args = append(args, "--attach")
	}
	if _, rest, ok := strings.Cut(section, "With `--capability "); ok {
		name, _, _ := strings.Cut(rest, "`")
		args = append(args, "--capability", name)
	}
	var out, errs bytes.Buffer
	if status := run(args, environment{in: strings.NewReader(""), out: &out, err: &errs}); status != 0 {
		t.Fatalf("flex2csi %s: status %d: %s", strings.Join(args, " "), status, errs.String())
	}
	return out.String()
}

// TestConfigurationsInDocs checks every whole configuration in the docs.
func TestConfigurationsInDocs(t *testing.T) {
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range blocks(string(data)) {
			if !strings.Contains(block, "kind: BridgeConfiguration") {
				continue
			}
			found++
			var out, errs bytes.Buffer
			if run([]string{"check", "--quiet", "--config", "-"}, environment{in: strings.NewReader(block), out: &out, err: &errs}) != 0 {
				t.Errorf("%s: %s", file, errs.String())
			}
		}
	}
	if found < 2 {
		t.Errorf("found only %d", found)
	}
}

// blocks returns the fenced blocks of YAML in Markdown.
func blocks(text string) (all []string) {
	for {
		_, rest, ok := strings.Cut(text, "\n```yaml")
		if !ok {
			return all
		}
		_, rest, _ = strings.Cut(rest, "\n")
		block, after, _ := strings.Cut(rest, "\n```\n")
		all = append(all, block+"\n")
		text = "\n" + after
	}
}
