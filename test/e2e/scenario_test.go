package e2e

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/distribution"
)

// A scenario is something that users rely on.
type scenario struct {
	// name says what it is about: lower case, for -run and for directories.
	name string
	// what is checked, in one sentence for the table.
	what string
	run  func(*T)
}

// A section is scenarios that apply to the same releases of Kubernetes.
type section struct {
	// needs is what they need of a release; the zero value: nothing that 1.24 lacks.
	needs     distribution.ReleaseCapability
	scenarios []scenario
}

// on has scenarios for all releases.
func on(lists ...[]scenario) section { return section{scenarios: slices.Concat(lists...)} }

// since has scenarios that need something of a release.
func since(needs distribution.ReleaseCapability, lists ...[]scenario) section {
	return section{needs: needs, scenarios: slices.Concat(lists...)}
}

// runAll runs the scenarios that the environment asks for, and that apply.
func (c *cluster) runAll(t *testing.T, r *report, sections []section, parallel bool) {
	t.Helper()
	wanted, err := regexp.Compile(os.Getenv("SCENARIO"))
	if err != nil {
		t.Fatalf("SCENARIO: %v", err)
	}
	for _, part := range sections {
		for _, s := range part.scenarios {
			place := r.next()
			switch {
			case !wanted.MatchString(s.name):
			case !minor().Has(part.needs):
				r.leaveOut(place, s, part.needs)
			default:
				c.runOne(t, r, place, s, parallel)
			}
		}
	}
}

func (c *cluster) runOne(t *testing.T, r *report, place int, s scenario, parallel bool) {
	t.Helper()
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
