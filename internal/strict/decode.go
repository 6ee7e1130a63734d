package strict

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Node is a value in a file.
type Node struct {
	Kind    NodeKind
	Text    string // of a string or number
	Truth   bool
	Items   []Node
	Members []Member
	Line    int // 0 if not known
}

// Member is a key in an object, and its value.
type Member struct {
	Key   string
	Value Node
}

// NodeKind says what a node is, in words for messages.
type NodeKind string

// The kinds.
const (
	Null   NodeKind = "null"
	Bool   NodeKind = "a boolean"
	Number NodeKind = "a number"
	String NodeKind = "a string"
	Array  NodeKind = "an array"
	Object NodeKind = "an object"
)

// Describe says what n is, for "want … but got …".
func (n Node) Describe() string {
	if n.Kind == String {
		return fmt.Sprintf("the string %q", Clip(n.Text))
	}
	if n.Kind == Number {
		return "the number " + Clip(n.Text)
	}
	return string(n.Kind)
}

// Only returns an object that lacks all other members.
func (n Node) Only(keys ...string) Node {
	n.Members = slices.DeleteFunc(slices.Clone(n.Members), func(m Member) bool {
		return !slices.Contains(keys, m.Key)
	})
	return n
}

// Take puts a value where it belongs, or adds a fault.
type Take func(path string, n Node)

// Fields is what an object may have in it: for each key what takes its value.
type Fields map[string]Take

// A Decoder puts nodes into variables, and collects the faults.
type Decoder struct {
	Report
	lines map[string]int // by path, as far as nodes have one
}

// Locate gives faults that have no line that of their path.
func (d *Decoder) Locate(faults []Fault) {
	for i, f := range faults {
		for path := f.Path; f.Line == 0 && path != ""; path = parent(path) {
			faults[i].Line = d.lines[path]
			f.Line = faults[i].Line
		}
	}
}

// parent cuts the last element off a path. Quoted keys may have dots in them,
// which makes a path that nothing has, and the next one is tried.
func parent(path string) string { return path[:max(strings.LastIndexAny(path, ".["), 0)] }

// Is reports whether n is of the kind wanted, and adds a fault if not.
func (d *Decoder) Is(want NodeKind, path string, n Node) bool {
	if n.Kind != want {
		d.Fault(path, "want %s but got %s", want, n.Describe())
	}
	return n.Kind == want
}

// Object gives the members of n to those who take them.
func (d *Decoder) Object(path string, n Node, fields Fields) {
	seen := make(map[string]bool, len(n.Members))
	for _, m := range n.Members {
		at := Join(path, m.Key)
		d.locate(at, m.Value)
		take, known := fields[m.Key]
		switch {
		case !known:
			d.Fault(at, "no such field (there are: %s)", keys(fields))
		case seen[m.Key]:
			d.Fault(at, "twice in the file")
		default:
			take(at, m.Value)
		}
		seen[m.Key] = true
	}
}

func (d *Decoder) locate(path string, n Node) {
	if n.Line == 0 {
		return
	}
	if d.lines == nil {
		d.lines = map[string]int{}
	}
	d.lines[path] = n.Line
}

// Nested takes an object.
func (d *Decoder) Nested(fields Fields) Take {
	return func(path string, n Node) {
		if d.Is(Object, path, n) {
			d.Object(path, n, fields)
		}
	}
}

// Each takes an array; each is called for its items.
func (d *Decoder) Each(each Take) Take {
	return func(path string, n Node) {
		if !d.Is(Array, path, n) {
			return
		}
		for i, item := range n.Items {
			at := Index(path, i)
			d.locate(at, item)
			each(at, item)
		}
	}
}

// Bool takes a boolean.
func (d *Decoder) Bool(dst *bool) Take {
	return func(path string, n Node) {
		if d.Is(Bool, path, n) {
			*dst = n.Truth
		}
	}
}

// Text takes a string. It is a function because methods have no type
// parameters.
func Text[T ~string](d *Decoder, dst *T) Take {
	return func(path string, n Node) {
		if d.Is(String, path, n) {
			*dst = T(n.Text)
		}
	}
}

// Texts takes an array of strings.
func (d *Decoder) Texts(dst *[]string) Take {
	return d.Each(func(path string, n Node) {
		if d.Is(String, path, n) {
			*dst = append(*dst, n.Text)
		}
	})
}

// TextMap takes an object with any keys. Its values are strings.
func (d *Decoder) TextMap(dst *map[string]string) Take {
	return func(path string, n Node) {
		if !d.Is(Object, path, n) {
			return
		}
		*dst = make(map[string]string, len(n.Members))
		for _, m := range n.Members {
			at := Join(path, m.Key)
			d.locate(at, m.Value)
			if _, twice := (*dst)[m.Key]; twice {
				d.Fault(at, "twice in the file")
			} else if d.Is(String, at, m.Value) {
				(*dst)[m.Key] = m.Value.Text
			}
		}
	}
}

// Duration takes a string such as "90s" and calls set with what it means.
func (d *Decoder) Duration(set func(time.Duration)) Take {
	return func(path string, n Node) {
		if !d.Is(String, path, n) {
			return
		}
		duration, err := time.ParseDuration(n.Text)
		if err != nil {
			d.Fault(path, "%q is no duration (want one such as \"90s\" or \"2m\")", Clip(n.Text))
			return
		}
		set(duration)
	}
}

func keys(fields Fields) string {
	all := make([]string, 0, len(fields))
	for key := range fields {
		all = append(all, key)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
