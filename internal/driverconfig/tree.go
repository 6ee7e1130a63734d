package driverconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// node is a JSON value. encoding/json's own decoding into structs stops at the
// first fault, hides duplicate keys and matches keys in any case; a file that a
// person edits on a node deserves better.
type node struct {
	kind    kind
	text    string // of a string or number
	truth   bool
	items   []node
	members []member
}

type member struct {
	key   string
	value node
}

type kind string

const (
	kindNull   kind = "null"
	kindBool   kind = "a boolean"
	kindNumber kind = "a number"
	kindString kind = "a string"
	kindArray  kind = "an array"
	kindObject kind = "an object"
)

// parse returns the one JSON value in data.
func parse(data []byte) (node, error) {
	if !utf8.Valid(data) {
		return node{}, errors.New("not UTF-8 text")
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return node{}, errors.New("empty")
	}
	if !json.Valid(data) {
		return node{}, syntaxError(data)
	}
	w := &walker{rest: data}
	return w.value(), nil
}

func syntaxError(data []byte) error {
	var raw json.RawMessage
	err := json.Unmarshal(data, &raw)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("not JSON: %w (%s)", err, position(data, syntax.Offset))
	}
	return fmt.Errorf("not JSON: %w", err)
}

// position turns an offset into what an editor shows.
func position(data []byte, offset int64) string {
	before := data[:min(max(offset-1, 0), int64(len(data)))]
	line := bytes.Count(before, []byte("\n"))
	column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
	return fmt.Sprintf("line %d, column %d", line+1, column+1)
}

// walker walks over JSON that json.Valid has found valid, so that it has
// nothing to check and nothing can fail. json.Decoder.Token would do the same
// in ten times the time, which every callout would pay.
type walker struct{ rest []byte }

// next returns the first byte that is not white space.
func (w *walker) next() byte {
	w.rest = bytes.TrimLeft(w.rest, " \t\r\n")
	return w.rest[0]
}

// skip steps over white space and one of , : [ ] { }.
func (w *walker) skip() {
	w.next()
	w.rest = w.rest[1:]
}

func (w *walker) value() node {
	switch w.next() {
	case '{':
		return w.object()
	case '[':
		return w.array()
	case '"':
		return node{kind: kindString, text: w.string()}
	}
	end := bytes.IndexAny(w.rest, " \t\r\n,]}")
	if end < 0 {
		end = len(w.rest)
	}
	word := string(w.rest[:end])
	w.rest = w.rest[end:]
	switch word {
	case "null":
		return node{kind: kindNull}
	case "true", "false":
		return node{kind: kindBool, truth: word == "true"}
	}
	return node{kind: kindNumber, text: word}
}

func (w *walker) array() node {
	n := node{kind: kindArray}
	for w.skip(); w.next() != ']'; {
		if w.next() == ',' {
			w.skip()
		}
		n.items = append(n.items, w.value())
	}
	w.skip()
	return n
}

func (w *walker) object() node {
	n := node{kind: kindObject}
	for w.skip(); w.next() != '}'; {
		if w.next() == ',' {
			w.skip()
		}
		w.next()
		key := w.string()
		w.skip() // the colon
		n.members = append(n.members, member{key: key, value: w.value()})
	}
	w.skip()
	return n
}

// string reads the string that begins at the first byte.
func (w *walker) string() string {
	end, plain := 1, true
	for ; w.rest[end] != '"'; end++ {
		if w.rest[end] == '\\' {
			plain = false
			end++ // over the byte after it, which may be a quote
		}
	}
	quoted := w.rest[:end+1]
	w.rest = w.rest[end+1:]
	if plain {
		return string(quoted[1:end])
	}
	var s string
	_ = json.Unmarshal(quoted, &s) // it is valid
	return s
}

// describe says what n is, for "want … but got …".
func (n node) describe() string {
	if n.kind == kindString {
		return fmt.Sprintf("the string %q", clip(n.text))
	}
	if n.kind == kindNumber {
		return "the number " + clip(n.text)
	}
	return string(n.kind)
}
