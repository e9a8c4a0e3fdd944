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
	literal  = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
)

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
	head, _, _ = strings.Cut(head, "static inline struct swib_dev *to_swib_dev(")
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
	files, err := filepath.Glob(filepath.Join(dir, "*.c"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		name := filepath.Base(f)
		own := slices.Index(layers, name)
		if name == "main.c" {
			own = len(layers)
		}
		if own < 0 {
			t.Errorf("%s has no section in swib.h", name)
			continue
		}
		b := testkit.ReadFile(t, f)
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
