package yamltext

// This file reads YAML, and so JSON, strictly. It is a package of its own because
// flexdriver, which reads JSON only, must not pay for YAML.
//
// Anchors, aliases and merge keys are refused: they can make a gigabyte of a
// kilobyte, and what is printed back would not have them.

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/flex2csi/flex2csi/internal/strict"
)

// Parse returns the one document in data. Its error is a [*strict.InvalidError] with one
// fault. Where the text is secret, show only the line: the message may quote from the text.
func Parse(data []byte) (*yaml.Node, error) {
	docs, err := ParseAll(data)
	if err != nil {
		return nil, err
	}
	switch len(docs) {
	case 0:
		return nil, invalid(0, "empty")
	case 1:
		return docs[0], nil
	}
	return nil, invalid(docs[1].Line, "a second document (want one)")
}

// ParseAll returns the documents in data but empty ones. Keys and times are strings in them,
// and a value has the line of its key.
func ParseAll(data []byte) ([]*yaml.Node, error) {
	if !utf8.Valid(data) {
		return nil, invalid(0, "not UTF-8 text")
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
		if KindOf(root) != strict.Null {
			docs = append(docs, root)
		}
	}
}

func invalid(line int, message string) error {
	return &strict.InvalidError{Faults: []strict.Fault{{Line: line, Message: message}}}
}

// syntaxError takes apart the errors of package yaml, which are text only.
func syntaxError(err error) error {
	text, line := strings.TrimPrefix(err.Error(), "yaml: "), 0
	if m := regexp.MustCompile(`^line (\d+): (.*)`).FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1])
		text = m[2]
	}
	return invalid(line, "not YAML: "+oneLine(text))
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
		return invalid(n.Line, "anchors and aliases (& and *) are not supported: write it out (or put quotes around the value)")
	}
	if n.Kind == yaml.ScalarNode {
		return normalizeScalar(n)
	}
	n.Tag = "" // an object is one, whatever its tag
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			if child.Kind != yaml.ScalarNode || child.Anchor != "" || child.ShortTag() == "!!merge" {
				return invalid(child.Line, "a key that is no plain text")
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
	case "", strict.Array, strict.Object: // a scalar is neither
		return invalid(n.Line, "the tag "+strconv.Quote(strict.Clip(n.ShortTag()))+" is not supported")
	case strict.String:
		n.Tag = "!!str"
	}
	var value any
	if err := n.Decode(&value); err != nil {
		return invalid(n.Line, "the value is not of the type of its tag "+n.ShortTag())
	}
	return nil
}
