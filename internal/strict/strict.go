// Package strict reads configuration strictly: an unknown field, a wrong type
// and a value that makes no sense are all faults, and all of them are reported
// at once, each with its path. Decoding into structs, as encoding/json and the
// YAML packages do it, stops at the first one, and some hide duplicate keys or
// match keys in any case; a file that a person edits on a node deserves better.
//
// This package has the [Report], with the checks that all formats share, and cuts JSON
// into its elements. Package yamltext decodes YAML.
// Every callout of flexdriver loads this package, so it imports little.
package strict

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Kind says what a value is, in words for messages.
type Kind string

// The kinds.
const (
	Null   Kind = "null"
	Bool   Kind = "a boolean"
	Number Kind = "a number"
	String Kind = "a string"
	Array  Kind = "an array"
	Object Kind = "an object"
)

// Describe says what a value with a text is, for "want … but got …".
func (k Kind) Describe(text string) string {
	switch k {
	case String:
		return fmt.Sprintf("the string %q", Clip(text))
	case Number:
		return "the number " + Clip(text)
	}
	return string(k)
}

// Fault is one thing wrong in a configuration.
type Fault struct {
	// Path is where: "timeouts.mount", "directoryRoots[1]", or empty for the
	// file as a whole.
	Path string
	// Line is where in the file, or 0 if it is not known or does not help.
	Line int
	// Message is what, and what would be right.
	Message string
}

// String returns path, line and message in one line.
func (f Fault) String() string {
	line := ""
	if f.Line > 0 {
		line = "line " + strconv.Itoa(f.Line)
	}
	switch {
	case f.Path == "" && line == "":
		return f.Message
	case f.Path == "":
		return line + ": " + f.Message
	case line == "":
		return f.Path + ": " + f.Message
	}
	return f.Path + " (" + line + "): " + f.Message
}

// InvalidError is what is wrong with a configuration: at least one fault.
type InvalidError struct{ Faults []Fault }

// Error returns all faults in one line.
func (e *InvalidError) Error() string {
	if len(e.Faults) == 1 {
		return e.Faults[0].String()
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%d faults", len(e.Faults))
	for i, f := range e.Faults {
		fmt.Fprintf(&text, " (%d) %s", i+1, f)
	}
	return text.String()
}

// Report collects faults. Its zero value is empty.
type Report struct{ Faults []Fault }

// Err returns nil, or an [*InvalidError] with the faults.
func (r *Report) Err() error {
	if len(r.Faults) == 0 {
		return nil
	}
	return &InvalidError{Faults: r.Faults}
}

// Fault adds one.
func (r *Report) Fault(path, format string, args ...any) {
	r.Faults = append(r.Faults, Fault{Path: path, Message: fmt.Sprintf(format, args...)})
}

// Add takes faults over, but not a second one of the same place: what could not
// be decoded is empty and would be called missing.
func (r *Report) Add(faults []Fault) {
	known := make(map[string]bool, len(r.Faults))
	for _, f := range r.Faults {
		known[f.Path] = true
	}
	for _, f := range faults {
		if !known[f.Path] {
			r.Faults = append(r.Faults, f)
		}
	}
}

// Focus drops all faults but those of some paths, and reports whether there are any there.
func (r *Report) Focus(paths ...string) bool {
	others := func(f Fault) bool { return !slices.Contains(paths, f.Path) }
	if !slices.ContainsFunc(r.Faults, func(f Fault) bool { return !others(f) }) {
		return false
	}
	r.Faults = slices.DeleteFunc(r.Faults, others)
	return true
}

// Is reports whether a value with a text is of the kind wanted, and adds a fault if not.
func (r *Report) Is(path string, want, got Kind, text string) bool {
	if got != want {
		r.Fault(path, "want %s but got %s", want, got.Describe(text))
	}
	return got == want
}

// Unknown adds a fault for a field that is none of those known.
func (r *Report) Unknown(path string, known []string) {
	r.Fault(path, "no such field (there are: %s)", strings.Join(slices.Sorted(slices.Values(known)), ", "))
}

// Want checks that got, which says what version or kind a file is of, is what
// a program, by its name, knows.
func (r *Report) Want(path, got, want, program string) {
	switch got {
	case want:
	case "":
		r.Fault(path, "missing (want %q)", want)
	default:
		r.Fault(path, "%q is not known to this %s (want %q)", Clip(got), program, want)
	}
}

// OneOf checks that got is one of a few words.
func (r *Report) OneOf(path, got string, allowed ...string) {
	if slices.Contains(allowed, got) {
		return
	}
	var quoted []string
	for _, a := range allowed {
		if a != "" {
			quoted = append(quoted, fmt.Sprintf("%q", a))
		}
	}
	r.Fault(path, "%q is none of %s", Clip(got), strings.Join(quoted, ", "))
}

// AbsPath checks that a path of a node is absolute and clean. It accepts an empty one:
// the field was not set.
func (r *Report) AbsPath(at, got string) {
	if got == "" {
		return
	}
	switch {
	case strings.ContainsFunc(got, unicode.IsControl):
		r.Fault(at, "%q has a control character in it", Clip(got))
	case !path.IsAbs(got):
		r.Fault(at, "%q is not absolute", Clip(got))
	case path.Clean(got) != got:
		r.Fault(at, "%q is not clean (want %q)", Clip(got), Clip(path.Clean(got)))
	}
}

// Join adds a key to a path. It quotes keys that no field has, so that a fault
// stays one line of text.
func Join(path, key string) string {
	key = Clip(key)
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return !alphanumeric(r) }) {
		key = strconv.Quote(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// Index adds an index to a path.
func Index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// Clip keeps foreign text in messages short.
func Clip(s string) string {
	const limit = 64
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}

func alphanumeric(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
}
