package driverconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/flex2csi/flex2csi/internal/jsonwalk"
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
	if err := jsonwalk.Check(data); err != nil {
		return strict.Node{}, syntaxError(data, err)
	}
	return value(jsonwalk.Walk(string(data))), nil
}

func syntaxError(data []byte, err error) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("not JSON: %w (%s)", err, position(data, syntax.Offset))
	}
	return fmt.Errorf("not JSON: %w", err)
}

// position returns line and column of an offset.
func position(data []byte, offset int64) string {
	before := data[:min(max(offset-1, 0), int64(len(data)))]
	line := bytes.Count(before, []byte("\n"))
	column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
	return fmt.Sprintf("line %d, column %d", line+1, column+1)
}

// few is enough for most objects in the file: growing one member at a time would touch a
// page of memory for each size.
const few = 8

func value(w *jsonwalk.Walker) strict.Node {
	switch w.Next() {
	case '{':
		n := strict.Node{Kind: strict.Object, Members: make([]strict.Member, 0, few)}
		for key := range w.Members() {
			n.Members = append(n.Members, strict.Member{Key: key, Value: value(w)})
		}
		return n
	case '[':
		n := strict.Node{Kind: strict.Array}
		for range w.Items() {
			n.Items = append(n.Items, value(w))
		}
		return n
	case '"':
		return strict.Node{Kind: strict.String, Text: w.String()}
	}
	switch word := w.Word(); word {
	case "null":
		return strict.Node{Kind: strict.Null}
	case "true", "false":
		return strict.Node{Kind: strict.Bool, Truth: word == "true"}
	default:
		return strict.Node{Kind: strict.Number, Text: word}
	}
}
