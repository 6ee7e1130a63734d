package bridgestatus

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/flex2csi/flex2csi/internal/yamltext"
)

// A Format is how a status is printed.
type Format string

// The formats of flex2csi status --output.
const (
	Table Format = ""
	Wide  Format = "wide"
	JSON  Format = "json"
	YAML  Format = "yaml"
)

// Formats are the names of those that can be asked for.
func Formats() []string { return []string{string(Wide), string(JSON), string(YAML)} }

// Print writes a status. Tables have a row for each volume, or for each pod
// and volume.
func (s *BridgeStatus) Print(w io.Writer, format Format, byPod bool) error {
	return write(w, format, s, func(out *bytes.Buffer, wide bool) error { return s.tables(out, wide, byPod) })
}

// write writes a document in one of the formats; tables is it for people.
func write(w io.Writer, format Format, document any, tables func(out *bytes.Buffer, wide bool) error) error {
	var text []byte
	var err error
	switch format {
	case JSON:
		text, err = toJSON(document)
	case YAML:
		text, err = toYAML(document)
	case Table, Wide:
		var out bytes.Buffer
		err = tables(&out, format == Wide)
		text = out.Bytes()
	default:
		err = fmt.Errorf("there is no format %q, only %s", format, strings.Join(Formats(), ", "))
	}
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

func toJSON(status any) ([]byte, error) {
	text, err := json.MarshalIndent(status, "", "  ")
	return append(text, '\n'), err
}

// toYAML is the JSON, which is YAML, in another dress: the names of fields and
// their order are written down once.
func toYAML(status any) ([]byte, error) {
	text, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	return yamltext.FromJSON(text)
}

// tables are for people.
func (s *BridgeStatus) tables(out *bytes.Buffer, wide, byPod bool) error {
	if err := s.volumeTable(wide, byPod).write(out); err != nil {
		return err
	}
	for _, t := range []table{s.failureTable(wide), s.driverTable(), s.lostTable(), s.tombstoneTable()} {
		if len(t.rows) == 0 {
			continue
		}
		out.WriteString("\n")
		if err := t.write(out); err != nil {
			return err
		}
	}
	if c := s.Cluster; c != nil && !c.Reachable && c.LastError != "" {
		fmt.Fprintf(out, "\nthe API server cannot be reached (%s): %s\n", s.age(c.Since), oneLine(c.LastError))
	}
	for _, f := range s.BrokenFiles {
		fmt.Fprintf(out, "\nbroken state file: %s\n", f)
	}
	return nil
}

// A table is columns of text.
type table struct {
	header []string
	rows   [][]string
}

func (t table) write(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, row := range append([][]string{t.header}, t.rows...) {
		for i, cell := range row {
			if cell == "" {
				row[i] = "-"
			}
			row[i] = oneLine(row[i])
		}
		if _, err := fmt.Fprintln(tw, strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	return tw.Flush()
}

// oneLine keeps a text from spoiling the table, or the terminal.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}
