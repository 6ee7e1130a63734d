package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"
)

// A report is the table at the end.
type report struct {
	mu   sync.Mutex
	rows []row
}

type row struct {
	name, result, what string
	took               time.Duration
}

// add notes how a scenario ended. Its cleanups, which look for what is left, have
// run by then.
func (r *report) add(s scenario, run *T, t *testing.T, took time.Duration) {
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
	r.rows = append(r.rows, row{name: s.name, result: result, what: what, took: took})
}

// write writes the table, with a headline.
func (r *report) write(file, headline string) error {
	var text strings.Builder
	fmt.Fprintln(&text, headline)
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SCENARIO\tRESULT\tSECONDS\tWHAT IS CHECKED")
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
