package bridgestatus

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Table prints a status as tables with a row for each volume, or for each pod and
// volume.
func (s *BridgeStatus) Table(w io.Writer, wide, byPod bool) error {
	var out bytes.Buffer
	if err := s.tables(&out, wide, byPod); err != nil {
		return err
	}
	_, err := w.Write(out.Bytes())
	return err
}

// ObjectNames are the PersistentVolumes of the volumes, as type/name.
func (s *BridgeStatus) ObjectNames() (names []string) {
	for i := range s.Volumes {
		if name := s.Volumes[i].PersistentVolume; name != "" {
			names = append(names, "persistentvolume/"+name)
		}
	}
	return names
}

// tables have the parts of a status.
func (s *BridgeStatus) tables(out *bytes.Buffer, wide, byPod bool) error {
	if err := s.volumeTable(wide, byPod).write(out); err != nil {
		return err
	}
	for _, t := range []table{s.failureTable(wide), s.driverTable(), s.lostTable(), s.pendingUnmountTable()} {
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

// oneLine removes what would break the table.
func oneLine(s string) string { return strings.NewReplacer("\n", " ", "\t", " ").Replace(s) }
