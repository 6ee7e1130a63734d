package bridgeconfig_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestTable: docs/presets.md has a row for each preset, and no other.
func TestTable(t *testing.T) {
	text, err := os.ReadFile("../../docs/presets.md")
	if err != nil {
		t.Fatal(err)
	}
	const head = "| preset | FlexVolume driver | CSI driver | live | to fill in | needs |\n|---|---|---|---|---|---|\n"
	_, table, ok := strings.Cut(string(text), head)
	if !ok {
		t.Fatalf("no table that begins with\n%s", head)
	}
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(table, "\n")
	for _, p := range all(t) {
		var open []string
		for _, o := range p.Open {
			open = append(open, "`"+o.Name+"`")
		}
		row := fmt.Sprintf("| `%s` | `%s` | `%s` | %s | %s | %s |", p.Name, p.FlexDriver, p.CSIDriver, p.Live, strings.Join(open, ", "), p.Needs)
		row = strings.ReplaceAll(row, "|  |", "| – |")
		i := slices.Index(rows, row)
		if i < 0 {
			t.Errorf("this row is missing:\n%s", row)
			continue
		}
		rows = slices.Delete(rows, i, i+1)
	}
	for _, row := range rows {
		if row != "" {
			t.Errorf("of no preset:\n%s", row)
		}
	}
}
