package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/flex2csi/flex2csi/internal/report"
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

// print prints a document: as it is, or what show makes of it for people.
func (o *outputFormat) print(out io.Writer, document any, show func(report.View) *report.Report) error {
	var text bytes.Buffer
	var err error
	switch o.chosen {
	case asJSON, asYAML:
		var data []byte
		data, err = o.encode(document)
		text.Write(data)
	case asName:
		for _, name := range document.(named).ObjectNames() {
			fmt.Fprintln(&text, name)
		}
	default:
		view := map[string]report.View{table: report.Table, wide: report.Wide, asCSV: report.CSV, asHTML: report.Page}[o.chosen]
		err = show(view).Write(&text, view)
	}
	if err != nil {
		return err
	}
	_, err = out.Write(text.Bytes())
	return err
}

// encode returns a document as JSON or YAML.
func (o *outputFormat) encode(document any) ([]byte, error) {
	if o.chosen == asYAML {
		return report.YAML(document)
	}
	return report.JSON(document)
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
