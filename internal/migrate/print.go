package migrate

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/flex2csi/flex2csi/internal/report"
)

// madeLayout is the time of a report.
const madeLayout = "2006-01-02 15:04 MST"

// Show makes a line for each volume, and below it what keeps it from being live and what has to be
// decided; wide shows all checks.
func (p *Plan) Show(view report.View) *report.Report {
	if view == report.Page {
		return p.page()
	}
	isWide := view == report.Wide
	columns := []string{"Name", "Claim", "FlexVolume driver", "CSI driver", "Pods", "Method", "To decide"}
	if isWide {
		columns = append(columns, "Handle", "Policy", "Nodes")
	}
	volumes := report.Of(p.Volumes, func(v *PlannedVolume) []string {
		cells := []string{v.Name, v.Claim, v.FlexDriver, v.CSIDriver, strconv.Itoa(len(v.Pods)), v.Method.String(), strconv.Itoa(v.count(Decide))}
		return append(cells, v.Handle, v.Original.ReclaimPolicy, strings.Join(v.nodes(), ","))[:len(columns)]
	}, columns...)
	var notes []report.Note
	for _, c := range p.Checks {
		if c.Status != OK || isWide {
			notes = append(notes, c.note())
		}
	}
	for _, v := range p.Volumes {
		if isWide || v.count(OK)+v.count(Note) < len(v.Checks) {
			notes = append(notes, v.note(isWide))
		}
	}
	for _, o := range p.Related {
		notes = append(notes, o.note())
	}
	return &report.Report{Sections: []report.Section{{Rows: volumes}, {Notes: notes}, {Lines: true, Notes: p.summary()}}}
}

func (p *Plan) page() *report.Report {
	byHand := report.Section{Heading: "To do by hand"}
	for _, c := range p.Checks {
		if c.Status != OK {
			byHand.Notes = append(byHand.Notes, report.Note{Text: fmt.Sprintf("%s, %s: %s", words(c.Status), c.Name, c.Evidence), Next: c.Do})
		}
	}
	for _, o := range p.Related {
		byHand.Notes = append(byHand.Notes, report.Note{Text: o.Kind + " " + o.Name + ": " + o.What, Next: strings.Join(o.Steps, "; ")})
	}
	happens := report.Section{Heading: "What happens", Notes: report.Notes(
		lostForAMoment,
		"live: the volume migrates under its running pods, which notice nothing. From its next start, whenever that suits, a pod does not need the bridge.",
		"after a pod restart: as live, after a restart of its pods has brought the volume onto the bridge, or with --rolling or --offline.",
		"offline: while no pod of the volume runs. no: what is in the way comes first.",
	)}
	volumes := report.Of(p.Volumes, func(v *PlannedVolume) []string {
		var inTheWay []string
		for _, c := range v.inTheWay() {
			inTheWay = append(inTheWay, c.Name+": "+c.Evidence)
		}
		return []string{v.Name, v.Claim, v.FlexDriver, v.CSIDriver, v.Handle, strconv.Itoa(len(v.Pods)), strings.Join(v.nodes(), " "), v.Method.String(), strconv.Itoa(v.count(Decide)), strings.Join(inTheWay, "; ")}
	}, "Name", "Claim", "FlexVolume driver", "CSI driver", "Volume handle", "Pods", "Nodes", "Method", "To decide", "In the way")
	facts := []report.Fact{{Name: "Volumes", Value: strconv.Itoa(len(p.Volumes))}}
	for _, m := range []Method{Live, PodRestart, Offline, No, Unknown} {
		facts = append(facts, report.Fact{Name: m.String(), Value: strconv.Itoa(p.count(m))})
	}
	count := func(title string, texts func(*PlannedVolume) []string) report.Chart {
		return report.Count(title, p.Volumes, texts)
	}
	return &report.Report{
		Title: "Migration plan", Subtitle: p.Server + ", " + p.Made.UTC().Format(madeLayout), Facts: facts,
		Charts: []report.Chart{
			count("By method", func(v *PlannedVolume) []string { return []string{v.Method.String()} }),
			count("In the way, or to decide", func(v *PlannedVolume) (names []string) {
				for _, c := range v.inTheWay() {
					names = append(names, c.Name)
				}
				return names
			}),
			count("By driver", func(v *PlannedVolume) []string { return []string{v.FlexDriver} }),
			count("By namespace", func(v *PlannedVolume) []string { return []string{namespaceOf(v.Claim)} }),
			count("By node", (*PlannedVolume).nodes),
		},
		Sections: []report.Section{byHand, happens, {Rows: volumes}},
	}
}

