package manual_test

import (
	"go/ast"
	"go/token"
	"regexp"
	"strconv"
	"testing"
)

// TestScenarioCount: README.md says how many scenarios test/e2e has.
func TestScenarioCount(t *testing.T) {
	m := regexp.MustCompile(`\[(\d+) scenarios\]\(test/e2e\)`).FindStringSubmatch(read(t, "README.md"))
	if m == nil {
		t.Fatal("README.md does not say how many scenarios there are")
	}
	if n := len(scenarioNames(t)); strconv.Itoa(n) != m[1] {
		t.Errorf("README.md says %s scenarios, test/e2e has %d", m[1], n)
	}
}

// scenarioNames are the scenarios of test/e2e: the first fields of literals of scenario.
// A name that is a sum begins with a text, and ends with the first field of a row of the
// same function.
func scenarioNames(t *testing.T) (all []string) {
	t.Helper()
	for _, file := range testFiles(t, "test/e2e") {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				all = append(all, scenariosOf(f)...)
			}
		}
	}
	if len(all) < 50 {
		t.Fatalf("test/e2e has only %d scenarios: %q", len(all), all)
	}
	return all
}

func scenariosOf(f *ast.FuncDecl) (all []string) {
	var begins, rows []string
	ast.Inspect(f, func(n ast.Node) bool {
		lit, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		literals := lit.Elts
		if isScenario(lit.Type) {
			literals = []ast.Expr{lit}
		}
		array, isArray := lit.Type.(*ast.ArrayType)
		for _, e := range literals {
			one, ok := e.(*ast.CompositeLit)
			if !ok || len(one.Elts) == 0 {
				continue
			}
			name := stringOf(one.Elts[0])
			switch sum, ok := one.Elts[0].(*ast.BinaryExpr); {
			case ok && isScenario(lit.Type):
				begins = append(begins, stringOf(sum.X))
			case name == "":
			case isScenario(lit.Type) || isArray && isScenario(array.Elt):
				all = append(all, name)
			case isArray:
				rows = append(rows, name)
			}
		}
		return true
	})
	for _, begin := range begins {
		for _, row := range rows {
			all = append(all, begin+row)
		}
	}
	return all
}

func isScenario(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == "scenario"
}

// stringOf returns the value of a string in the source, "" of anything else.
func stringOf(n ast.Node) string {
	lit, ok := n.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return ""
	}
	s, err := strconv.Unquote(lit.Value)
	if err != nil {
		return ""
	}
	return s
}
