package walls

import (
	"go/ast"
	"go/token"
	"testing"
)

// TestNoOffsets keeps byte offsets of MADs and of their attributes in the codec:
// elsewhere a field is read and set by its name. PortInfo and SwitchInfo do not show
// their bytes at all.
func TestNoOffsets(t *testing.T) {
	wire := map[string]bool{"MAD": true, "Data": true}
	codec := map[string]bool{module + "/sm/mad": true, module + "/sm/transport/ibsim": true, module + "/sm/transport/transporttest": true}
	literal := func(e ast.Expr) bool {
		b, ok := e.(*ast.BasicLit)
		return ok && b.Kind == token.INT && b.Value != "0"
	}
	for path, p := range list(t) {
		if !under(path, module+"/sm") || codec[path] {
			continue
		}
		fset := token.NewFileSet()
		for _, f := range parse(t, fset, p) {
			ast.Inspect(f, func(n ast.Node) bool {
				var x ast.Expr
				switch n := n.(type) {
				case *ast.IndexExpr:
					if literal(n.Index) {
						x = n.X
					}
				case *ast.SliceExpr:
					if literal(n.Low) || literal(n.High) {
						x = n.X
					}
				}
				if s, ok := x.(*ast.SelectorExpr); ok && wire[s.Sel.Name] {
					t.Errorf("%v: an offset into %s: name the field in sm/mad or sm/fabric", fset.Position(n.Pos()), s.Sel.Name)
				}
				return true
			})
		}
	}
}
