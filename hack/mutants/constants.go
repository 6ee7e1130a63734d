package main

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"strings"
)

// other is another constant of the type of a constant, by its name in this file; "" if there
// is none, or if the type is not one of this module.
func (f *finder) other(e ast.Expr) string {
	var id *ast.Ident
	prefix := ""
	switch e := e.(type) {
	case *ast.Ident:
		id = e
	case *ast.SelectorExpr:
		x, ok := e.X.(*ast.Ident)
		if !ok {
			return ""
		}
		id, prefix = e.Sel, x.Name+"."
	}
	c, ok := f.pkg.TypesInfo.Uses[id].(*types.Const)
	if !ok {
		return ""
	}
	if c.Pkg() == nil && isBool(c.Type()) && types.Identical(types.Default(f.typeOf(e)), types.Typ[types.Bool]) {
		return map[string]string{"true": "false", "false": "true"}[c.Name()]
	}
	named, ok := c.Type().(*types.Named)
	if !ok || named.Obj().Pkg() != c.Pkg() || !strings.HasPrefix(c.Pkg().Path(), modulePath) {
		return ""
	}
	if next := nextConstant(c, prefix != ""); next != "" {
		return prefix + next
	}
	return ""
}

// nextConstant is the name of the constant of its type that comes after c by value, or of the
// least one.
func nextConstant(c *types.Const, exported bool) string {
	var next, least *types.Const
	for _, name := range c.Pkg().Scope().Names() {
		o, ok := c.Pkg().Scope().Lookup(name).(*types.Const)
		if !ok || !types.Identical(o.Type(), c.Type()) || constant.Compare(o.Val(), token.EQL, c.Val()) || exported && !o.Exported() {
			continue
		}
		if least == nil || constant.Compare(o.Val(), token.LSS, least.Val()) {
			least = o
		}
		if constant.Compare(o.Val(), token.GTR, c.Val()) && (next == nil || constant.Compare(o.Val(), token.LSS, next.Val())) {
			next = o
		}
	}
	switch {
	case next != nil:
		return next.Name()
	case least != nil:
		return least.Name()
	}
	return ""
}
