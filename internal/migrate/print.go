package migrate

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Table prints the plan for people: a line for each volume, and below it what
// keeps it from being live and what has to be decided; wide shows all checks.
func (p *Plan) Table(out io.Writer, wide bool) error {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "NAME\tCLAIM\tFLEXVOLUME DRIVER\tCSI DRIVER\tPODS\tMETHOD\tTO DECIDE")
	if wide {
		fmt.Fprint(t, "\tHANDLE\tPOLICY\tNODES")
	}
	fmt.Fprintln(t)
	for _, v := range p.Volumes {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\t%d", v.Name, dash(v.Claim), dash(v.FlexDriver), dash(v.CSIDriver), len(v.Pods), v.Method, v.count(Decide))
		if wide {
			fmt.Fprintf(t, "\t%s\t%s\t%s", dash(v.Handle), dash(v.Original.ReclaimPolicy), dash(strings.Join(v.nodes(), ",")))
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, c := range p.Checks {
		if c.Status != OK || wide {
			fmt.Fprintf(&b, "\n%s\n", line(c))
		}
	}
	for _, v := range p.Volumes {
		v.details(&b, wide)
	}
	for _, o := range p.Related {
		fmt.Fprintf(&b, "\n%s %s: %s\n", o.Kind, o.Name, o.What)
		for _, step := range o.Steps {
			fmt.Fprintf(&b, "  - %s\n", step)
		}
		if err := o.manifest(&b); err != nil {
			return err
		}
	}
	p.summary(&b)
	_, err := io.WriteString(out, b.String())
	return err
}

// manifest prints the replacement, to be copied.
func (o *Related) manifest(b *strings.Builder) error {
	if o.Replacement == nil {
		return nil
	}
	text, err := yamlFrom(o.Replacement)
	for line := range strings.Lines(string(text)) {
		b.WriteString("    " + line)
	}
	return err
}

func dash(s string) string { return cmp.Or(s, "-") }

// line is a check for people.
func line(c Check) string {
	text := fmt.Sprintf("%-8s %s: %s", words(c.Status), c.Name, c.Evidence)
	do := c.Do
	if c.Status == Decide {
		do = strings.TrimPrefix(do+"; to accept that: --accept "+c.Name, "; ")
	}
	if do != "" {
		text += "\n           → " + do
	}
	return text
}

func words(s CheckStatus) string {
	switch s {
	case OK:
		return "ok"
	case Note:
		return "note"
	case Decide:
		return "decide"
	case NotLive:
		return "not live"
	case Unanswered:
		return "unknown"
	}
	return "fails"
}

func (v *PlannedVolume) count(s CheckStatus) (n int) {
	for _, c := range v.Checks {
		if c.Status == s {
			n++
		}
	}
	return n
}

func (v *PlannedVolume) nodes() (all []string) {
	for _, p := range v.Pods {
		if p.Node != "" && !slices.Contains(all, p.Node) {
			all = append(all, p.Node)
		}
	}
	return all
}

// details are what a person has to know of a volume; wide: all that was found.
func (v *PlannedVolume) details(b *strings.Builder, wide bool) {
	if !wide && v.count(OK)+v.count(Note) == len(v.Checks) {
		return
	}
	fmt.Fprintf(b, "\n%s: %s\n", v.Name, v.Method)
	for _, c := range v.Checks {
		if wide || (c.Status != OK && c.Status != Note) {
			fmt.Fprintf(b, "  %s\n", line(c))
		}
	}
	for _, s := range v.Secrets {
		if !s.There && s.Command != "" {
			fmt.Fprintf(b, "  Secret %s: %s\n", s.To, s.Command)
		}
	}
	if !wide {
		return
	}
	for _, c := range v.Changes {
		fmt.Fprintf(b, "  change   %s: %s → %s\n", c.Field, dash(c.Old), dash(c.New))
	}
	for _, s := range v.Steps {
		fmt.Fprintf(b, "  step     %s: %s\n", s.Stage, s.Does)
		if s.Request != "" {
			fmt.Fprintf(b, "             %s\n", s.Request)
		}
	}
	for _, e := range v.Expect {
		fmt.Fprintf(b, "  expect   %s\n", e)
	}
}

// lostForAMoment is what people should know before.
const lostForAMoment = "While a volume is replaced its claim is Lost for a moment, with an event that says that data is lost. None is."

// summary counts, and says what should surprise no reader.
func (p *Plan) summary(b *strings.Builder) {
	count := map[Method]int{}
	for _, v := range p.Volumes {
		count[v.Method]++
	}
	unknown := ""
	if n := count[Unknown]; n > 0 {
		unknown = fmt.Sprintf(", %d UNKNOWN", n)
	}
	fmt.Fprintf(b, "\n%d volumes: %d live, %d after a pod restart, %d offline, %d not%s.\n",
		len(p.Volumes), count[Live], count[PodRestart], count[Offline], count[No], unknown)
	for _, v := range p.Volumes {
		if len(v.Expect) > 0 {
			fmt.Fprintln(b, lostForAMoment)
			return
		}
	}
}
