package lifecycle

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestHandsOver: a rule says in its text to which tables it hands over, and names no
// others: the text is all that a reader of the document sees of it.
func TestHandsOver(t *testing.T) {
	s := parseSource(t)
	rules, found := s.literals(4), 0
	for _, rule := range rules {
		var says []string
		for _, m := range regexp.MustCompile(`\[([^]]+)\]`).FindAllStringSubmatch(text(rule[2]), -1) {
			says = append(says, m[1])
		}
		slices.Sort(says)
		does := s.handsOver(rule[3])
		if diff := cmp.Diff(does, says); diff != "" {
			t.Errorf("%s hands over to (-), and says (+):\n%s", text(rule[0]), diff)
		}
		found += len(does)
	}
	if len(rules) < 80 || found < 25 {
		t.Errorf("only %d rules and %d hand-overs were found", len(rules), found)
	}
}

// source is that of this package.
type source struct {
	files  []*ast.File
	funcs  map[string]ast.Node // by name
	tables map[string]string   // the names of shared tables by those of functions
}

func parseSource(t *testing.T) *source {
	t.Helper()
	s := &source{funcs: map[string]ast.Node{}, tables: map[string]string{}}
	names, _ := filepath.Glob("*.go")
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") && name != "doc_tables_test.go" {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		s.files = append(s.files, f)
		for _, d := range f.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				s.funcs[f.Name.Name] = f.Body
			}
		}
	}
	for _, table := range s.literals(3) {
		if call, ok := table[2].(*ast.CallExpr); ok {
			s.tables[call.Fun.(*ast.Ident).Name] = text(table[0])
		}
	}
	return s
}

// literals are those of structs that begin with two strings.
func (s *source) literals(fields int) (all [][]ast.Expr) {
	for _, f := range s.files {
		ast.Inspect(f, func(n ast.Node) bool {
			if l, ok := n.(*ast.CompositeLit); ok && len(l.Elts) == fields && text(l.Elts[0]) != "" && isString(l.Elts[1]) {
				all = append(all, l.Elts)
			}
			return true
		})
	}
	return all
}

// handsOver are the shared tables that the function of a rule asks.
func (s *source) handsOver(next ast.Expr) (all []string) {
	var body ast.Node = next
	if named, ok := next.(*ast.Ident); ok {
		body = s.funcs[named.Name]
	}
	ast.Inspect(body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if f, ok := call.Fun.(*ast.Ident); ok && s.tables[f.Name] != "" && !slices.Contains(all, s.tables[f.Name]) {
				all = append(all, s.tables[f.Name])
			}
		}
		return true
	})
	slices.Sort(all)
	return all
}

func isString(e ast.Expr) bool {
	l, ok := e.(*ast.BasicLit)
	return ok && l.Kind == token.STRING
}

func text(e ast.Expr) string {
	if !isString(e) {
		return ""
	}
	s, _ := strconv.Unquote(e.(*ast.BasicLit).Value)
	return s
}
