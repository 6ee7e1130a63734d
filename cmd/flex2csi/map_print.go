package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/dryrun"
)

// print prints a report. JSON and YAML have the requests of each volume: they are planned
// again one by one, as there may be thousands.
func (o *mapOptions) print(p *dryrun.Planner, r *dryrun.Report, out io.Writer) error {
	if o.format.chosen != asJSON && o.format.chosen != asYAML {
		return o.format.print(out, r, r.Table)
	}
	encode := (*dryrun.Plan).YAML
	if o.format.chosen == asJSON {
		encode = (*dryrun.Plan).JSON
	}
	b := bufio.NewWriter(out)
	if len(r.Plans) == 1 {
		text, err := encode(p.Detail(r.Plans[0]))
		if err != nil {
			return err
		}
		_, _ = b.Write(text)
		return b.Flush()
	}
	head, err := o.head(r)
	if err != nil {
		return err
	}
	_, _ = b.WriteString(head)
	for i, plan := range r.Plans {
		text, err := encode(p.Detail(plan))
		if err != nil {
			return err
		}
		if o.format.chosen == asJSON && i > 0 {
			_, _ = b.WriteString(",\n")
		}
		o.item(b, string(text))
	}
	if o.format.chosen == asJSON {
		_, _ = b.WriteString("\n  ]\n}\n")
	}
	return b.Flush() // returns the error of any Write
}

// head is the document up to its volumes.
func (o *mapOptions) head(r *dryrun.Report) (string, error) {
	document := struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Summary    *dryrun.Summary   `json:"summary"`
		Volumes    []json.RawMessage `json:"volumes"`
	}{bridgeconfig.APIVersion, "MapResult", r.Summary(), []json.RawMessage{}}
	var text bytes.Buffer
	err := encode(&text, document, o.format.chosen == asYAML)
	head, _, _ := strings.Cut(text.String(), "[]\n")
	if o.format.chosen == asJSON {
		head += "[\n"
	} else {
		head = strings.TrimSuffix(head, " ") + "\n"
	}
	return head, err
}

// item prints a volume as an item of the list.
func (o *mapOptions) item(out io.Writer, text string) {
	first, rest := "- ", "  "
	if o.format.chosen == asJSON {
		first, rest = "    ", "    "
	}
	text = strings.TrimSuffix(text, "\n")
	fmt.Fprint(out, first+strings.ReplaceAll(text, "\n", "\n"+rest))
	if o.format.chosen == asYAML {
		fmt.Fprintln(out)
	}
}
