package e2e

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A scenario is something that users rely on.
type scenario struct {
	// name says what it is about: lower case, for -run and for directories.
	name string
	// what is checked, in one sentence for the table.
	what string
	run  func(*T)
}

// runAll runs the scenarios that the environment asks for.
func (c *cluster) runAll(t *testing.T, r *report, list []scenario, parallel bool) {
	t.Helper()
	wanted, err := regexp.Compile(os.Getenv("SCENARIO"))
	if err != nil {
		t.Fatalf("SCENARIO: %v", err)
	}
	for _, s := range list {
		place := r.next()
		if !wanted.MatchString(s.name) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			if parallel {
				t.Parallel()
			}
			start := time.Now()
			var run *T
			t.Cleanup(func() { r.add(place, s, run, t, time.Since(start)) }) // after all others
			run = c.begin(t)
			s.run(run)
		})
	}
}

// namespaceOf makes a name for a namespace of the name of a test.
func namespaceOf(test string) string {
	base := test[strings.LastIndex(test, "/")+1:]
	return "e2e-" + strings.Trim(regexp.MustCompile("[^a-z0-9]+").ReplaceAllString(strings.ToLower(base), "-"), "-")
}

// retry tries something until it works.
func retry(patience time.Duration, try func() error) error {
	const pause = 150 * time.Millisecond
	for deadline := time.Now().Add(patience); ; time.Sleep(pause) {
		err := try()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %s: %w", patience, err)
		}
	}
}
