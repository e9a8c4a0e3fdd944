package walls

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ibnetworkd/internal/testkit"
)

// TestSequential: the packages that make test runs without the race detector, which
// triples their time, start no goroutine in code or test and use no package that does.
func TestSequential(t *testing.T) {
	text := testkit.ReadFile(t, "sequential.txt")
	for name := range strings.FieldsSeq(string(text)) {
		if !slices.Contains(stateless, name) {
			t.Errorf("%s is not stateless", name)
		}
		files, err := filepath.Glob(filepath.Join("../..", name, "*.go"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s: no files: %v", name, err)
		}
		for _, file := range files {
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			testkit.NoError(t, err)
			for _, imp := range f.Imports {
				p := strings.Trim(imp.Path.Value, `"`)
				for _, no := range []string{"sync", "testing/synctest", module + "/sm/engine", module + "/sm/route", module + "/lab/simfabric",
					module + "/lab/scenario"} {
					if under(p, no) {
						t.Errorf("%s imports %s", file, p)
					}
				}
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if _, ok := n.(*ast.GoStmt); ok {
					t.Errorf("%s starts a goroutine", file)
				}
				if s, ok := n.(*ast.SelectorExpr); ok && (s.Sel.Name == "Parallel" || s.Sel.Name == "RunParallel") {
					t.Errorf("%s runs tests in parallel", file)
				}
				return true
			})
		}
	}
}
