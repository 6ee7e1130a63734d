package main

import (
	"fmt"
	"io"
)

// outcome is what came of a check.
type outcome string

const (
	ok       outcome = "ok"
	notOK    outcome = "not ok"
	notTried outcome = "not tried"
)

type result struct {
	outcome      outcome
	name, reason string
}

type report struct{ results []result }

func (r *report) add(v outcome, name, format string, args ...any) {
	r.results = append(r.results, result{v, name, fmt.Sprintf(format, args...)})
}

// check is ok if there is no error.
func (r *report) check(name string, err error) bool {
	if err != nil {
		r.add(notOK, name, "%v", err)
		return false
	}
	r.add(ok, name, "")
	return true
}

// skip marks checks that need what failed, or what was not given.
func (r *report) skip(reason string, names ...string) {
	for _, name := range names {
		r.add(notTried, name, "%s", reason)
	}
}

// print returns the exit status.
func (r *report) print(w io.Writer) int {
	count := map[outcome]int{}
	for _, result := range r.results {
		count[result.outcome]++
		line := fmt.Sprintf("%-10s %s", result.outcome, result.name)
		if result.reason != "" {
			line += ": " + result.reason
		}
		fmt.Fprintln(w, line)
	}
	fmt.Fprintf(w, "\n%d ok, %d not ok, %d not tried\n", count[ok], count[notOK], count[notTried])
	switch {
	case count[notOK] > 0:
		return exitNotOK
	case count[ok] == 0:
		return exitUsage
	}
	return 0
}
