package driverconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/flex2csi/flex2csi/internal/strict"
)

// parse returns the one JSON value in data.
func parse(data []byte) (strict.Node, error) {
	if !utf8.Valid(data) {
		return strict.Node{}, errors.New("not UTF-8 text")
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return strict.Node{}, errors.New("empty")
	}
	if !json.Valid(data) {
		return strict.Node{}, syntaxError(data)
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

func (w *walker) value() strict.Node {
	switch w.next() {
	case '{':
		return w.object()
	case '[':
		return w.array()
	case '"':
		return strict.Node{Kind: strict.String, Text: w.string()}
	}
	end := bytes.IndexAny(w.rest, " \t\r\n,]}")
	if end < 0 {
		end = len(w.rest)
	}
	word := string(w.rest[:end])
	w.rest = w.rest[end:]
	switch word {
	case "null":
		return strict.Node{Kind: strict.Null}
	case "true", "false":
		return strict.Node{Kind: strict.Bool, Truth: word == "true"}
	}
	return strict.Node{Kind: strict.Number, Text: word}
}

func (w *walker) array() strict.Node {
	n := strict.Node{Kind: strict.Array}
	for w.skip(); w.next() != ']'; {
		if w.next() == ',' {
			w.skip()
		}
		n.Items = append(n.Items, w.value())
	}
	w.skip()
	return n
}

func (w *walker) object() strict.Node {
	n := strict.Node{Kind: strict.Object}
	for w.skip(); w.next() != '}'; {
		if w.next() == ',' {
			w.skip()
		}
		w.next()
		key := w.string()
		w.skip() // the colon
		n.Members = append(n.Members, strict.Member{Key: key, Value: w.value()})
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
