package units

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"ibnetworkd/internal/testkit"
)

func TestManPageIsCurrent(t *testing.T) {
	schema := Schema()
	got := testkit.ReadFile(t, "../docs/man/ibnetwork.5")
	if !bytes.Equal(got, ManPage()) {
		t.Error("docs/man/ibnetwork.5 is not what the schema table says: go generate ./units")
	}
	for i := range schema {
		for k := range schema[i].Keys {
			if !strings.Contains(string(got), roff(schema[i].Keys[k].Doc)) {
				t.Errorf("[%s] %s= is not in the page", schema[i].Name, schema[i].Keys[k].Name)
			}
		}
	}
}

// Every example is a unit without a single problem.
func TestExampleUnits(t *testing.T) {
	files, err := filepath.Glob("../docs/examples/*" + Suffix)
	if err != nil || len(files) < 5 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	for _, f := range files {
		text := testkit.ReadFile(t, f)
		u, problems := VerifyFile(filepath.Base(f), text)
		if u == nil || len(problems) > 0 {
			t.Errorf("%s: %v", f, problems)
		}
	}
}
