package walls

import (
	"go/ast"
	"go/token"
	"reflect"
	"testing"

	"ibnetworkd/link"
	"ibnetworkd/roce"
)

// TestOps: the lists of operations have every type that embeds a target, and
// each prints a command of its own, not only what it is about.
func TestOps(t *testing.T) {
	pkgs := list(t)
	for name, ops := range map[string][]link.Op{"link": link.Ops(), "roce": roce.Ops()} {
		listed := map[string]bool{}
		for _, op := range ops {
			listed[reflect.TypeOf(op).Name()] = true
		}
		p := pkgs[module+"/"+name]
		printing := map[string]bool{}
		declared := map[string]bool{}
		for _, f := range parse(t, token.NewFileSet(), p) {
			ast.Inspect(f, func(n ast.Node) bool {
				switch x := n.(type) {
				case *ast.TypeSpec:
					if s, ok := x.Type.(*ast.StructType); ok && embedsTarget(s) {
						declared[x.Name.Name] = true
					}
				case *ast.FuncDecl:
					if x.Recv != nil && x.Name.Name == "String" {
						if id, ok := x.Recv.List[0].Type.(*ast.Ident); ok {
							printing[id.Name] = true
						}
					}
				}
				return true
			})
		}
		for op := range declared {
			if !listed[op] {
				t.Errorf("%s.%s is missing in %s.Ops", name, op, name)
			}
			if !printing[op] {
				t.Errorf("%s.%s has no method String", name, op)
			}
		}
		if len(declared) != len(listed) {
			t.Errorf("%s has %d operations, %s.Ops lists %d types", name, len(declared), name, len(listed))
		}
	}
}

func embedsTarget(s *ast.StructType) bool {
	for _, f := range s.Fields.List {
		if len(f.Names) > 0 {
			continue
		}
		x := f.Type
		if sel, ok := x.(*ast.SelectorExpr); ok {
			x = sel.Sel
		}
		if id, ok := x.(*ast.Ident); ok && id.Name == "On" {
			return true
		}
	}
	return false
}
