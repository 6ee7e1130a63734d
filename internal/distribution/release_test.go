package distribution_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/internal/distribution"
	"github.com/flex2csi/flex2csi/test/testenv"
)

var update = flag.Bool("update", false, "write the document instead of comparing it")

func TestParse(t *testing.T) {
	for version, want := range map[string]distribution.Minor{
		"v1.37.1": 37, "v1.27.11-gke.100": 27, "v1.28+": 28, "1.24.17": 24, "v1.30.0-rc.1": 30, "v1.36.3+k3s1": 36,
		"": 0, "v1": 0, "v2.1.0": 0, "v1.x.0": 0, "v1.-3.0": 0, "v1.0.0": 0, "37": 0,
	} {
		m, ok := distribution.ParseMinor(version)
		if ok != (want != 0) || ok && m != want {
			t.Errorf("%q: %s, %t; want %d", version, m, ok, want)
		}
	}
}

// TestCapabilities: docs/limits.md has the table. With -update (make docs) it is written.
func TestCapabilities(t *testing.T) {
	all := distribution.ReleaseCapabilities()
	var b strings.Builder
	b.WriteString("| Kubernetes | since | before |\n|---|---|---|\n")
	for _, c := range all {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", c.Name, c.Since, c.Without)
	}
	testenv.Section(t, "../../docs/limits.md", "<!-- The table is made from internal/distribution by make docs. -->\n\n", "\n<!-- Up to here. -->\n", b.String(), *update)
	if !slices.IsSortedFunc(all, func(a, b distribution.ReleaseCapability) int { return int(a.Since - b.Since) }) {
		t.Error("the oldest is not first")
	}
}

// TestTested: the releases that plan calls tested are those of make e2e-releases.
func TestTested(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^RELEASES := (.*)$`).FindSubmatch(makefile)
	if m == nil {
		t.Fatal("the Makefile has no RELEASES :=")
	}
	want := strings.Fields(string(m[1]))
	var got []string
	for _, minor := range distribution.TestedMinors() {
		got = append(got, minor.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("plan calls %q tested, make e2e-releases runs %q", got, want)
	}
	if text := distribution.TestedText(); text != "1.24, 1.28, 1.32, 1.34, 1.36 and 1.37" {
		t.Errorf("they are called %q", text)
	}
}
