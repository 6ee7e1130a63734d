package doctor

import (
	"fmt"
	"strings"

	"github.com/flex2csi/flex2csi/internal/report"
)

// lineWidth fits most terminals.
const lineWidth = 100

// Show makes problems first, in full, then what is in order, one line each, and last what was
// skipped.
func (r *Report) Show(report.View) *report.Report {
	problems := report.Section{Width: lineWidth}
	inOrder := report.Section{Heading: "IN ORDER", Width: lineWidth}
	skipped := report.Section{Heading: "SKIPPED", Width: lineWidth}
	for i := range r.Findings {
		if f := &r.Findings[i]; f.Severity == OK {
			inOrder.Notes = append(inOrder.Notes, report.Note{Text: strings.Join(append([]string{f.Found}, f.Evidence...), "; ")})
		} else {
			problems.Notes = append(problems.Notes, f.note())
		}
	}
	for _, s := range r.Skipped {
		skipped.Notes = append(skipped.Notes, report.Note{Text: s.What + ": " + s.Why})
	}
	return &report.Report{Sections: []report.Section{problems, inOrder, skipped, {Notes: report.Notes(r.summary())}}}
}

func (f *Finding) note() report.Note {
	n := report.Note{Text: strings.ToUpper(string(f.Severity)) + ": " + f.Found}
	add := func(label, text string) { n.Notes = append(n.Notes, report.Note{Text: label + text}) }
	for _, e := range f.Evidence {
		add("| ", e)
	}
	for _, m := range f.Messages {
		add("seen as: ", m)
	}
	if f.Advice != "" {
		add("do: ", f.Advice)
	}
	add("(", string(f.ID)+")")
	return n
}

// summary returns one line.
func (r *Report) summary() string {
	where := "the cluster"
	if r.Node != "" {
		where = "node " + r.Node
	} else if r.probe.Local {
		where = "this machine"
	}
	return fmt.Sprintf("%s: %s, %s, %s; %d in order, %d skipped", where,
		count(r.Count(Error), "error"), count(r.Count(Warning), "warning"), count(r.Count(Info), "note"), r.Count(OK), len(r.Skipped))
}

func count(n int, what string) string { return countIn(n, what, what+"s") }

func countIn(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
