package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
)

// block finds the mutants of statements.
func (f *finder) block(list []ast.Stmt) {
	for _, s := range list {
		f.removable(s)
		f.statement(s)
	}
}

// removable has a statement left out, if the program compiles without it.
func (f *finder) removable(s ast.Stmt) {
	switch s := s.(type) {
	case *ast.ExprStmt:
		if call, ok := s.X.(*ast.CallExpr); !ok || f.isLog(call) || f.ends(call) {
			return
		}
	case *ast.AssignStmt:
		if s.Tok == token.DEFINE || f.assignsCall(s) {
			return
		}
	case *ast.DeferStmt, *ast.IncDecStmt:
	default:
		return
	}
	f.wrap(s, fmt.Sprintf("if !%s.On(%d) { ", pointPackage, f.add("without", s)), " }")
}

// assignsCall reports whether an assignment has an error from a call, which has a mutant of its own.
func (f *finder) assignsCall(s *ast.AssignStmt) bool {
	if len(s.Rhs) != 1 {
		return false
	}
	_, ok := s.Rhs[0].(*ast.CallExpr)
	return ok && isError(f.typeOf(s.Rhs[0]))
}

// isLog reports whether a call writes a line of a log: no decision follows from it.
func (f *finder) isLog(call *ast.CallExpr) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	t := f.typeOf(sel.X)
	return t != nil && t.String() == "*log/slog.Logger"
}

// ends reports whether nothing runs after a call, so that the function needs it to compile.
func (f *finder) ends(call *ast.CallExpr) bool {
	id, ok := call.Fun.(*ast.Ident)
	return ok && id.Name == "panic"
}

func (f *finder) statement(s ast.Stmt) {
	switch s := s.(type) {
	case *ast.BlockStmt:
		f.block(s.List)
	case *ast.IfStmt:
		f.optional(s.Init)
		f.condition(s.Cond)
		f.block(s.Body.List)
		if s.Else != nil {
			f.statement(s.Else)
		}
	case *ast.ForStmt:
		f.optional(s.Init)
		if s.Cond != nil { // one that is always true never ends
			f.call("False", "never", s.Cond)
			f.expression(s.Cond)
		}
		f.optional(s.Post)
		f.block(s.Body.List)
	case *ast.RangeStmt:
		f.expression(s.X)
		f.block(s.Body.List)
	case *ast.SwitchStmt:
		f.optional(s.Init)
		f.switches(s)
	case *ast.TypeSwitchStmt:
		f.clauses(s.Body)
	case *ast.SelectStmt:
		f.clauses(s.Body)
	case *ast.LabeledStmt:
		f.statement(s.Stmt)
	default:
		f.simple(s)
	}
}

func (f *finder) optional(s ast.Stmt) {
	if s != nil {
		f.statement(s)
	}
}

// switches finds what is in a switch; one without a value has conditions.
func (f *finder) switches(s *ast.SwitchStmt) {
	if s.Tag != nil {
		f.expression(s.Tag)
	}
	for _, c := range s.Body.List {
		for _, e := range c.(*ast.CaseClause).List {
			if s.Tag == nil {
				f.condition(e)
			} else {
				f.expression(e)
			}
		}
	}
	f.clauses(s.Body)
}

func (f *finder) clauses(body *ast.BlockStmt) {
	for _, c := range body.List {
		switch c := c.(type) {
		case *ast.CaseClause:
			f.block(c.Body)
		case *ast.CommClause:
			f.block(c.Body)
		}
	}
}

// simple finds what is in a statement without other statements.
func (f *finder) simple(s ast.Stmt) {
	switch s := s.(type) {
	case *ast.ExprStmt:
		f.expression(s.X)
	case *ast.AssignStmt:
		for _, e := range s.Lhs {
			f.expression(e)
		}
		for _, e := range s.Rhs {
			f.value(e)
		}
	case *ast.ReturnStmt:
		f.returns(s)
	case *ast.DeferStmt:
		f.arguments(s.Call)
	case *ast.GoStmt:
		f.arguments(s.Call)
	case *ast.SendStmt:
		f.value(s.Value)
	case *ast.DeclStmt:
		f.declaration(s)
	}
}

func (f *finder) declaration(s *ast.DeclStmt) {
	d, ok := s.Decl.(*ast.GenDecl)
	if !ok || d.Tok != token.VAR {
		return
	}
	for _, spec := range d.Specs {
		for _, e := range spec.(*ast.ValueSpec).Values {
			f.value(e)
		}
	}
}

// returns has errors swallowed.
func (f *finder) returns(s *ast.ReturnStmt) {
	for i, e := range s.Results {
		if len(s.Results) == f.results.Len() && isError(f.results.At(i).Type()) && !f.pkg.TypesInfo.Types[e].IsNil() {
			f.call("Swallow", "swallow", e)
		}
		f.value(e)
	}
}

// literal finds what is in a function without a name.
func (f *finder) literal(l *ast.FuncLit) {
	outer := f.results
	f.results = f.typeOf(l).(*types.Signature).Results()
	f.block(l.Body.List)
	f.results = outer
}

// arguments finds what is in a call that is deferred or started, which has to stay one.
func (f *finder) arguments(call *ast.CallExpr) {
	if l, ok := call.Fun.(*ast.FuncLit); ok {
		f.literal(l)
	}
	if !f.isLog(call) && !slices.ContainsFunc(call.Args, func(e ast.Expr) bool { return f.pkg.TypesInfo.Types[e].IsType() }) {
		for _, e := range call.Args {
			f.value(e)
		}
	}
}