func namespaceOf(claim string) string {
	namespace, _, _ := strings.Cut(claim, "/")
	return namespace
}

// note has the replacement, to be copied.
func (o *Related) note() report.Note {
	n := report.Note{Text: o.Kind + " " + o.Name + ": " + o.What}
	for _, step := range o.Steps {
		n.Notes = append(n.Notes, report.Note{Text: "- " + step})
	}
	if o.Replacement != nil {
		text, err := report.YAML(o.Replacement)
		if n.Command = string(text); err != nil {
			n.Command = err.Error()
		}
	}
	return n
}

// note is a check for people.
func (c Check) note() report.Note {
	n := report.Note{Text: fmt.Sprintf("%-8s %s: %s", words(c.Status), c.Name, c.Evidence), Next: c.Do}
	if c.Status == Decide {
		n.Next = strings.TrimPrefix(c.Do+"; to accept that: --accept "+c.Name, "; ")
	}
	return n
}

// words are a status for people.
func words(s CheckStatus) string {
	return cmp.Or(map[CheckStatus]string{OK: "ok", Note: "note", Decide: "decide", NotLive: "not live", Unanswered: "unknown"}[s], "fails")
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

// inTheWay are the checks that the operator has to know of.
func (v *PlannedVolume) inTheWay() []Check {
	return slices.DeleteFunc(slices.Clone(v.Checks), func(c Check) bool { return c.Status == OK || c.Status == Note })
}

// note is what a person has to know of a volume; wide: all that was found.
func (v *PlannedVolume) note(isWide bool) report.Note {
	n := report.Note{Text: fmt.Sprintf("%s: %s", v.Name, v.Method)}
	checks := v.inTheWay()
	if isWide {
		checks = v.Checks
	}
	for _, c := range checks {
		n.Notes = append(n.Notes, c.note())
	}
	for _, s := range v.Secrets {
		if !s.There && s.Command != "" {
			n.Notes = append(n.Notes, report.Note{Text: "Secret " + s.To + ": " + s.Command})
		}
	}
	if !isWide {
		return n
	}
	for _, c := range v.Changes {
		n.Notes = append(n.Notes, report.Note{Text: fmt.Sprintf("change   %s: %s → %s", c.Field, dash(c.Old), dash(c.New))})
	}
	for _, s := range v.Steps {
		n.Notes = append(n.Notes, report.Note{Text: fmt.Sprintf("step     %s: %s", s.Stage, s.Does), Command: s.Request})
	}
	for _, e := range v.Expect {
		n.Notes = append(n.Notes, report.Note{Text: "expect   " + e})
	}
	return n
}

func dash(s string) string { return cmp.Or(s, "-") }

// lostForAMoment is what people should know before.
const lostForAMoment = "While a volume is replaced its claim is Lost for a moment, with an event that says that data is lost. None is."

func (p *Plan) count(m Method) (n int) {
	for _, v := range p.Volumes {
		if v.Method == m {
			n++
		}
	}
	return n
}

// summary counts, and says what should surprise no reader.
func (p *Plan) summary() []report.Note {
	unknown := ""
	if n := p.count(Unknown); n > 0 {
		unknown = fmt.Sprintf(", %d UNKNOWN", n)
	}
	all := report.Notes(fmt.Sprintf("%d volumes: %d live, %d after a pod restart, %d offline, %d not%s.",
		len(p.Volumes), p.count(Live), p.count(PodRestart), p.count(Offline), p.count(No), unknown))
	if slices.ContainsFunc(p.Volumes, func(v *PlannedVolume) bool { return len(v.Expect) > 0 }) {
		all = append(all, report.Note{Text: lostForAMoment})
	}
	return all
}
