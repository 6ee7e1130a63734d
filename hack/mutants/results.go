package main

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
)

// excused.txt has mutants that nothing can notice, since the program does the same, and known.txt
// those that no test has noticed yet. A line is a key; in excused.txt the reason follows, indented.
var (
	//go:embed excused.txt
	excusedText string
	//go:embed known.txt
	knownText string
)

// keys are the lines of a file that are no reasons.
func keys(text string) map[string]bool {
	all := map[string]bool{}
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, "\n"); line != "" && line[0] != '\t' && line[0] != '#' {
			all[line] = true
		}
	}
	return all
}

// results is what is known of mutants, by their keys.
type results struct {
	mu sync.Mutex
	// Killers are the tests that notice; "" is none.
	Killers map[string]string `json:"killers"`
	// ran has the keys of this run.
	ran map[string]bool
}

func readResults(path string) (*results, error) {
	r := &results{Killers: map[string]string{}, ran: map[string]bool{}}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("read results of %s: %w", path, err)
	}
	return r, nil
}

func (r *results) save(path string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("encode results: %w", err)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return fmt.Errorf("keep results: %w", err)
	}
	return nil
}

func (r *results) killer(m mutant) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Killers[m.Key]
}

func (r *results) add(m mutant, killer string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Killers[m.Key] = killer
	r.ran[m.Key] = true
}

// A score counts the mutants of a package that ran.
type score struct{ mutants, ran, killed, excused, survived int }

// report prints the scores and the survivors. Its error says that there are new ones.
func (r *results) report(out io.Writer, mutants []mutant) error {
	excused, known := keys(excusedText), keys(knownText)
	scores := map[string]*score{}
	newOnes := 0
	for _, m := range mutants {
		s := scores[m.Package]
		if s == nil {
			s = &score{}
			scores[m.Package] = s
		}
		s.mutants++
		switch {
		case !r.ran[m.Key]:
			continue
		case r.Killers[m.Key] != "":
			s.killed++
		case excused[m.Key]:
			s.excused++
		default:
			s.survived++
			if !known[m.Key] {
				newOnes++
				fmt.Fprintf(out, "no test notices, line %d: %s\n", m.Line, m.Key)
			}
		}
		s.ran++
	}
	table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "PACKAGE\tMUTANTS\tRAN\tKILLED\tEXCUSED\tSURVIVED\tSCORE")
	for _, pkg := range slices.Sorted(maps.Keys(scores)) {
		s := scores[pkg]
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%.1f %%\n", strings.TrimPrefix(pkg, modulePath+"/"), s.mutants, s.ran, s.killed, s.excused, s.survived,
			100*float64(s.killed)/float64(cmp.Or(s.ran-s.excused, 1)))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	if newOnes > 0 {
		return fmt.Errorf("%d mutants survive that hack/mutants/known.txt does not have: test what they break", newOnes)
	}
	return nil
}
