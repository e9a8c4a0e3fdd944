package walls

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// dials are the functions of godbus and go-systemd that join a bus.
var dials = regexp.MustCompile(`^(Connect|Dial|NewConn|SystemBus|SessionBus|New(With|System|User)?(Context|Connection)?$|NewSystemd)`)

// Every bus is joined by internal/busconn, without descriptor passing: one message
// with an array of descriptors ends a program that godbus joins by itself.
func TestOneWayToTheBus(t *testing.T) {
	const here = module + "/internal/busconn"
	found := false
	for path, p := range list(t) {
		if p.Standard || !under(path, module) || under(path, here+"/bustest") {
			continue
		}
		if !slices.ContainsFunc(p.Imports, func(i string) bool {
			return strings.HasPrefix(i, "github.com/godbus/dbus") || strings.HasPrefix(i, "github.com/coreos/go-systemd")
		}) {
			continue
		}
		set := token.NewFileSet()
		for _, file := range parse(t, set, p) {
			buses := map[string]bool{}
			for _, i := range file.Imports {
				imp, _ := strconv.Unquote(i.Path.Value)
				if strings.HasPrefix(imp, "github.com/godbus/dbus") || strings.HasPrefix(imp, "github.com/coreos/go-systemd") &&
					!strings.HasSuffix(imp, "/daemon") {
					local := "dbus"
					if i.Name != nil {
						local = i.Name.Name
					}
					buses[local] = true
				}
			}
			ast.Inspect(file, func(n ast.Node) bool {
				s, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if x, ok := s.X.(*ast.Ident); ok && buses[x.Name] && dials.MatchString(s.Sel.Name) {
					if path == here {
						found = true
					} else {
						t.Errorf("%v: %s.%s joins a bus: use %s", set.Position(s.Pos()), x.Name, s.Sel.Name, here)
					}
				}
				return true
			})
		}
	}
	if !found {
		t.Error("the place where the bus is joined was not found")
	}
}
