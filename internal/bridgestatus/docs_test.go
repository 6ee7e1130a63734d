package bridgestatus_test

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
)

// TestDocumented: the example of docs/status.md has every field, and none more. It marks
// those that are always there.
func TestDocumented(t *testing.T) {
	document, phases, _ := strings.Cut(section(t, "## The document"), "\n## Phases")
	if diff := cmp.Diff(fields("", reflect.TypeFor[bridgestatus.BridgeStatus]()), example(t, document)); diff != "" {
		t.Errorf("in the program (-), documented (+):\n%s", diff)
	}
	for _, p := range bridgestatus.Phases() {
		if !strings.Contains(phases, "`"+string(p)+"`") {
			t.Errorf("phase %s is not explained", p)
		}
	}
}

// TestAttachmentsDocumented: so does the example of what status --attachments shows.
func TestAttachmentsDocumented(t *testing.T) {
	want := fields("[].", reflect.TypeFor[bridgestatus.ClusterAttachment]())
	if diff := cmp.Diff(want, example(t, section(t, "## VolumeAttachments"))); diff != "" {
		t.Errorf("in the program (-), documented (+):\n%s", diff)
	}
}

// section is docs/status.md from a heading on.
func section(t *testing.T, heading string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/status.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(text), "\n"+heading+"\n")
	if !ok {
		t.Fatalf("docs/status.md has no heading %s", heading)
	}
	return after
}

const always = " *"

// fields are the paths of a document's fields, marked if they are always there.
func fields(prefix string, of reflect.Type) (all []string) {
	for f := range of.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		path, mark, of := prefix+name, always, f.Type
		if strings.Contains(options, "omitempty") {
			mark = ""
		}
		if of.Kind() == reflect.Slice {
			path, of = path+"[]", of.Elem()
		}
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		all = append(all, path+mark)
		if of.Kind() == reflect.Struct && of != reflect.TypeFor[time.Time]() {
			all = append(all, fields(path+".", of)...)
		}
	}
	return all
}

// example are the paths of the fields in the first YAML of a text, in the same form.
func example(t *testing.T, text string) []string {
	t.Helper()
	_, text, _ = strings.Cut(text, "\n```yaml\n")
	text, _, ok := strings.Cut(text, "\n```\n")
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(text), &document); err != nil || !ok {
		t.Fatalf("docs/status.md has no YAML that can be read: %v", err)
	}
	return paths("", document.Content[0], strings.Split(text, "\n"))
}

// paths looks for the mark in the line of a field: which node a comment belongs to is
// not always the same.
func paths(prefix string, node *yaml.Node, lines []string) (all []string) {
	if node.Kind == yaml.SequenceNode && len(node.Content) > 0 {
		return paths("[].", node.Content[0], lines)
	}
	for i := 0; node.Kind == yaml.MappingNode && i+1 < len(node.Content); i += 2 {
		key, value, mark := node.Content[i], node.Content[i+1], ""
		path := prefix + key.Value
		if value.Kind == yaml.SequenceNode {
			path, value = path+"[]", value.Content[0]
		}
		if strings.Contains(lines[key.Line-1], "#*") && node.Style&yaml.FlowStyle == 0 {
			mark = always
		}
		all = append(append(all, path+mark), paths(path+".", value, lines)...)
	}
	return all
}
