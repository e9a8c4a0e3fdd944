package fabric_test

import (
	"bytes"
	"encoding/xml"
	"io"
	"strings"
	"testing"

	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/fabric/gen"
)

func TestWriteSVG(t *testing.T) {
	for name, f := range map[string]*fabric.Fabric{"pair": gen.Pair(), "ft3": gen.FatTree3(4, 2, 2), "ring": gen.Ring(4, 1), "random": gen.Random(5, 5, 5, 5), "columns": gen.FatTree2(16, 5)} {
		f = f.Clone()
		f.Nodes[0].Desc = `<evil> & "quoted"`
		var b bytes.Buffer
		if err := fabric.WriteSVG(&b, f); err != nil {
			t.Fatal(err)
		}
		s := b.String()
		if n := strings.Count(s, "<path"); n != f.Links() {
			t.Errorf("%s: %d lines for %d links", name, n, f.Links())
		}
		if n := strings.Count(s, "<rect x"); n != len(f.Nodes) {
			t.Errorf("%s: %d boxes for %d nodes", name, n, len(f.Nodes))
		}
		for d := xml.NewDecoder(&b); ; {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
}

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
	f.Fuzz(func(t *testing.T, b []byte) { fabric.ParseNames("f", b) })
}
