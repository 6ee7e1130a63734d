package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
)

// condition has a condition that decides what is done next be always and never true.
func (f *finder) condition(e ast.Expr) {
	if f.isConstant(e) || !isBool(f.typeOf(e)) {
		f.expression(e)
		return
	}
	f.call("True", "always", e)
	f.call("False", "never", e)
	f.expression(e)
}

// value finds the mutants of an expression of which the value is used: a call for an error is
// not made, and a condition decides later.
func (f *finder) value(e ast.Expr) {
	call, isCall := ast.Unparen(e).(*ast.CallExpr)
	switch {
	case isCall && isError(f.typeOf(e)) && !f.makesError(call):
		f.wrap(e, fmt.Sprintf("%s.Call(%d, func() error { return ", pointPackage, f.add("without", e)), " })")
	case isBool(f.typeOf(e)) && f.isCondition(e):
		f.condition(e)
		return
	}
	f.expression(e)
}

// makesError reports whether a call only makes or wraps an error: swallowing is its mutant.
func (f *finder) makesError(call *ast.CallExpr) bool {
	for _, a := range call.Args {
		if isError(f.typeOf(a)) {
			return true
		}
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	return ok && (sel.Sel.Name == "Errorf" || sel.Sel.Name == "New" || sel.Sel.Name == "Err")
}

// isCondition reports whether an expression computes a truth value, and does not just name one.
func (f *finder) isCondition(e ast.Expr) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.BinaryExpr, *ast.CallExpr:
		return true
	case *ast.UnaryExpr:
		return e.Op == token.NOT
	}
	return false
}

// expression finds the mutants inside of an expression.
func (f *finder) expression(e ast.Expr) {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		f.binary(e)
	case *ast.ParenExpr:
		f.expression(e.X)
	case *ast.UnaryExpr:
		if e.Op != token.AND { // the address of a value
			f.expression(e.X)
		} else if l, ok := e.X.(*ast.CompositeLit); ok {
			f.expression(l)
		}
	case *ast.StarExpr:
		f.expression(e.X)
	case *ast.CallExpr:
		f.expression(e.Fun)
		f.arguments(e)
	case *ast.FuncLit:
		f.literal(e)
	case *ast.CompositeLit:
		for _, element := range e.Elts {
			f.element(element)
		}
	case *ast.IndexExpr:
		f.expression(e.X)
	case *ast.SelectorExpr:
		f.constant(e)
		if f.pkg.TypesInfo.Selections[e] != nil {
			f.expression(e.X)
		}
	case *ast.Ident:
		f.constant(e)
	}
}

func (f *finder) element(e ast.Expr) {
	if kv, ok := e.(*ast.KeyValueExpr); ok {
		e = kv.Value
	}
	f.value(e)
}

// constant has another one of its type taken.
func (f *finder) constant(e ast.Expr) {
	if other := f.other(e); other != "" {
		f.wrap(e, fmt.Sprintf("%s.Exchange(%d, ", pointPackage, f.add("not", e)), ", "+other+")")
	}
}

// binary has one side of && and || left out, and comparisons moved by one.
func (f *finder) binary(e *ast.BinaryExpr) {
	if f.isConstant(e) {
		return
	}
	comparisons := map[token.Token]string{token.LSS: "Less", token.LEQ: "LessOrEqual", token.GTR: "Greater", token.GEQ: "GreaterOrEqual"}
	switch {
	case e.Op == token.LAND:
		f.call("True", "without", e.X)
		f.call("True", "without", e.Y)
	case e.Op == token.LOR:
		f.call("False", "without", e.X)
		f.call("False", "without", e.Y)
	case comparisons[e.Op] != "" && !f.mixed(e):
		f.call(comparisons[e.Op], "by one", e)
		f.replace(e.OpPos, e.Op.String(), ",")
	}
	f.expression(e.X)
	f.expression(e.Y)
}

// mixed reports whether the sides of a comparison have two types: one is a constant that is
// converted.
func (f *finder) mixed(e *ast.BinaryExpr) bool {
	return !types.Identical(f.typeOf(e.X), f.typeOf(e.Y))
}
