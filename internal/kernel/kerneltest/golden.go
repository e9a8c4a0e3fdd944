package kerneltest

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ibnetworkd/internal/kernel/nl"
)

var update = flag.Bool("update", false, "rewrite golden files")

// Bytes is what a builder has built.
func Bytes(t testing.TB, w *nl.Builder) []byte {
	t.Helper()
	b, err := w.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Golden decodes each recorded message testdata/PREFIX*.bin and compares the
// result with the JSON beside it. The messages were recorded from Linux 6.1 with
// the lab's software adapters.
func Golden[T any](t *testing.T, prefix string, decode func([]byte) (T, error)) {
	t.Helper()
	files, err := filepath.Glob("testdata/" + prefix + "*.bin")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recorded messages %s: %v", prefix, err)
	}
	for _, n := range files {
		b, err := os.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		v, err := decode(b)
		if err != nil {
			t.Errorf("%s: %v", n, err)
			continue
		}
		got, err := json.MarshalIndent(v, "", "\t")
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, '\n')
		name := strings.TrimSuffix(n, ".bin") + ".json"
		if *update {
			if err := os.WriteFile(name, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s gives\n%s\nwant\n%s", n, got, want)
		}
	}
}
