package manual_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/hack/manual"
	"github.com/flex2csi/flex2csi/internal/lifecycle"
)

// TestLifecycle: the tables of internal/lifecycle/lifecycle.md are those that the planner decides
// by. With -update (make docs) they are made.
func TestLifecycle(t *testing.T) {
	const (
		path  = "internal/lifecycle/lifecycle.md"
		begin = "<!-- What follows is made from internal/lifecycle by make docs. -->\n"
		end   = "<!-- Up to here. -->\n"
	)
	before, rest, ok := strings.Cut(read(t, path), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the tables", path)
	}
	manual.Check(t, root, map[string]string{path: before + begin + planner() + end + after}, *update)
}

// planner makes a section of each table. TestLinks finds names of tables in rules
// that no table has.
func planner() string {
	var b strings.Builder
	name := regexp.MustCompile(`\[([^]]+)\]`)
	link := func(text string) string {
		return name.ReplaceAllStringFunc(text, func(s string) string {
			return s + "(#" + strings.ReplaceAll(strings.Trim(s, "[]"), " ", "-") + ")"
		})
	}
	for _, table := range lifecycle.Tables() {
		fmt.Fprintf(&b, "\n### %s\n\n", table.Name)
		if table.About != "" {
			b.WriteString(table.About + "\n\n")
		}
		b.WriteString("| rule | when | then |\n|---|---|---|\n")
		for _, row := range table.Rows {
			if row.Shared != "" {
				fmt.Fprintf(&b, "| … | | the rules of %s |\n", link("["+row.Shared+"]"))
				continue
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", row.Rule.Name, row.Rule.When, link(row.Rule.Then))
		}
	}
	return b.String() + "\n"
}
