package units

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"ibnetworkd/internal/testkit"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "write the golden parts of testdata anew")

// treeOf makes the four unit directories of an archive's files. A file of the text
// "-> TARGET" is a link; a missing final newline is written as a last line
// "\no newline".
func treeOf(t *testing.T, a *txtar.Archive) []Root {
	t.Helper()
	roots := make([]Root, len(Dirs))
	for i, d := range Dirs {
		m := fstest.MapFS{}
		for _, f := range a.Files {
			name, ok := strings.CutPrefix("/"+f.Name, d+"/")
			if !ok {
				continue
			}
			if target, link := strings.CutPrefix(string(f.Data), "-> "); link {
				m[name] = &fstest.MapFile{Data: []byte(strings.TrimSpace(target)), Mode: fs.ModeSymlink | 0o777}
				continue
			}
			m[name] = &fstest.MapFile{Data: bytes.TrimSuffix(f.Data, []byte("\\no newline\n")), Mode: 0o644}
		}
		roots[i] = Root{Path: d, FS: m}
	}
	return roots
}

// TestLoadGolden reads unit trees from testdata/load and compares problems,
// what was skipped, and the units as printed.
func TestLoadGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/load/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no test data", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			testkit.NoError(t, err)
			set := Load(treeOf(t, a))
			var problems, skipped, printed bytes.Buffer
			for _, p := range set.Problems {
				fmt.Fprintln(&problems, p)
			}
			for _, s := range set.Skipped {
				fmt.Fprintf(&skipped, "%s: %s\n", s.Path, s.Why)
			}
			for _, u := range set.Units {
				fmt.Fprintf(&printed, "== %s (%s)\n", u.Name, u.Path)
				for _, f := range u.Files[1:] {
					word := "+"
					if f.Refused {
						word = "without"
					}
					fmt.Fprintf(&printed, "== %s %s\n", word, f.Path)
				}
				printed.WriteString(u.Format())
			}
			got := map[string][]byte{"problems": problems.Bytes(), "skipped": skipped.Bytes(), "units": printed.Bytes()}
			if *update {
				var keep []txtar.File
				for _, f := range a.Files {
					if _, ok := got[f.Name]; !ok {
						keep = append(keep, f)
					}
				}
				for _, n := range []string{"problems", "skipped", "units"} {
					if len(got[n]) > 0 {
						keep = append(keep, txtar.File{Name: n, Data: got[n]})
					}
				}
				a.Files = keep
				testkit.NoError(t, os.WriteFile(file, txtar.Format(a), 0o644))
				return
			}
			want := map[string]string{}
			for _, f := range a.Files {
				want[f.Name] = string(f.Data)
			}
			for n, g := range got {
				if diff := cmp.Diff(want[n], string(g)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", n, diff)
				}
			}
		})
	}
}
