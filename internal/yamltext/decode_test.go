package yamltext_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/internal/strict"
	"github.com/flex2csi/flex2csi/internal/yamltext"
)

type file struct {
	Name   string            `yaml:"name"`
	Sum    string            `yaml:"sum" want:"an expression"`
	On     *bool             `yaml:"on,omitempty"`
	Texts  map[string]string `yaml:"texts"`
	List   []entry           `yaml:"list"`
	Hidden string            `yaml:"-"`
}

type entry struct {
	Wait  string `yaml:"wait"`
	Count string `yaml:"count"`
}

func (f *file) RemovedFields() map[string]string { return map[string]string{"old": "delete it"} }

func (e *entry) SetDefaults() { e.Count = "one" }

func decode(t *testing.T, text string) (file, []string) {
	t.Helper()
	root, err := yamltext.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var f file
	d := yamltext.Decoder{}
	d.Decode(root, &f)
	d.Fault("list[0].missing", "missing")
	d.Fault("elsewhere", "no line")
	invalid, ok := errors.AsType[*strict.InvalidError](d.Err())
	if !ok {
		t.Fatal("no fault")
	}
	var faults []string
	for _, f := range invalid.Faults {
		faults = append(faults, f.String())
	}
	return f, faults
}

// TestDecode: each fault has its path, and its line or that of what something is missing
// from. What can be decoded is.
func TestDecode(t *testing.T) {
	got, faults := decode(t, `# a comment
name: 5
sum: {a: b}
on: yes
texts: !map {1: x, a: 2, b: ~, c: 2020-01-01, c: y}
old: [x]
"-": x
"a.b": x
list:
- wait: 5s
  wait: 6s
- y
- {count: !!str 2, old: x}
- wait:
`)
	want := []string{
		"elsewhere: no line",
		"name (line 2): want a string but got the number 5",
		"sum (line 3): want an expression but got an object: put single quotes around it",
		`on (line 4): want a boolean but got the string "yes"`,
		"texts.a (line 5): want a string but got the number 2",
		"texts.b (line 5): want a string but got null",
		"texts.c (line 5): twice in the file",
		"old (line 6): was removed: delete it",
		`"-" (line 7): no such field (there are: list, name, on, sum, texts)`,
		`"a.b" (line 8): no such field (there are: list, name, on, sum, texts)`,
		"list[0].missing (line 10): missing",
		"list[0].wait (line 11): twice in the file",
		`list[1] (line 12): want an object but got the string "y"`,
		"list[2].old (line 13): no such field (there are: count, wait)",
		"list[3].wait (line 14): want a string but got null",
	}
	if diff := cmp.Diff(want, faults); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	decoded := file{
		On:    new(false),
		Texts: map[string]string{"1": "x", "a": "", "b": "", "c": "2020-01-01"},
		List:  []entry{{Wait: "5s", Count: "one"}, {Count: "one"}, {Count: "2"}, {Count: "one"}},
	}
	if diff := cmp.Diff(decoded, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestParseRefuses what can be decoded in several ways, or takes too much memory.
func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"a: &x 1\n":             "line 1: anchors and aliases",
		"? [a]\n: b\n":          "line 1: a key that is no plain text",
		"a: b\n<<: {c: d}\n":    "line 2: a key that is no plain text",
		"a: !!binary aGk=\n":    `line 1: the tag "!!binary" is not supported`,
		"\na: !!bool 'maybe'\n": "line 2: the value is not of the type of its tag !!bool",
		"a: !!int x\n":          "line 1: the value is not of the type of its tag !!int",
		"a: !!map x\n":          `line 1: the tag "!!map" is not supported`,
		"a: !!seq x\n":          `line 1: the tag "!!seq" is not supported`,
	} {
		if _, err := yamltext.Parse([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}
