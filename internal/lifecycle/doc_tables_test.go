package lifecycle

import (
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/test/testenv"
)

var update = flag.Bool("update", false, "write the tables instead of comparing them")

// TestLifecycle: the tables of lifecycle.md are those that the planner decides by. With
// -update (make docs) they are made.
func TestLifecycle(t *testing.T) {
	testenv.Section(t, "lifecycle.md", "<!-- What follows is made from internal/lifecycle by make docs. -->\n", "<!-- Up to here. -->\n", sections(), *update)
}

// sections makes a section of each table. TestLinks of hack/manual finds names of tables in
// rules that no table has.
func sections() string {
	var b strings.Builder
	name := regexp.MustCompile(`\[([^]]+)\]`)
	link := func(text string) string {
		return name.ReplaceAllStringFunc(text, func(s string) string {
			return s + "(#" + strings.ReplaceAll(strings.Trim(s, "[]"), " ", "-") + ")"
		})
	}
	for _, t := range allTables() {
		fmt.Fprintf(&b, "\n### %s\n\n", t.Name)
		if t.About != "" {
			b.WriteString(t.About + "\n\n")
		}
		b.WriteString("| rule | when | then |\n|---|---|---|\n")
		for _, rule := range rulesOf(t) {
			if rule.Name == "" {
				fmt.Fprintf(&b, "| … | | the rules of %s |\n", link("["+rule.tables[0].Name+"]"))
				continue
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", rule.Name, rule.When, link(rule.Then))
		}
	}
	return b.String() + "\n"
}

// allTables returns those with a name: those of the goals first, then those that they share.
func allTables() (all []Table) {
	for _, goal := range goals() {
		if t := tables[goal]; goal != "" && goal != CompleteUnmount {
			all = append(all, t)
		}
	}
	return append(all,
		undoFailedMountTable(), bringTable(), attachTable(), releaseTable(), unpublishTable(), leaveTable(), endStageTable(),
		unstageTable(), detachTable(AsConfigured), releaseDeviceTable(), repairTable())
}

// rulesOf returns the rules of a table and of its parts. One without a name stands for a
// table of its own.
func rulesOf(t Table) (all []Rule) {
	for _, rule := range t.rules {
		if part := rule.tables; rule.Name == "" && len(part) == 1 && part[0].Name == "" {
			all = append(all, rulesOf(part[0])...)
			continue
		}
		all = append(all, rule)
	}
	return all
}

// handsOver returns the names of the tables that a rule hands over to.
func handsOver(rule Rule) (names []string) {
	for _, t := range rule.tables {
		if t.Name != "" {
			names = append(names, t.Name)
			continue
		}
		for _, part := range t.rules {
			names = append(names, handsOver(part)...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// TestHandsOver: a rule says in its text to which tables it hands over, and names no
// others: the text is all that a reader of the document sees of it.
func TestHandsOver(t *testing.T) {
	found := 0
	for _, table := range allTables() {
		for _, rule := range rulesOf(table) {
			does, says := handsOver(rule), []string(nil)
			for _, m := range regexp.MustCompile(`\[([^]]+)\]`).FindAllStringSubmatch(rule.Then, -1) {
				says = append(says, m[1])
			}
			slices.Sort(says)
			if diff := cmp.Diff(does, says); rule.Name != "" && diff != "" {
				t.Errorf("%s hands over to (-), and says (+):\n%s", rule.Name, diff)
			}
			if oneOutcome := (rule.step != nil) != (rule.tables != nil); !oneOutcome {
				t.Errorf("%s has a step and tables, or none", rule.Name)
			}
			found += len(does)
		}
	}
	if rules := allRules(); len(rules) < 80 || found < 25 {
		t.Errorf("only %d rules and %d hand-overs were found", len(rules), found)
	}
}
