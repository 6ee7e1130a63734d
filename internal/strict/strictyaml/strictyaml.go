// Package strictyaml parses YAML, and so JSON, for package strict. It is a
// package of its own because flexdriver, which reads JSON only, must not pay
// for YAML.
//
// Anchors, aliases and merge keys are refused: they can make a gigabyte of a
// kilobyte, and what is printed back would not have them.
package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/flex2csi/flex2csi/internal/strict"
)

// SyntaxError is why a text is no YAML that is accepted here.
type SyntaxError struct {
	// Line is where, or 0.
	Line int
	// Message may quote from the text. Where the text is secret, show Line only.
	Message string
}

// Error returns line and message.
func (e *SyntaxError) Error() string {
	if e.Line == 0 {
		return e.Message
	}
	return fmt.Sprintf("line %d: %s", e.Line, e.Message)
}

// Parse returns the one document in data.
func Parse(data []byte) (strict.Node, error) {
	docs, err := ParseAll(data)
	if err != nil {
		return strict.Node{}, err
	}
	switch len(docs) {
	case 0:
		return strict.Node{}, &SyntaxError{Message: "empty"}
	case 1:
		return docs[0], nil
	}
	return strict.Node{}, &SyntaxError{Line: docs[1].Line, Message: "a second document (want one)"}
}

// ParseAll returns the documents in data but empty ones.
func ParseAll(data []byte) ([]strict.Node, error) {
	if !utf8.Valid(data) {
		return nil, &SyntaxError{Message: "not UTF-8 text"}
	}
	var docs []strict.Node
	for d := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var doc yaml.Node
		err := d.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return nil, syntaxError(err)
		}
		n, err := convert(&doc)
		if err != nil {
			return nil, err
		}
		if n.Kind != strict.Null {
			docs = append(docs, n)
		}
	}
}

// syntaxError takes apart the errors of package yaml, which are text only.
func syntaxError(err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	e := &SyntaxError{Message: "not YAML: " + oneLine(text)}
	if m := regexp.MustCompile(`^line (\d+): (.*)`).FindStringSubmatch(text); m != nil {
		e.Line, _ = strconv.Atoi(m[1])
		e.Message = "not YAML: " + oneLine(m[2])
	}
	return e
}

func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}

func convert(n *yaml.Node) (strict.Node, error) {
	if n.Anchor != "" || n.Kind == yaml.AliasNode {
		return strict.Node{}, &SyntaxError{Line: n.Line, Message: "anchors and aliases (& and *) are not supported: write it out (or put quotes around the value)"}
	}
	switch n.Kind {
	case yaml.DocumentNode:
		return convert(n.Content[0])
	case yaml.SequenceNode:
		return array(n)
	case yaml.MappingNode:
		return object(n)
	}
	return scalar(n)
}

func array(n *yaml.Node) (strict.Node, error) {
	out := strict.Node{Kind: strict.Array, Line: n.Line}
	for _, item := range n.Content {
		converted, err := convert(item)
		if err != nil {
			return out, err
		}
		out.Items = append(out.Items, converted)
	}
	return out, nil
}

// object keeps duplicate keys: the reader reports them.
func object(n *yaml.Node) (strict.Node, error) {
	out := strict.Node{Kind: strict.Object, Line: n.Line}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode || key.Anchor != "" || key.ShortTag() == "!!merge" {
			return out, &SyntaxError{Line: key.Line, Message: "a key that is no plain text"}
		}
		converted, err := convert(value)
		if err != nil {
			return out, err
		}
		// A value on lines of its own is looked for where its key is.
		converted.Line = key.Line
		out.Members = append(out.Members, strict.Member{Key: key.Value, Value: converted})
	}
	return out, nil
}

func scalar(n *yaml.Node) (strict.Node, error) {
	out := strict.Node{Text: n.Value, Line: n.Line}
	switch tag := n.ShortTag(); tag {
	case "!!str", "!!timestamp":
		out.Kind = strict.String
	case "!!int", "!!float":
		out.Kind = strict.Number
	case "!!bool":
		out.Kind = strict.Bool
		var truth bool
		if err := n.Decode(&truth); err != nil {
			return out, &SyntaxError{Line: n.Line, Message: "no boolean"}
		}
		out.Truth = truth
	case "!!null":
		out.Kind = strict.Null
	default:
		return out, &SyntaxError{Line: n.Line, Message: "the tag " + strconv.Quote(strict.Clip(tag)) + " is not supported"}
	}
	return out, nil
}
