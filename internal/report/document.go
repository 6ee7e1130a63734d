package report

import (
	"bytes"
	"encoding/json"
	"io"
	"iter"
	"strings"

	"github.com/flex2csi/flex2csi/internal/terminal"
	"github.com/flex2csi/flex2csi/internal/yamltext"
)

// JSON encodes a document for programs.
func JSON(document any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(document)
	return b.Bytes(), err
}

// YAML encodes a document with the names and the order of its fields in JSON.
func YAML(document any) ([]byte, error) {
	data, err := JSON(document)
	if err != nil {
		return nil, err
	}
	return yamltext.FromJSON([]byte(terminal.Safe(string(data)))) // YAML takes no control characters
}

// Items writes a document that ends with an empty list, and encoded items into the list, one at
// a time: there may be thousands.
func Items(out io.Writer, document []byte, items iter.Seq2[[]byte, error]) error {
	at := bytes.LastIndex(document, []byte("[]"))
	before, after := string(document[:at]), string(document[at+2:])
	first, next, rest, end := before+"[\n    ", ",\n    ", "\n    ", "\n  ]"+after
	if document[0] != '{' {
		first, next, rest, end = strings.TrimSuffix(before, " ")+"\n- ", "\n- ", "\n  ", after
	}
	for item, err := range items {
		if err != nil {
			return err
		}
		text := strings.ReplaceAll(strings.TrimSuffix(string(item), "\n"), "\n", rest)
		if _, err := io.WriteString(out, first+text); err != nil {
			return err
		}
		first = next
	}
	_, err := io.WriteString(out, end)
	return err
}
