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

// stateless are the packages that keep nothing between two calls: what they know
// is in their arguments. Each is the package alone, with those below it only where
// they are listed too.
var stateless = []string{
	"ib", "ib/partition", "units", "link", "link/arp", "link/cardstate", "link/dhcp", "link/dhcp6", "ipoib", "roce", "smctl",
	"daemon/plan", "sm/fabric", "sm/mad", "sm/discover", "sm/elect", "sm/lid", "sm/route", "sm/picture", "sm/mcast", "sm/program", "sm/pkey",
	"sm/sa", "sm/qos", "sm/qos/policy", "sm/explain", "sm/dump", "sm/guidfile",
	"cmd/ibnetctl/diagnose", "cmd/ibnetctl/importer", "cmd/ibnetctl/hosts",
}

// shared are the package variables that change, with the reason.
var shared = map[string]string{
	"lab.programs":               "a test process builds each program once",
	"lab.recorder":               "a guest has one; it begins before the test does",
	"lab/smbench.rigs":           "numbers of sockets differ in a process",
	"sm/transport/ibsim.sockets": "numbers of sockets differ in a process",
}

// TestNoState keeps package sync out of the pure packages, and package variables that
// change out of all, also those that only tests change: a plan that depends on the
// call before it could not be replayed. What parts share is built by main and handed on.
func TestNoState(t *testing.T) {
	pkgs := list(t)
	for _, name := range stateless {
		if _, ok := pkgs[module+"/"+name]; !ok {
			t.Errorf("no package %s", name)
		}
	}
	for path, p := range pkgs {
		name, ok := strings.CutPrefix(path, module+"/")
		if !ok {
			continue
		}
		if slices.Contains(stateless, name) {
			for _, imp := range p.Imports {
				if under(imp, "sync") {
					t.Errorf("%s imports %s", name, imp)
				}
			}
		}
		fset := token.NewFileSet()
		vars := map[string]bool{}
		files := parse(t, fset, p)
		for _, f := range files {
			for _, d := range f.Decls {
				g, ok := d.(*ast.GenDecl)
				if !ok || g.Tok != token.VAR {
					continue
				}
				for _, s := range g.Specs {
					v := s.(*ast.ValueSpec)
					for _, id := range v.Names {
						if shared[name+"."+id.Name] != "" {
							continue
						}
						if vars[id.Name] = id.Name != "_"; len(v.Values) == 0 && !embedded(g) {
							t.Errorf("%s: %s has no value, so something sets it", fset.Position(id.Pos()), id.Name)
						}
					}
				}
			}
		}
		tests, err := filepath.Glob(filepath.Join(p.Dir, "*_test.go"))
		testkit.NoError(t, err)
		for _, name := range tests {
			f, err := parser.ParseFile(fset, name, nil, 0)
			testkit.NoError(t, err)
			files = append(files, f)
		}
		for _, f := range files {
			for _, at := range changes(f, vars) {
				t.Errorf("%s: changes a package variable", fset.Position(at))
			}
		}
	}
}

// TestNoInit keeps init functions out of the module: what a program consists of is
// built by its main. The lab's programs are one binary, which one init function makes
// the one that it was called as.
func TestNoInit(t *testing.T) {
	const guest = "/lab/guest.go"
	for path, p := range list(t) {
		if p.Standard || !under(path, module) {
			continue
		}
		fset := token.NewFileSet()
		for _, f := range parse(t, fset, p) {
			for _, d := range f.Decls {
				x, ok := d.(*ast.FuncDecl)
				if !ok || x.Recv != nil || x.Name.Name != "init" {
					continue
				}
				if at := fset.Position(x.Pos()); !strings.HasSuffix(at.Filename, guest) {
					t.Errorf("%s: func init", at)
				}
			}
		}
	}
}

func parse(t *testing.T, fset *token.FileSet, p pkg) (files []*ast.File) {
	t.Helper()
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.ParseComments)
		testkit.NoError(t, err)
		files = append(files, f)
	}
	return files
}

// embedded reports a file's text that the linker puts there.
func embedded(g *ast.GenDecl) bool {
	return g.Doc != nil && slices.ContainsFunc(g.Doc.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:embed ") })
}

// changes are the places of a file where one of the package's variables is
// assigned to, as a whole or in part, or handed out by its address.
func changes(f *ast.File, vars map[string]bool) (out []token.Pos) {
	note := func(x ast.Expr) {
		for {
			switch y := x.(type) {
			case *ast.IndexExpr:
				x = y.X
			case *ast.SelectorExpr:
				x = y.X
			case *ast.StarExpr:
				x = y.X
			case *ast.ParenExpr:
				x = y.X
			case *ast.Ident:
				if vars[y.Name] && (y.Obj == nil || f.Scope.Objects[y.Name] == y.Obj) {
					out = append(out, y.Pos())
				}
				return
			default:
				return
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.AssignStmt:
			for _, l := range x.Lhs {
				if x.Tok != token.DEFINE {
					note(l)
				}
			}
		case *ast.IncDecStmt:
			note(x.X)
		case *ast.UnaryExpr:
			if id, ok := x.X.(*ast.Ident); ok && x.Op == token.AND {
				note(id)
			}
		case *ast.CallExpr:
			if id, ok := x.Fun.(*ast.Ident); ok && len(x.Args) > 0 && (id.Name == "clear" || id.Name == "delete") {
				note(x.Args[0])
			}
		}
		return true
	})
	return out
}
