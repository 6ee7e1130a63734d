package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// TestPlatforms: our own packages compile for each platform. It reads types alone,
// since to compile what flex2csi links takes minutes for each: make release does that.
func TestPlatforms(t *testing.T) {
	for _, p := range platforms() {
		t.Run(p.String(), func(t *testing.T) {
			loaded, err := packages.Load(&packages.Config{
				Dir:       "../..",
				Mode:      packages.NeedName | packages.NeedImports | packages.NeedDeps | packages.NeedTypes | packages.NeedSyntax | packages.NeedFiles | packages.NeedCompiledGoFiles,
				Env:       append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch, "GOFLAGS=-buildvcs=false"),
				ParseFile: declarations,
			}, "./cmd/flex2csi")
			if err != nil {
				t.Fatalf("load packages: %v", err)
			}
			ours := 0
			packages.Visit(loaded, nil, func(p *packages.Package) {
				if !strings.HasPrefix(p.PkgPath, "github.com/flex2csi/flex2csi/") {
					return
				}
				ours++
				for _, err := range p.Errors {
					t.Error(err)
				}
			})
			if ours < 2 {
				t.Errorf("it has %d packages of ours", ours)
			}
		})
	}
}

// declarations parses a file, those of other modules without what their functions do.
func declarations(fset *token.FileSet, name string, text []byte) (*ast.File, error) {
	file, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
	if file == nil || !strings.Contains(name, "@") { // module@version, in the module cache
		return file, err
	}
	for _, declared := range file.Decls {
		if function, ok := declared.(*ast.FuncDecl); ok {
			function.Body = nil
		}
	}
	return file, err
}
