package walls

import (
	"go/ast"
	"go/token"
	"testing"
)

// TestNoClock keeps time.Now and the like out of the pure packages: now, ticks and
// randomness are inputs there, or a plan could not be replayed.
func TestNoClock(t *testing.T) {
	clock := map[string]bool{"Now": true, "Since": true, "Until": true, "Sleep": true, "After": true, "Tick": true, "NewTimer": true,
		"NewTicker": true, "AfterFunc": true}
	pkgs := list(t)
	for _, pure := range timeless {
		for path, p := range pkgs {
			if !under(path, module+"/"+pure) || p.Name == "main" {
				continue
			}
			fset := token.NewFileSet()
			for _, f := range parse(t, fset, p) {
				ast.Inspect(f, func(n ast.Node) bool {
					if s, ok := n.(*ast.SelectorExpr); ok && clock[s.Sel.Name] {
						if id, ok := s.X.(*ast.Ident); ok && id.Name == "time" {
							t.Errorf("%s: time.%s in a package without a clock", fset.Position(s.Pos()), s.Sel.Name)
						}
					}
					return true
				})
			}
		}
	}
}
