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
	for name, f := range map[string]*fabric.Fabric{"pair": gen.Pair(), "ft3": gen.FatTree3(4, 2, 2), "ring": gen.Ring(4, 1), "random": gen.Random(5, 5, 5, 5)} {
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
