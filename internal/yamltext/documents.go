package yamltext

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Documents calls each for the documents of YAML or JSON, with the line that they begin in. Of a
// List it passes the items one by one, and then the rest: a List may be long, and a parser needs
// many times the memory of the text. An error of JSON is a [SyntaxError].
func Documents(r io.Reader, each func(text string, line int) error) error {
	return (&documents{in: bufio.NewReader(r), each: each}).read()
}

// A SyntaxError is one of JSON. What comes after it cannot be read.
type SyntaxError struct {
	Byte int64
	Err  error
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("byte %d: not JSON: %v", e.Byte, e.Err) }

type documents struct {
	in   *bufio.Reader
	each func(text string, line int) error

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
	in := json.NewDecoder(&withoutSeparators{in: d.in})
	for in.More() {
		err := d.jsonObject(in)
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return atByte(in, err)
		}
	}
	_, err := in.Token()
	if errors.Is(err, io.EOF) {
		return nil
	}
	return atByte(in, err)
}

// errForm is JSON of another form than that of objects.
type errForm struct{ text string }

func (e errForm) Error() string { return e.text }

func atByte(in *json.Decoder, err error) error {
	_, isForm := errors.AsType[errForm](err)
	_, isSyntax := errors.AsType[*json.SyntaxError](err)
	if isForm || isSyntax || errors.Is(err, io.ErrUnexpectedEOF) {
		return &SyntaxError{in.InputOffset(), err}
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
	return d.pass(string(text), 1)
}

func (d *documents) jsonItems(in *json.Decoder) error {
	t, err := in.Token()
	if err != nil || t == nil { // null is no item
		return err
	}
	if t != json.Delim('[') {
		return errForm{"items: want an array"}
	}
	for in.More() {
		var item json.RawMessage
		if err := in.Decode(&item); err != nil {
			return err
		}
		if err := d.pass(string(item), 1); err != nil {
			return err
		}
	}
	_, err = in.Token()
	return err
}

func opens(in *json.Decoder, want json.Delim) error {
	t, err := in.Token()
	if err == nil && t != want {
		return errForm{fmt.Sprintf("want %s but got %v", want, t)}
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
		line = " " + line[1:]
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
	return d.pass(text, d.itemLine)
}

func (d *documents) endDocument() error {
	if err := d.endItem(); err != nil {
		return err
	}
	text := d.head.String()
	d.head.Reset()
	d.inItems = false
	return d.pass(text, d.headLine)
}

func (d *documents) pass(text string, line int) error {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	return d.each(text, line)
}
