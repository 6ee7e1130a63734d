// Package jsonwalk reads small JSON documents front to back, at the caller's
// pace. Unlike decoding into a map or a struct it shows keys that come twice
// and leaves the words of messages to the caller, and it takes a tenth of the
// time of encoding/json's tokens, which every callout would pay.
package jsonwalk

import (
	"encoding/json"
	"iter"
	"strings"
)

// Check returns nil if data is exactly one valid JSON value; otherwise the
// error is a [*json.SyntaxError] that tells where it is not.
func Check(data []byte) error {
	if json.Valid(data) {
		return nil
	}
	var raw json.RawMessage
	return json.Unmarshal(data, &raw)
}

// A Walker is a position in a JSON value that [Check] has found valid: it checks
// nothing, and nothing can fail. A caller that asks what is next must read it.
type Walker struct{ rest string }

// Walk returns a Walker that stands at the beginning of text.
func Walk(text string) *Walker { return &Walker{rest: text} }

// Next returns the first byte of the value that is next: one of { [ " t f n, a
// minus or a digit.
func (w *Walker) Next() byte {
	w.rest = strings.TrimLeft(w.rest, " \t\r\n")
	return w.rest[0]
}

// skip steps over white space and one of , : [ ] { }.
func (w *Walker) skip() {
	w.Next()
	w.rest = w.rest[1:]
}

// Members walks over an object and yields its keys. The loop has to read the
// value of each.
func (w *Walker) Members() iter.Seq[string] {
	return func(yield func(string) bool) {
		for w.skip(); w.Next() != '}'; {
			if w.Next() == ',' {
				w.skip()
			}
			key := w.String()
			w.skip() // the colon
			if !yield(key) {
				return
			}
		}
		w.skip()
	}
}

// Items walks over an array and yields the index of each item, which the loop
// has to read.
func (w *Walker) Items() iter.Seq[int] {
	return func(yield func(int) bool) {
		i := 0
		for w.skip(); w.Next() != ']'; i++ {
			if w.Next() == ',' {
				w.skip()
			}
			if !yield(i) {
				return
			}
		}
		w.skip()
	}
}

// String reads a string.
func (w *Walker) String() string {
	w.Next()
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
		return quoted[1:end]
	}
	var s string
	_ = json.Unmarshal([]byte(quoted), &s) // it is valid
	return s
}

// Word reads a number, true, false or null, and returns it as it is written.
func (w *Walker) Word() string {
	w.Next()
	end := strings.IndexAny(w.rest, " \t\r\n,]}")
	if end < 0 {
		end = len(w.rest)
	}
	word := w.rest[:end]
	w.rest = w.rest[end:]
	return word
}
