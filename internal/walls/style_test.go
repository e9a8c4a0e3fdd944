package walls

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"ibnetworkd/internal/testkit"
)

// Bounds in columns (a tab counts as one) and lines.
const (
	maxColumns  = 140
	maxFile     = 600
	maxFunction = 100
)

// longFunctions are functions of more than maxFunction lines outside of tests, as
// file:name, with the reason. A test may be one long table or one long story.
var longFunctions = map[string]string{
	"daemon/classify.go:classify":                  "one case for each refusal",
	"daemon/card/explain.go:Explain":               "one case for each operation",
	"sm/transport/transporttest/suite.go:testPeer": "one conversation",
}

// banned has the words of words.txt: those that a reader who does not know this project stumbles
// over, and those that personify code or translate literally. They are kept out of strings of
// programs, of documents and of comments.
func banned(t *testing.T) *regexp.Regexp {
	t.Helper()
	var phrases []string
	for line := range strings.Lines(string(testkit.ReadFile(t, "words.txt"))) {
		if phrase := strings.TrimSpace(line); phrase != "" && phrase[0] != '#' {
			phrases = append(phrases, strings.ReplaceAll(regexp.QuoteMeta(phrase), `\*`, `\w+`))
		}
	}
	return regexp.MustCompile(`(?i)\b(` + strings.Join(phrases, "|") + `)\b`)
}

// kernelPatches has C of the lab's kernel, which a change builds again.
const kernelPatches = "lab/build/kernel.go"

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// sources calls f with the path below the module's root and the content of each
// file that the project wrote.
func sources(t *testing.T, f func(path string, text []byte)) {
	t.Helper()
	root := os.DirFS("../..")
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if name := d.Name(); path != "." && (name[0] == '.' || name == "build" && path == "build" || name == "testdata") {
				return fs.SkipDir
			}
			return nil
		case !d.Type().IsRegular():
			return nil
		}
		text, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		if bytes.IndexByte(text, 0) < 0 && !generated.Match(text) {
			f(path, text)
		}
		return nil
	})
	testkit.NoError(t, err)
}

// TestShape keeps lines, files and functions of Go short enough to review, and lines and
// files of C. A line with a raw string literal may be longer: it cannot be broken.
func TestShape(t *testing.T) {
	functions := map[string]bool{}
	sources(t, func(path string, text []byte) {
		ext := filepath.Ext(path)
		if ext != ".go" && ext != ".c" && ext != ".h" {
			return
		}
		lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		if len(lines) > maxFile {
			t.Errorf("%s: %d lines, at most %d: split it by subject", path, len(lines), maxFile)
		}
		for i, l := range lines {
			if n := len([]rune(l)); n > maxColumns && !strings.Contains(l, "`") {
				t.Errorf("%s:%d: %d columns, at most %d", path, i+1, n, maxColumns)
			}
		}
		if ext != ".go" || strings.HasSuffix(path, "_test.go") {
			return
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, text, parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			return
		}
		for _, d := range file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			name, n := path+":"+fn.Name.Name, set.Position(fn.End()).Line-set.Position(fn.Pos()).Line+1
			if n <= maxFunction {
				continue
			}
			if functions[name] = true; longFunctions[name] == "" {
				t.Errorf("%s: %d lines, at most %d", name, n, maxFunction)
			}
		}
	})
	for name := range longFunctions {
		if !functions[name] {
			t.Errorf("%s is short enough: remove it from longFunctions", name)
		}
	}
}

// TestWords keeps banned words out of what users read, and out of comments.
func TestWords(t *testing.T) {
	banned, document := banned(t), regexp.MustCompile(`\.(md|[1-8])$|^dist/|^docs/`)
	sources(t, func(path string, text []byte) {
		switch {
		case document.MatchString(path):
			for i, l := range strings.Split(string(text), "\n") {
				if w := banned.FindString(l); w != "" {
					t.Errorf("%s:%d: %q: see docs/glossary.md for the terms", path, i+1, w)
				}
			}
		case filepath.Ext(path) == ".go":
			set := token.NewFileSet()
			file := set.AddFile(path, -1, len(text))
			var s scanner.Scanner
			s.Init(file, text, nil, scanner.ScanComments)
			for {
				pos, tok, lit := s.Scan()
				if tok == token.EOF {
					break
				}
				w := banned.FindString(lit)
				if tok == token.STRING && w != "" && !strings.HasSuffix(path, "_test.go") && path != kernelPatches {
					t.Errorf("%v: %q in a string", set.Position(pos), w)
				}
				if tok == token.COMMENT && w != "" {
					t.Errorf("%v: %q in a comment", set.Position(pos), w)
				}
			}
		}
	})
}
