package fabric_test

import (
	"bytes"
	"strings"
	"testing"

	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
)

func TestNames(t *testing.T) {
	f := gen.Pair()
	m, err := fabric.ParseNames("names", []byte("# map\n0x0002c90000100000 \"left host\" # comment\n\n0x1\t\"nobody\"\n"))
	if err != nil || m.Apply(f).Nodes[0].Desc != "left host" || f.Nodes[0].Desc != "H-00001" {
		t.Errorf("%v %q", err, m.Apply(f).Nodes[0].Desc)
	}
	_, err = fabric.ParseNames("names", []byte("0x5 \"a\"\nzz \"b\"\n0x6 c\n"))
	if err == nil || !strings.Contains(err.Error(), "names:2:1:") || !strings.Contains(err.Error(), "names:3:5: want a name") {
		t.Error(err)
	}
}

func FuzzParseNames(f *testing.F) {
	f.Add([]byte("0x0002c90000100000 \"left host\" # comment\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		names, _ := fabric.ParseNames("f", b)
		if lines := bytes.Count(b, []byte("\n")) + 1; len(names) > lines {
			t.Errorf("%d names of %d lines", len(names), lines)
		}
		for g, name := range names {
			if name == "" || len(name) > 64 {
				t.Errorf("%v: %q", g, name)
			}
		}
	})
}
