// Package strictyaml reads YAML, and so JSON, strictly. It is a package of its own because
// flexdriver, which reads JSON only, must not pay for YAML.
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
func Parse(data []byte) (*yaml.Node, error) {
	docs, err := ParseAll(data)
	if err != nil {
		return nil, err
	}
	switch len(docs) {
	case 0:
		return nil, &SyntaxError{Message: "empty"}
	case 1:
		return docs[0], nil
	}
	return nil, &SyntaxError{Line: docs[1].Line, Message: "a second document (want one)"}
}

// ParseAll returns the documents in data but empty ones. Keys and times are strings in them,
// and a value has the line of its key.
func ParseAll(data []byte) ([]*yaml.Node, error) {
	if !utf8.Valid(data) {
		return nil, &SyntaxError{Message: "not UTF-8 text"}
	}
	var docs []*yaml.Node
	for d := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var doc yaml.Node
		err := d.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return nil, syntaxError(err)
		}
		root := doc.Content[0]
		if err := normalize(root); err != nil {
			return nil, err
		}
		if KindOf(root) != Null {
			docs = append(docs, root)
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

// normalize refuses what is not supported, and makes strings of keys and times.
func normalize(n *yaml.Node) error {
	if n.Anchor != "" || n.Kind == yaml.AliasNode {
		return &SyntaxError{Line: n.Line, Message: "anchors and aliases (& and *) are not supported: write it out (or put quotes around the value)"}
	}
	if n.Kind == yaml.ScalarNode {
		return normalizeScalar(n)
	}
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			if child.Kind != yaml.ScalarNode || child.Anchor != "" || child.ShortTag() == "!!merge" {
				return &SyntaxError{Line: child.Line, Message: "a key that is no plain text"}
			}
			child.Tag = "!!str"
			continue
		}
		if err := normalize(child); err != nil {
			return err
		}
		if n.Kind == yaml.MappingNode {
			// A value on lines of its own is looked for where its key is.
			child.Line = n.Content[i-1].Line
		}
	}
	return nil
}

func normalizeScalar(n *yaml.Node) error {
	switch KindOf(n) {
	case "":
		return &SyntaxError{Line: n.Line, Message: "the tag " + strconv.Quote(strict.Clip(n.ShortTag())) + " is not supported"}
	case String:
		n.Tag = "!!str"
	}
	var value any
	if err := n.Decode(&value); err != nil {
		return &SyntaxError{Line: n.Line, Message: "the value is not of the type of its tag " + n.ShortTag()}
	}
	return nil
}
