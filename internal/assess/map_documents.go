package assess

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/flex2csi/flex2csi/internal/manifest"
	"github.com/flex2csi/flex2csi/internal/strict"
	"github.com/flex2csi/flex2csi/internal/strict/strictyaml"
)

// documents splits YAML or JSON into manifests. The items of a List are parsed one by
// one, so that a List may be long.
type documents struct {
	in  *bufio.Reader
	add func(object)

	// The rest is for YAML: the document without its items, the item, and the lines
	// where they begin.
	head, item         strings.Builder
	headLine, itemLine int
	inItems            bool
}

func (d *documents) read() error {
	start, _ := d.in.Peek(512) // an error comes again when it is read
	start = bytes.TrimLeft(start, " \t\r\n")
	if object, ok := bytes.CutPrefix(start, []byte("{")); ok {
		object = bytes.TrimLeft(object, " \t\r\n")
		if len(object) == 0 || object[0] == '"' || object[0] == '}' {
			return d.json()
		}
	}
	return d.yaml()
}

func (d *documents) json() error {
	in := json.NewDecoder(manifest.JSON(d.in))
	for in.More() {
		err := d.jsonObject(in)
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return fmt.Errorf("byte %d: not JSON: %w", in.InputOffset(), err)
		}
	}
	_, err := in.Token()
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (d *documents) jsonObject(in *json.Decoder) error {
	if err := opens(in, '{'); err != nil {
		return err
	}
	rest := map[string]json.RawMessage{}
	for in.More() {
		key, err := in.Token()
		if err != nil {
			return err
		}
		if key == "items" {
			err = d.jsonItems(in)
		} else {
			var value json.RawMessage
			err = in.Decode(&value)
			rest[fmt.Sprint(key)] = value
		}
		if err != nil {
			return err
		}
	}
	if _, err := in.Token(); err != nil {
		return err
	}
	text, err := json.Marshal(rest)
	if err != nil {
		return err
	}
	return d.parse(string(text), 1)
}

func (d *documents) jsonItems(in *json.Decoder) error {
	if err := opens(in, '['); err != nil {
		return err
	}
	for in.More() {
		var item json.RawMessage
		if err := in.Decode(&item); err != nil {
			return err
		}
		if err := d.parse(string(item), 1); err != nil {
			return err
		}
	}
	_, err := in.Token()
	return err
}

func opens(in *json.Decoder, want json.Delim) error {
	t, err := in.Token()
	if err == nil && t != want {
		return fmt.Errorf("want %s but got %v", want, t)
	}
	return err
}

func (d *documents) yaml() error {
	d.headLine = 1
	for n := 1; ; n++ {
		line, err := d.in.ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if wrong := d.yamlLine(n, line); wrong != nil {
			return wrong
		}
		if err != nil {
			return d.endDocument()
		}
	}
}

// yamlLine takes the next line. Items begin at the left margin, as kubectl prints them; no
// other line of an item can. Other items remain parts of their document.
func (d *documents) yamlLine(n int, line string) error {
	blank := strings.TrimSpace(line) == ""
	switch {
	case separates(line):
		err := d.endDocument()
		d.headLine = n
		d.head.WriteString(line[3:])
		return err
	case d.inItems && !blank && line[0] == '-':
		if err := d.endItem(); err != nil {
			return err
		}
		fallthrough
	case d.inItems && (blank || strings.ContainsRune(" \t#-", rune(line[0]))):
		if d.item.Len() == 0 {
			d.itemLine = n
		}
		d.item.WriteString(line)
		d.head.WriteByte('\n') // the lines after the items keep their numbers
		return nil
	}
	if err := d.endItem(); err != nil {
		return err
	}
	if d.inItems = strings.TrimRight(line, " \r\n") == "items:"; d.inItems {
		line = "\n"
	}
	d.head.WriteString(line)
	return nil
}

// separates reports whether a line begins a document.
func separates(line string) bool {
	rest, ok := strings.CutPrefix(line, "---")
	return ok && (rest == "" || strings.ContainsRune(" \t\r\n", rune(rest[0])))
}

func (d *documents) endItem() error {
	text := d.item.String()
	d.item.Reset()
	return d.parse(text, d.itemLine)
}

func (d *documents) endDocument() error {
	if err := d.endItem(); err != nil {
		return err
	}
	text := d.head.String()
	d.head.Reset()
	d.inItems = false
	return d.parse(text, d.headLine)
}

// parse passes on the manifests in a text that begins in a line of the input.
func (d *documents) parse(text string, line int) error {
	docs, err := strictyaml.ParseAll([]byte(text))
	if syntax, ok := errors.AsType[*strictyaml.SyntaxError](err); ok && syntax.Line+line > 1 {
		syntax.Line = max(1, syntax.Line) + line - 1
	}
	if err != nil {
		return err
	}
	for _, doc := range docs {
		list := []strict.Node{doc}
		if doc.Kind == strict.Array {
			list = doc.Items
		}
		for _, manifest := range list {
			if manifest.Kind != strict.Object {
				return fmt.Errorf("line %d: want a manifest, but got %s", manifest.Line+line-1, kindOnly(manifest))
			}
			d.add(object{manifest})
		}
	}
	return nil
}
