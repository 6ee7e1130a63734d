package manual_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const claimsDocument = "test/claims.md"

// TestClaims: each claim of test/claims.md names a test, a scenario of test/e2e or a
// measurement. Tests, scenarios and make targets that it names exist.
func TestClaims(t *testing.T) {
	faults, rows := claimFaults(t, read(t, claimsDocument))
	for _, fault := range faults {
		t.Errorf("%s: %s", claimsDocument, fault)
	}
	if rows < 30 {
		t.Errorf("%s has only %d claims", claimsDocument, rows)
	}
}

// TestClaimsRefused: what TestClaims takes, and what it must not take.
func TestClaimsRefused(t *testing.T) {
	row := func(claim, shown, date string) string {
		return fmt.Sprintf("# Claims\n\n| claim | shown by | last seen |\n|---|---|---|\n| %s | %s | %s |\n", claim, shown, date)
	}
	const claim, date = "[A claim](limits.md)", "2026-11-23"
	for _, shown := range []string{
		"`hack/manual` `TestClaims`",
		"`e2e migrate-killed`, `cmd/flex2csi` `TestScript/check_valid`, `test/cluster` `TestCluster/many`",
		"`e2e migrate-disturbed-kubelet`, `migrate-killed`, once",
		"`hack/manual` `TestClaims`, `TestClaimsRefused`, `cmd/flex2csi` `TestScript/check_valid`",
		"measured, commit a1e97e6",
		"measured by `make bench`, [figures](performance.md)",
	} {
		if faults, rows := claimFaults(t, row(claim, shown, date)); len(faults) > 0 || rows != 1 {
			t.Errorf("%d rows, %q of %s", rows, faults, shown)
		}
	}
	if faults, _ := claimFaults(t, row(claim, "not shown: no release yet", "–")); len(faults) > 0 {
		t.Errorf("what is not shown is refused: %q", faults)
	}
	for want, doc := range map[string]string{
		"there is no table":                     "# Claims\n\nAll is well.\n",
		"a row has 2 cells":                     "| claim | shown by | last seen |\n|---|---|---|\n| [A claim](limits.md) | `hack/manual` `TestClaims` |\n",
		"says where it is said":                 row("A claim", "`hack/manual` `TestClaims`", date),
		"is there twice":                        row(claim, "`hack/manual` `TestClaims`", date) + "| " + claim + " | `hack/manual` `TestClaims` | " + date + " |\n",
		"folder no/such has no tests":           row(claim, "`no/such` `TestClaims`", date),
		"hack/manual has no TestNone":           row(claim, "`hack/manual` `TestNone`", date),
		"hack/manual has no TestClaimFaults":    row(claim, "`hack/manual` `TestClaims`, `hack/manual` `TestClaimFaults`", date),
		"hack/manual has no TestScript":         row(claim, "`cmd/flex2csi` `TestScript/check_valid`, `hack/manual` `TestClaims`, `TestScript`", date),
		"TestCluster has no part none":          row(claim, "`test/cluster` `TestCluster/none`", date),
		"no scenario migrate-never":             row(claim, "`e2e migrate-never`", date),
		"no scenario migrate-disturbed-nothing": row(claim, "`e2e migrate-killed`, `migrate-disturbed-nothing`", date),
		"`migrate-killed` is no test":           row(claim, "`hack/manual` `TestClaims`, `migrate-killed`", date),
		"no target bench-nothing":               row(claim, "measured by `make bench-nothing`, [figures](performance.md)", date),
		"`TestClaims` is no test":               row(claim, "`TestClaims`", date),
		"neither a test":                        row(claim, "everybody knows", date),
		"neither a test, a scenario":            row(claim, "measured on a good day", date),
		"`make bench` alone":                    row(claim, "`make bench`", date),
		"is no date":                            row(claim, "`hack/manual` `TestClaims`", "yesterday"),
		"2026-13-01 is no date":                 row(claim, "`hack/manual` `TestClaims`", "2026-13-01"),
		"is not shown, and has a date":          row(claim, "not shown: no release yet", date),
		"says not why":                          row(claim, "not shown", "–"),
	} {
		if faults, _ := claimFaults(t, doc); !slices.ContainsFunc(faults, func(f string) bool { return strings.Contains(f, want) }) {
			t.Errorf("no %q, but %q of\n%s", want, faults, doc)
		}
	}
}

