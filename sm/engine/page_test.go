package engine

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"ibnetworkd/internal/testkit"
)

// The diagram in docs/architecture.md is the list of stages.
func TestPageHasStages(t *testing.T) {
	page, err := os.ReadFile("../../docs/architecture.md")
	testkit.NoError(t, err)
	_, row, _ := strings.Cut(string(page), "\n walk -> election\n")
	row, _, _ = strings.Cut(row, "```")
	var drawn, are []string
	for _, m := range regexp.MustCompile(`-> (\w+)`).FindAllStringSubmatch(row, -1) {
		if m[1] != "Armed" && m[1] != "Active" { // of ports
			drawn = append(drawn, m[1])
		}
	}
	for _, s := range stages {
		are = append(are, nameOf(s))
	}
	if !slices.Equal(drawn, are) {
		t.Errorf("docs/architecture.md draws %v, the stages are %v", drawn, are)
	}
}

func nameOf(f func(*sweep, context.Context) error) string {
	name := runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name()
	return name[strings.LastIndex(name, ".")+1:]
}

// A stage is read at one look.
func TestStagesAreShort(t *testing.T) {
	const most = 60
	files, err := filepath.Glob("*.go")
	testkit.NoError(t, err)
	lines, fset := map[string]int{}, token.NewFileSet()
	for _, name := range files {
		file, err := parser.ParseFile(fset, name, nil, 0)
		testkit.NoError(t, err)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
				lines[f.Name.Name] = fset.Position(f.End()).Line - fset.Position(f.Pos()).Line + 1
			}
		}
	}
	for _, s := range stages {
		if name := nameOf(s); lines[name] == 0 || lines[name] > most {
			t.Errorf("%s has %d lines, want 1 to %d", name, lines[name], most)
		}
	}
}
