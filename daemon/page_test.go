package daemon

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ibnetworkd/internal/testkit"
)

// The diagram in docs/architecture.md has the methods that a cycle calls, in their order.
func TestPageHasCycle(t *testing.T) {
	page, err := os.ReadFile("../docs/architecture.md")
	testkit.NoError(t, err)
	_, diagram, _ := strings.Cut(string(page), "```\n udev")
	diagram, _, _ = strings.Cut(diagram, "```")
	var drawn []string
	for _, m := range regexp.MustCompile(`(?m)(?:\+- |\|     )(\w+)`).FindAllStringSubmatch(diagram, -1) {
		drawn = append(drawn, m[1])
	}
	file, err := parser.ParseFile(token.NewFileSet(), "cycle.go", nil, 0)
	testkit.NoError(t, err)
	methods := map[string]bool{}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil && f.Name.Name != "timed" { // which runs what it is given
			methods[f.Name.Name] = true
		}
	}
	calls := func(name string) (out []string) {
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Name.Name != name {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if c, ok := n.(*ast.CallExpr); ok {
					if s, ok := c.Fun.(*ast.SelectorExpr); ok && (methods[s.Sel.Name] || slices.Contains(drawn, s.Sel.Name)) {
						out = append(out, s.Sel.Name)
					}
				}
				return true
			})
		}
		return out
	}
	run := calls("run")
	at := slices.Index(run, "round")
	if at < 0 {
		t.Fatalf("run calls %v", run)
	}
	if are := slices.Insert(run, at+1, calls("round")...); !slices.Equal(drawn, are) {
		t.Errorf("docs/architecture.md draws %v, a cycle is %v", drawn, are)
	}
}
