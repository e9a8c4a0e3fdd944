package importer

import (
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"ibnetworkd/units"
)

var update = flag.Bool("update", false, "write what is imported into the golden files")

// Each golden file holds sources, then the units and the rest as "want/...".
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d golden files, %v", len(files), err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(f)
			if err != nil {
				t.Fatal(err)
			}
			var in []Source
			var want []txtar.File
			for _, x := range ar.Files {
				if strings.HasPrefix(x.Name, "want/") {
					want = append(want, x)
				} else {
					in = append(in, Source{Path: "/" + x.Name, Text: string(x.Data)})
				}
			}
			r := Import(in)
			var got []txtar.File
			for _, u := range r.Units {
				got = append(got, txtar.File{Name: "want/" + u.Name, Data: []byte(u.Text)})
				if _, problems := units.VerifyFile(u.Name, []byte(u.Text)); len(problems) > 0 {
					t.Errorf("%s has problems: %v\n%s", u.Name, problems, u.Text)
				}
			}
			var rest strings.Builder
			for _, l := range r.Left {
				fmt.Fprintln(&rest, l)
			}
			for _, n := range r.Notes {
				fmt.Fprintln(&rest, "note:", n)
			}
			got = append(got, txtar.File{Name: "want/rest", Data: []byte(rest.String())})
			if *update {
				ar.Files = nil
				for _, s := range in {
					ar.Files = append(ar.Files, txtar.File{Name: strings.TrimPrefix(s.Path, "/"), Data: []byte(s.Text)})
				}
				ar.Files = append(ar.Files, got...)
				if err := writeFile(f, txtar.Format(ar)); err != nil {
					t.Fatal(err)
				}
				return
			}
			if d := cmp.Diff(want, got, cmp.Transformer("text", func(b []byte) string { return string(b) })); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
		})
	}
}

// Whatever the bytes, the import ends, and what it makes is free of errors.
func FuzzImport(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.txtar")
	for _, p := range files {
		if ar, err := txtar.ParseFile(p); err == nil {
			for _, x := range ar.Files {
				if !strings.HasPrefix(x.Name, "want/") {
					f.Add("/"+x.Name, string(x.Data))
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, path, text string) {
		if len(text) > 1<<16 {
			return
		}
		for _, u := range Import([]Source{{path, text}}).Units {
			if strings.ContainsAny(u.Name, "/\x00") {
				t.Fatalf("unit name %q", u.Name)
			}
			_, problems := units.VerifyFile(u.Name, []byte(u.Text))
			for _, p := range problems {
				if p.Severity == units.Error {
					t.Fatalf("%v\n%s", p, u.Text)
				}
			}
		}
	})
}
