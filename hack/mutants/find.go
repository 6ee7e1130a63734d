package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"
)

// A mutant is one way to make the program wrong at one place.
type mutant struct {
	// ID is that of its point in this build.
	ID int `json:"-"`
	// Key names it as long as its code does not change: file, function, kind, code, and which
	// one of several that are alike.
	Key string `json:"key"`
	// Package is its import path.
	Package string `json:"package"`
	// Line is in the file as it is.
	Line int `json:"-"`
}

// An insertion is text that goes before an offset of a file, in the place of the bytes up to end.
type insertion struct {
	offset, end int
	// width orders what begins at one place: the wider one goes first; what ends there, before
	// all of them, the narrower one first.
	width int
	text  string
}

// A source is a file with the points that are to be in it.
type source struct {
	path string
	// name is the path from the module's root.
	name       string
	text       []byte
	insertions []insertion
}

// A finder finds the mutants of packages.
type finder struct {
	root    string
	mutants []mutant
	sources []*source
	alike   map[string]int

	// Of the file that it is in.
	pkg      *packages.Package
	file     *source
	function *ast.FuncDecl
	results  *types.Tuple // of the innermost function
}

// pointPackage is the import's name in a file with points.
const pointPackage = "mutantpoint"

// find adds the mutants of a package.
func (f *finder) find(pkg *packages.Package, read func(string) ([]byte, error)) error {
	f.pkg = pkg
	for i, syntax := range pkg.Syntax {
		path := pkg.CompiledGoFiles[i]
		text, err := read(path)
		if err != nil {
			return fmt.Errorf("read source: %w", err)
		}
		name, err := filepath.Rel(f.root, path)
		if err != nil {
			return fmt.Errorf("name source: %w", err)
		}
		f.file = &source{path: path, name: name, text: text}
		before := len(f.mutants)
		for _, d := range syntax.Decls {
			if function, ok := d.(*ast.FuncDecl); ok && function.Body != nil {
				f.function = function
				f.results = f.pkg.TypesInfo.Defs[function.Name].Type().(*types.Signature).Results()
				f.block(function.Body.List)
			}
		}
		if len(f.mutants) > before {
			end := f.offset(syntax.Name.End())
			f.file.insertions = append(f.file.insertions, insertion{offset: end, end: end, text: "; import " + pointPackage + ` "github.com/flex2csi/flex2csi/hack/mutants/point"`})
			f.sources = append(f.sources, f.file)
		}
	}
	return nil
}

func (f *finder) offset(p token.Pos) int { return f.pkg.Fset.Position(p).Offset }

// code is the text of a node, in one line.
func (f *finder) code(n ast.Node) string {
	text := strings.Join(strings.Fields(string(f.file.text[f.offset(n.Pos()):f.offset(n.End())])), " ")
	if len(text) > 100 {
		return text[:60] + " … " + text[len(text)-35:]
	}
	return text
}

// add records a mutant and returns its ID.
func (f *finder) add(kind string, n ast.Node) int {
	name := f.function.Name.Name
	if f.function.Recv != nil {
		name = strings.TrimPrefix(types.ExprString(f.function.Recv.List[0].Type), "*") + "." + name
	}
	key := fmt.Sprintf("%s %s %s: %s", f.file.name, name, kind, f.code(n))
	f.alike[key]++
	if f.alike[key] > 1 {
		key = fmt.Sprintf("%s (%d)", key, f.alike[key])
	}
	id := len(f.mutants)
	f.mutants = append(f.mutants, mutant{ID: id, Key: key, Package: f.pkg.PkgPath, Line: f.pkg.Fset.Position(n.Pos()).Line})
	return id
}

// wrap puts a node between two texts.
func (f *finder) wrap(n ast.Node, before, after string) {
	from, to := f.offset(n.Pos()), f.offset(n.End())
	f.file.insertions = append(f.file.insertions,
		insertion{offset: from, end: from, width: to - from, text: before},
		insertion{offset: to, end: to, width: from - to, text: after})
}

// replace puts a text in the place of a token.
func (f *finder) replace(at token.Pos, old, text string) {
	from := f.offset(at)
	f.file.insertions = append(f.file.insertions, insertion{offset: from, end: from + len(old), text: text})
}

// call wraps an expression in a function of the points.
func (f *finder) call(function, kind string, n ast.Expr) {
	f.wrap(n, fmt.Sprintf("%s.%s(%d, ", pointPackage, function, f.add(kind, n)), ")")
}

func (f *finder) typeOf(e ast.Expr) types.Type { return f.pkg.TypesInfo.TypeOf(e) }

func (f *finder) isConstant(e ast.Expr) bool { return f.pkg.TypesInfo.Types[e].Value != nil }

func isError(t types.Type) bool { return t != nil && t.String() == "error" }

func isBool(t types.Type) bool {
	if t == nil {
		return false
	}
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&types.IsBoolean != 0
}
