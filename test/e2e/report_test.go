package e2e

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/flex2csi/flex2csi/internal/distribution"
)

// A report is the table at the end.
type report struct {
	mu     sync.Mutex
	rows   []row
	places int
}

// next gives a scenario its place in the table.
func (r *report) next() int {
	r.places++
	return r.places
}

type row struct {
	name, result, what string
	took               time.Duration
	// place is that of the scenario in its list.
	place int
}

// add notes how a scenario ended. Its cleanups, which look for what is left, have
// run by then.
func (r *report) add(place int, s scenario, run *T, t *testing.T, took time.Duration) {
	result := "ok"
	switch {
	case t.Failed():
		result = "FAILED"
	case t.Skipped():
		result = "skipped"
	}
	what := s.what
	if run != nil && len(run.notes) > 0 {
		what += " [" + strings.Join(run.notes, "; ") + "]"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows = append(r.rows, row{name: s.name, result: result, what: what, took: took, place: place})
}

// leaveOut notes a scenario that does not apply to the release, and why.
func (r *report) leaveOut(place int, s scenario, needs distribution.ReleaseCapability) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows = append(r.rows, row{
		name: s.name, result: "since " + needs.Since.String(), place: place,
		what: fmt.Sprintf("%s [before %s: %s]", s.what, needs.Name, needs.Without),
	})
}

// write writes the table, with a headline.
func (r *report) write(file, headline string) error {
	var text strings.Builder
	fmt.Fprintln(&text, headline)
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SCENARIO\tRESULT\tSECONDS\tWHAT IS CHECKED")
	// Side by side they end in any order.
	slices.SortStableFunc(r.rows, func(a, b row) int { return cmp.Compare(a.place, b.place) })
	for _, row := range r.rows {
		fmt.Fprintf(w, "%s\t%s\t%.1f\t%s\n", row.name, row.result, row.took.Seconds(), row.what)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text.String()), 0o644)
}
