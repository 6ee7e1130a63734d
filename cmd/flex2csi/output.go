package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/flex2csi/flex2csi/internal/terminal"
	"github.com/flex2csi/flex2csi/internal/yamltext"
)

// The formats of --output.
const (
	table  = "table"
	wide   = "wide"
	asJSON = "json"
	asYAML = "yaml"
	asName = "name"
	asCSV  = "csv"
	asHTML = "html"
)

// outputFormat is the flag --output of a command that prints something to read.
type outputFormat struct {
	formats []string // of the command; the first one is the default
	chosen  string
}

func (o *outputFormat) add(c *cobra.Command) {
	o.chosen = o.formats[0]
	addChoice(c, &o.chosen, o.formats, "output", "o", "output `format`")
}

// named is a document with -o name: it prints objects as type/name.
type named interface{ ObjectNames() []string }

// A sheet is a document with -o csv.
type sheet interface{ CSV(out io.Writer) error }

// A page is a document with -o html.
type page interface{ HTML(out io.Writer) error }

// print prints a document. toTable prints it as a table.
func (o *outputFormat) print(out io.Writer, document any, toTable func(out io.Writer, wide bool) error) error {
	var text bytes.Buffer
	var err error
	switch o.chosen {
	case asJSON, asYAML:
		err = encode(&text, document, o.chosen == asYAML)
	case asName:
		for _, name := range document.(named).ObjectNames() {
			fmt.Fprintln(&text, name)
		}
	case asCSV:
		err = document.(sheet).CSV(&text)
	case asHTML:
		err = document.(page).HTML(&text)
	default:
		err = toTable(&text, o.chosen == wide)
	}
	if err != nil {
		return err
	}
	_, err = out.Write(text.Bytes())
	return err
}

// encode writes JSON, or YAML with the same names and order of fields.
func encode(out *bytes.Buffer, document any, toYAML bool) error {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(document); err != nil || !toYAML {
		return err
	}
	text, err := yamltext.FromJSON([]byte(terminal.Safe(out.String()))) // YAML takes no control characters
	out.Reset()
	out.Write(text)
	return err
}

// printYAML prints a YAML document.
func (o *outputFormat) printYAML(out io.Writer, text []byte) error {
	if o.chosen == asJSON {
		data, err := yaml.YAMLToJSON(text)
		if err != nil {
			return err
		}
		return o.print(out, json.RawMessage(data), nil)
	}
	_, err := out.Write(text)
	return err
}