// claimFaults returns what is wrong with the tables of a document, and how many claims
// they have.
func claimFaults(t *testing.T, text string) (faults []string, rows int) {
	t.Helper()
	scenarios, seen := scenarioNames(t), map[string]bool{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") || strings.HasPrefix(line, "| claim |") {
			continue
		}
		rows++
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells) != 3 {
			faults = append(faults, fmt.Sprintf("a row has %d cells: %s", len(cells), line))
			continue
		}
		claim, shown, date := strings.TrimSpace(cells[0]), strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2])
		if !link.MatchString(claim) {
			faults = append(faults, "no link says where it is said: "+claim)
		}
		if seen[claim] {
			faults = append(faults, "is there twice: "+claim)
		}
		seen[claim] = true
		for _, fault := range append(shownFaults(t, shown, scenarios), dateFaults(shown, date)...) {
			faults = append(faults, claim+": "+fault)
		}
	}
	if rows == 0 {
		faults = append(faults, "there is no table")
	}
	return faults, rows
}

const (
	notShown       = "not shown"
	scenarioFolder = "e2e"
)

// dateFaults wants a date of what is shown, and none of what is not.
func dateFaults(shown, date string) []string {
	if strings.HasPrefix(shown, notShown) {
		if date != "–" {
			return []string{"is not shown, and has a date"}
		}
		return nil
	}
	if _, err := time.Parse(time.DateOnly, date); err != nil {
		return []string{date + " is no date"}
	}
	return nil
}

var (
	codeSpan = regexp.MustCompile("`([^`]+)`")
	testName = regexp.MustCompile(`^((?:Test|Benchmark|Fuzz)\w+)(?:/([\w-]+))?$`)
	measured = regexp.MustCompile(`\bmeasured\b.*(?:\bcommit [0-9a-f]{7,40}\b|\]\([^)]+\))`)
)

// shownFaults returns what is wrong with what shows a claim. A folder is that of all tests
// up to the next one, and e2e is before the first of its scenarios.
func shownFaults(t *testing.T, shown string, scenarios []string) (faults []string) {
	t.Helper()
	if reason, ok := strings.CutPrefix(shown, notShown); ok {
		if !strings.HasPrefix(reason, ": ") {
			return []string{"is not shown, and says not why"}
		}
		return nil
	}
	kinds, measurement, folder := 0, measured.MatchString(shown), ""
	for _, m := range codeSpan.FindAllStringSubmatch(shown, -1) {
		name, isMake := strings.CutPrefix(m[1], "make ")
		name, isScenario := strings.CutPrefix(name, scenarioFolder+" ")
		test := testName.FindStringSubmatch(name)
		switch {
		case isMake && measurement:
			if !strings.Contains(read(t, "Makefile"), "\n"+name+":") {
				faults = append(faults, "the Makefile has no target "+name)
			}
		case isMake:
			faults = append(faults, m[0]+" alone is no measurement: it has no commit and no document")
		case test != nil && folder != "" && folder != scenarioFolder:
			kinds++
			if fault := testFault(t, folder, test[1], test[2]); fault != "" {
				faults = append(faults, fault)
			}
		case test == nil && strings.Contains(name, "/"):
			folder = name
		case test == nil && (isScenario || folder == scenarioFolder):
			folder = scenarioFolder
			kinds++
			if !slices.Contains(scenarios, name) {
				faults = append(faults, "test/e2e has no scenario "+name)
			}
		default:
			faults = append(faults, m[0]+" is no test of a folder, no scenario and no target")
		}
	}
	if kinds == 0 && !measurement {
		faults = append(faults, "names neither a test, a scenario nor a measurement with its commit or document")
	}
	return faults
}

// testFault says why there is no such test, or no such part of it: a script, or a name
// in its package.
func testFault(t *testing.T, folder, name, part string) string {
	t.Helper()
	found, hasPart := false, part == ""
	files := testFiles(t, folder)
	if len(files) == 0 {
		return "folder " + folder + " has no tests"
	}
	for _, file := range files {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == name && f.Type.Params.NumFields() == 1 {
				found = true
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			hasPart = hasPart || part == partOf(n)
			return !hasPart
		})
	}
	if !found {
		return folder + " has no " + name
	}
	if _, err := os.Stat(filepath.Join(root, folder, "testdata", "script", part+".txtar")); !hasPart && err != nil {
		return folder + " " + name + " has no part " + part
	}
	return ""
}

// partOf returns the name that a node of the source may give to a part of a test: the
// first field of a row, the key of a map, the argument of Run.
func partOf(n ast.Node) string {
	switch n := n.(type) {
	case *ast.KeyValueExpr:
		return stringOf(n.Key)
	case *ast.CompositeLit:
		if len(n.Elts) > 0 {
			return stringOf(n.Elts[0])
		}
	case *ast.CallExpr:
		if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Run" && len(n.Args) > 0 {
			return stringOf(n.Args[0])
		}
	}
	return ""
}

// testFiles are the parsed test files of a folder, those with build tags, too.
func testFiles(t *testing.T, folder string) (all []*ast.File) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, file)
	}
	return all
}
