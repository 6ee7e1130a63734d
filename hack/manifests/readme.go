package manifests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// readme is the chart's README.md with a table of its values, which are between
// two lines of it.
func readme(root string) (string, error) {
	file := filepath.Join(root, Chart, "README.md")
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	const begin, end = "<!-- values -->\n", "<!-- end of values -->\n"
	before, rest, ok := strings.Cut(string(content), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return "", fmt.Errorf("%s has no lines %q and %q", file, begin, end)
	}
	values, err := os.ReadFile(filepath.Join(root, Chart, "values.yaml"))
	if err != nil {
		return "", err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(values, &document); err != nil {
		return "", fmt.Errorf("values.yaml: %w", err)
	}
	var table strings.Builder
	table.WriteString("| value | default | |\n|---|---|---|\n")
	if err := rows(&table, "", document.Content[0]); err != nil {
		return "", fmt.Errorf("values.yaml: %w", err)
	}
	return before + begin + table.String() + end + after, nil
}

// rows writes a row for each value, with the comment above it. Of a map there are
// those of what is in it, if that has comments.
func rows(table *strings.Builder, prefix string, values *yaml.Node) error {
	for i := 0; i+1 < len(values.Content); i += 2 {
		key, value := values.Content[i], values.Content[i+1]
		name, text := prefix+key.Value, comments(key.HeadComment)
		deeper := value.Kind == yaml.MappingNode && len(value.Content) > 0 && value.Content[0].HeadComment != ""
		if text == "" && !deeper {
			return fmt.Errorf("%s (line %d) has no comment above it", name, key.Line)
		}
		if text != "" {
			if err := row(table, name, text, value, deeper); err != nil {
				return err
			}
		}
		if deeper {
			if err := rows(table, name+".", value); err != nil {
				return err
			}
		}
	}
	return nil
}

func row(table *strings.Builder, name, text string, value *yaml.Node, deeper bool) error {
	shown := ""
	if !deeper {
		var err error
		if shown, err = inline(value); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(table, "| `%s` | %s | %s |\n", name, shown, strings.ReplaceAll(text, "|", "\\|"))
	return err
}

// comments takes the marks off a comment. What is above an empty line is about
// the values that follow, not about the next one.
func comments(head string) string {
	if at := strings.LastIndex(head, "\n\n"); at >= 0 {
		head = head[at+2:]
	}
	var words []string
	for line := range strings.Lines(head) {
		words = append(words, strings.TrimSpace(strings.TrimPrefix(line, "#")))
	}
	return strings.Join(words, " ")
}

// inline is a value on one line.
func inline(value *yaml.Node) (string, error) {
	if value.Kind == yaml.ScalarNode && value.Value == "" {
		return "", nil
	}
	var flow func(n *yaml.Node)
	flow = func(n *yaml.Node) {
		n.Style |= yaml.FlowStyle
		n.HeadComment, n.LineComment, n.FootComment = "", "", ""
		for _, child := range n.Content {
			flow(child)
		}
	}
	if value.Kind != yaml.ScalarNode {
		flow(value)
	}
	text, err := yaml.Marshal(value)
	return "`" + strings.Join(strings.Fields(string(text)), " ") + "`", err
}
