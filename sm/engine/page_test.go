package engine

import (
	"os"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// The diagram in docs/architecture.md is the list of stages.
func TestPageHasStages(t *testing.T) {
	page, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, row, _ := strings.Cut(string(page), "\n walk -> election\n")
	row, _, _ = strings.Cut(row, "```")
	var drawn, are []string
	for _, m := range regexp.MustCompile(`-> (\w+)`).FindAllStringSubmatch(row, -1) {
		if m[1] != "Armed" && m[1] != "Active" { // of ports
			drawn = append(drawn, m[1])
		}
	}
	for _, s := range stages {
		name := runtime.FuncForPC(reflect.ValueOf(s).Pointer()).Name()
		are = append(are, name[strings.LastIndex(name, ".")+1:])
	}
	if !slices.Equal(drawn, are) {
		t.Errorf("docs/architecture.md draws %v, the stages are %v", drawn, are)
	}
}
