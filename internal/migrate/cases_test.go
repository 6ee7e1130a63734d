package migrate_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/mapping"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// caseAPI has the objects of a case, and no controller that acts on them.
func caseAPI(t *testing.T, file string, edits ...string) *api {
	t.Helper()
	a := newAPI(t)
	a.quiet = true
	for text := range strings.SplitSeq(testenv.Case(t, "testdata/cases", file, edits...), "\n---\n") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		a.add(&unstructured.Unstructured{Object: o})
	}
	return a
}

// caseConfig is the configuration of a case.
func caseConfig(t *testing.T, file string) *bridgeconfig.Configuration {
	t.Helper()
	name := "disk"
	for prefix, of := range map[string]string{"oci": "oci", "twodef": "oci", "rook": "rook", "smb": "smb", "nfs": "nfs"} {
		if strings.HasPrefix(file, prefix) {
			name = of
		}
	}
	data, err := os.ReadFile("testdata/cases/" + name + "-config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	config, err := bridgeconfig.Loader{}.Decode(data, mapping.Check)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// A clusterCase is an input and lines of its plan: the pieces between … in one line, in order.
type clusterCase struct {
	file        string
	edits       []string
	want, never []string
}

// planLines are what a plan says, with the method of each volume.
func planLines(p *migrate.Plan) (all []string) {
	for _, v := range p.Volumes {
		all = append(all, fmt.Sprintf("%s: %s", v.Name, v.Method))
		for _, c := range v.Checks {
			all = append(all, fmt.Sprintf("%s %s: %s; %s", c.Status, c.Name, c.Evidence, c.Do))
		}
		for _, text := range v.Expect {
			all = append(all, "Expect: "+text)
		}
	}
	for _, r := range p.Related {
		all = append(all, fmt.Sprintf("Related %s %s: %s", r.Kind, r.Name, r.What))
	}
	return all
}

// says reports whether a line has all pieces of a pattern in order.
func says(line, pattern string) bool {
	for piece := range strings.SplitSeq(pattern, "…") {
		_, rest, ok := strings.Cut(line, piece)
		if !ok {
			return false
		}
		line = rest
	}
	return true
}

// TestCases: reports of people who migrate, and inputs of the same kind. For each the plan said
// something that was not so, or nothing.
func TestCases(t *testing.T) {
	for name, test := range clusterCases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := caseAPI(t, test.file, test.edits...)
			p := &migrate.Planner{Client: a.client(), Config: caseConfig(t, test.file), Now: func() time.Time { return time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC) }}
			plan, err := p.Plan(t.Context(), &migrate.Selection{All: true})
			if err != nil {
				t.Fatal(err)
			}
			lines := planLines(plan)
			for _, pattern := range test.want {
				if !slices.ContainsFunc(lines, func(line string) bool { return says(line, pattern) }) {
					t.Errorf("no %q in\n%s", pattern, strings.Join(lines, "\n"))
				}
			}
			for _, pattern := range test.never {
				if slices.ContainsFunc(lines, func(line string) bool { return says(line, pattern) }) {
					t.Errorf("%q in\n%s", pattern, strings.Join(lines, "\n"))
				}
			}
		})
	}
}
