package doctor

import (
	"fmt"
	"io"
	"strings"
)

// Print writes the report as text: first problems in full, then what is in order, one line
// each, and last what was skipped.
func (r *Report) Print(w io.Writer) error {
	var b strings.Builder
	for i := range r.Findings {
		if f := &r.Findings[i]; f.Severity != OK {
			f.print(&b)
		}
	}
	if r.Count(OK) > 0 {
		b.WriteString("IN ORDER\n")
		for i := range r.Findings {
			if f := &r.Findings[i]; f.Severity == OK {
				paragraph(&b, "  ", "    ", strings.Join(append([]string{f.Found}, f.Evidence...), "; "))
			}
		}
		b.WriteString("\n")
	}
	if len(r.Skipped) > 0 {
		b.WriteString("SKIPPED\n")
		for _, s := range r.Skipped {
			paragraph(&b, "  ", "    ", s.What+": "+s.Why)
		}
		b.WriteString("\n")
	}
	b.WriteString(r.summary() + "\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (f *Finding) print(b *strings.Builder) {
	paragraph(b, "", "    ", strings.ToUpper(string(f.Severity))+": "+f.Found)
	for _, e := range f.Evidence {
		paragraph(b, "  | ", "  |   ", e)
	}
	for i, m := range f.Messages {
		label := "  seen as: "
		if i > 0 {
			label = "           "
		}
		fmt.Fprintf(b, "%s%s\n", label, m)
	}
	if f.Advice != "" {
		paragraph(b, "  do:      ", "           ", f.Advice)
	}
	fmt.Fprintf(b, "  (%s)\n\n", f.ID)
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

// lineWidth fits most terminals.
const lineWidth = 100

// paragraph wraps text at spaces, and never within a path.
func paragraph(b *strings.Builder, first, next, text string) {
	line := first
	empty := true
	for word := range strings.FieldsSeq(text) {
		if !empty && len(line)+1+len(word) > lineWidth {
			b.WriteString(line + "\n")
			line, empty = next, true
		}
		if !empty {
			line += " "
		}
		line += word
		empty = false
	}
	b.WriteString(line + "\n")
}
