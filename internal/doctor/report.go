package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/flex2csi/flex2csi/internal/report"
	"github.com/flex2csi/flex2csi/internal/version"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// The kind of the document. Until the version changes, fields are only added.
const (
	apiVersion = "flex2csi.io/v1alpha1"
	kindName   = "DoctorReport"
)

// Severity is how bad a finding is.
type Severity string

// The severities, the worst first.
const (
	Error   Severity = "error"   // pods cannot start or end, or data is in danger
	Warning Severity = "warning" // it works, and will not for long or not for all
	Info    Severity = "info"    // worth knowing
	OK      Severity = "ok"      // checked, and in order
)

// severities returns all severities, the worst first.
func severities() []Severity { return []Severity{Error, Warning, Info, OK} }

// A Finding is a result of a check.
type Finding struct {
	ID       ID       `json:"id"`
	Severity Severity `json:"severity"`
	Check    string   `json:"check"`
	// Subject is what it is about: a path, a driver, an object.
	Subject string `json:"subject"`
	Found   string `json:"found"`
	// Evidence are the facts behind it.
	Evidence []string `json:"evidence,omitempty"`
	// Messages are its symptoms in events of pods and in logs.
	Messages []string `json:"messages,omitempty"`
	Advice   string   `json:"advice,omitempty"`
}

// A Skipped is something that was not checked.
type Skipped struct {
	Check string `json:"check"`
	What  string `json:"what"`
	Why   string `json:"why"`
}

// A Report has all findings.
type Report struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Time       time.Time `json:"time"`
	Version    string    `json:"version"` // of this program
	Node       string    `json:"node,omitempty"`
	Findings   []Finding `json:"findings"`
	Skipped    []Skipped `json:"skipped"`

	probe *probe
}

func newReport(p *probe) *Report {
	return &Report{
		APIVersion: apiVersion, Kind: kindName, Time: time.Now().UTC(), Version: version.Get().Version,
		Findings: []Finding{}, Skipped: []Skipped{}, probe: p,
	}
}

func (r *Report) take(n *notes) {
	findings, skipped := n.seal()
	r.Findings = append(r.Findings, findings...)
	r.Skipped = append(r.Skipped, skipped...)
}

// finish sorts by severity, and keeps the order of the checks otherwise.
func (r *Report) finish() {
	order := severities()
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Compare(slices.Index(order, a.Severity), slices.Index(order, b.Severity))
	})
	r.Node = r.probe.nodeIfKnown()
}

// Count counts the findings of a severity.
func (r *Report) Count(s Severity) (count int) {
	for _, f := range r.Findings {
		if f.Severity == s {
			count++
		}
	}
	return count
}

// notes are the findings of one check. A check that was given up may still write; its
// notes are ignored.
type notes struct {
	check string

	mu       sync.Mutex
	sealed   bool
	findings []Finding
	skipped  []Skipped
}

// add adds a finding, and returns it for more facts.
func (n *notes) add(k *Kind, subject, format string, args ...any) *entry {
	f := Finding{
		ID: k.ID, Severity: k.Severity, Check: n.check, Subject: clean(subject), Found: clean(fmt.Sprintf(format, args...)),
		Messages: k.Messages, Advice: strings.ReplaceAll(k.Advice, "{subject}", report.Quote(clean(subject))),
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sealed {
		return &entry{n, -1}
	}
	n.findings = append(n.findings, f)
	return &entry{n, len(n.findings) - 1}
}

// skip notes what was not checked.
func (n *notes) skip(what, format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.sealed {
		n.skipped = append(n.skipped, Skipped{Check: n.check, What: what, Why: clean(fmt.Sprintf(format, args...))})
	}
}

func (n *notes) seal() ([]Finding, []Skipped) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sealed = true
	return n.findings, n.skipped
}

// An entry is a finding that can still be added to.
type entry struct {
	notes *notes
	index int
}

func (e *entry) change(f func(*Finding)) *entry {
	e.notes.mu.Lock()
	defer e.notes.mu.Unlock()
	if e.index >= 0 && !e.notes.sealed {
		f(&e.notes.findings[e.index])
	}
	return e
}

// evidence adds facts.
func (e *entry) evidence(facts ...string) *entry {
	return e.change(func(f *Finding) {
		for _, fact := range facts {
			f.Evidence = append(f.Evidence, clean(fact))
		}
	})
}

// advice replaces the advice of the kind by a better one.
func (e *entry) advice(format string, args ...any) {
	e.change(func(f *Finding) { f.Advice = clean(fmt.Sprintf(format, args...)) })
}

// clean removes what looks secret, and line breaks: many texts come from drivers and other
// programs.
func clean(text string) string {
	var byKey *flex.Redactor
	return strings.NewReplacer("\n", " ", "\t", " ").Replace(byKey.Redact(text))
}

// clip keeps a list of names readable.
func clip(text string) string {
	const most = 300
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}
