package build

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ibnetworkd/internal/testkit"
)

var (
	section  = regexp.MustCompile(`(?m)^/\* ([a-z]+\.c) \*/$`)
	declared = regexp.MustCompile(`\b(swib_[a-z0-9_]+)(\(|\[|;)`)
	comment  = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)
	object   = regexp.MustCompile(`\b([a-z]+)\.o\b`)
	literal  = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
)

// mostLines is how long a file of the module may be, as a Go file.
const mostLines = 600

// The module's files are layered: each uses only what the header declares in its own
// section and in those before it, so that a file can be read without the ones above
// it.
func TestModuleLayers(t *testing.T) {
	const dir = "../swib"
	text := testkit.ReadFile(t, filepath.Join(dir, "swib.h"))
	head := string(text)
	_, head, ok := strings.Cut(head, "from the bottom up")
	if !ok {
		t.Fatal("swib.h does not say where its layers begin")
	}
	at := section.FindAllStringSubmatchIndex(head, -1)
	var layers []string
	layer := map[string]int{} // of a symbol
	for i, m := range at {
		end := len(head)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		layers = append(layers, head[m[2]:m[3]])
		for _, d := range declared.FindAllStringSubmatch(comment.ReplaceAllString(head[m[1]:end], ""), -1) {
			if _, known := layer[d[1]]; !known {
				layer[d[1]] = i
			}
		}
	}
	if len(layers) < 15 || len(layer) < 60 {
		t.Fatalf("%d layers with %d symbols were found", len(layers), len(layer))
	}
	// The list in Kbuild, which people read first, has the same order.
	var objects []string
	for l := range strings.Lines(string(testkit.ReadFile(t, filepath.Join(dir, "Kbuild")))) {
		if strings.HasPrefix(l, "swib-y") || strings.HasPrefix(l, "swib-$(CONFIG_") {
			for _, o := range object.FindAllStringSubmatch(l, -1) {
				objects = append(objects, o[1]+".c")
			}
		}
	}
	if want := append(slices.Clone(layers), "main.c"); !slices.Equal(objects, want) {
		t.Errorf("Kbuild has the order\n%v, swib.h\n%v", objects, want)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.[ch]"))
	testkit.NoError(t, err)
	for _, f := range files {
		name := filepath.Base(f)
		b := testkit.ReadFile(t, f)
		if n := strings.Count(string(b), "\n"); n > mostLines {
			t.Errorf("%s has %d lines: split it by subject (at most %d)", name, n, mostLines)
		}
		if filepath.Ext(name) == ".h" {
			continue
		}
		own := slices.Index(layers, name)
		if name == "main.c" {
			own = len(layers)
		}
		if own < 0 {
			t.Errorf("%s has no section in swib.h", name)
			continue
		}
		code := literal.ReplaceAllString(comment.ReplaceAllString(string(b), ""), `""`)
		seen := map[string]bool{}
		for _, w := range regexp.MustCompile(`\bswib_[a-z0-9_]+\b`).FindAllString(code, -1) {
			if l, known := layer[w]; known && l > own && !seen[w] {
				seen[w] = true
				t.Errorf("%s uses %s of %s, which is above it", name, w, layers[l])
			}
		}
	}
}
