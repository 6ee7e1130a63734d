package main

import (
	"bufio"
	"errors"
	"io"

	"github.com/flex2csi/flex2csi/internal/assess"
	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/report"
)

// mapDocument is the document of map for several volumes.
type mapDocument struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Summary    *assess.Summary `json:"summary"`
	Volumes    []struct{}      `json:"volumes"`
}

// print prints a report. JSON and YAML have the requests of each volume: they are planned
// again one by one, as there may be thousands.
func (o *mapOptions) print(p *assess.Planner, r *assess.MapResult, out io.Writer) error {
	encode := (*assess.Plan).YAML
	switch o.format.chosen {
	case asYAML:
	case asJSON:
		encode = (*assess.Plan).JSON
	default:
		return o.format.print(out, r, r.Show)
	}
	if len(r.Plans) == 1 {
		text, err := encode(p.Detail(r.Plans[0]))
		if err == nil {
			_, err = out.Write(text)
		}
		return err
	}
	head, err := o.format.encode(mapDocument{bridgeconfig.APIVersion, "MapResult", r.Summary(), []struct{}{}})
	if err != nil {
		return err
	}
	b := bufio.NewWriter(out)
	err = report.Items(b, head, func(yield func([]byte, error) bool) {
		for _, plan := range r.Plans {
			if !yield(encode(p.Detail(plan))) {
				return
			}
		}
	})
	return errors.Join(err, b.Flush())
}
