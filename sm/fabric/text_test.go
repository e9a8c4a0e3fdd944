package fabric_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
)

func TestTextRoundTrip(t *testing.T) {
	for name, f := range map[string]*fabric.Fabric{
		"pair": gen.Pair(), "star": gen.Star(2, 36), "ft2": gen.FatTree2(8, 4), "ft3": gen.FatTree3(4, 2, 2),
		"ring": gen.Ring(4, 2), "torus": gen.Torus([]int{3, 3}, 1), "random": gen.Random(7, 6, 8, 9),
	} {
		t.Run(name, func(t *testing.T) {
			text := gen.Text(f)
			g, err := fabric.ReadText("a", strings.NewReader(text))
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			if d := cmp.Diff(text, gen.Text(g)); d != "" {
				t.Fatal(d)
			}
			if f.Links() != g.Links() || len(f.EndPorts) != len(g.EndPorts) {
				t.Fatalf("links %d -> %d, end ports %d -> %d", f.Links(), g.Links(), len(f.EndPorts), len(g.EndPorts))
			}
		})
	}
}

func TestReadText(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"OK ibsim", "Switch 8 \"Switch1\"\n[1] \"Hca1\"[1]\n\nHca 2 \"Hca1\" # \"my host\"\n[1] \"Switch1\"[1]\n", ""},
		{"OK one side only", "Switch 8 \"s\"\n[1] \"h\"[2]\nHca 2 \"h\"\n", ""},
		{"bad empty", "# nothing\n", "f:1:1: no node record"},
		{"bad word", "Swich 8 \"s\"\n", `f:1:1: unknown word "Swich": want Switch, Hca, Ca, Rt, [PORT] or NAME=VALUE`},
		{"bad ports", "Switch 300 \"s\"\n", "f:1:8: number of ports: want 1 to 254"},
		{"bad id", "Switch 8 s\n", "f:1:10: want the node's id in double quotes"},
		{"bad twice", "Switch 8 \"s\"\nSwitch 8 \"s\"\n", `f:2:10: node id "s" appears twice`},
		{"bad guid", "switchguid=zz\nSwitch 8 \"s\"\n", `f:1:12: switchguid: "zz" is not a hexadecimal number`},
		{"bad dup guid", "switchguid=0x5\nSwitch 8 \"s\"\nswitchguid=0x5\nSwitch 8 \"t\"\n",
			`f:4:10: node GUID 0x0000000000000005 of "t" is taken by "s"`},
		{"bad port", "Switch 8 \"s\"\n[9] \"t\"[1]\n", `f:2:1: node "s" has 8 ports, no port 9`},
		{"bad remote", "Switch 8 \"s\"\n[1] \"t\"[1]\n", `f:2:5: node "t" has no record`},
		{"bad remote port", "Switch 8 \"s\"\n[1] \"t\"[3]\nHca 2 \"t\"\n", `f:2:5: node "t" has no port 3`},
		{"bad order", "[1] \"t\"[3]\n", `f:1:1: port line before any node record`},
		{"bad disagree", "Switch 8 \"s\"\n[1] \"t\"[1]\n[2] \"t\"[1]\nHca 2 \"t\"\n", "f:3:5: port t[1] already has a link"},
		{"bad self", "Switch 8 \"s\"\n[1] \"s\"[1]\n", "f:2:5: port 1 is linked to itself"},
		{"bad long", "# " + strings.Repeat("x", 5000), "f:1:1: line is longer than 4096 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, err := fabric.ReadText("f", strings.NewReader(tt.in))
			got := ""
			if err != nil {
				got = err.Error()
			} else if f.Links() == 0 {
				t.Error("no links")
			}
			if got != tt.want {
				t.Errorf("got %q\nwant %q", got, tt.want)
			}
		})
	}
}

// A port whose line gives the link is distinguished from one that has the default.
func TestReadTextLinkNamed(t *testing.T) {
	f, err := fabric.ReadText("f", strings.NewReader("Switch 8 \"s\"\n[1] \"h\"[1] # \"h\" lid 0 4xSDR\nHca 2 \"h\"\n[1] \"s\"[1] # "+
		"lid 0 lmc 0 \"4xEDR\" lid 0\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range f.Ports {
		if want := f.Nodes[p.Node].Type == ib.NodeSwitch && p.Num == 1; p.LinkNamed != want {
			t.Errorf("port %d of %v: named %v", p.Num, f.Nodes[p.Node].GUID, p.LinkNamed)
		}
	}
}

// A word that only begins as a link does leaves the port as it is.
func TestReadTextNoLink(t *testing.T) {
	read := func(word string) fabric.PortInfo {
		f, err := fabric.ReadText("f", strings.NewReader("Switch 8 \"s\"\n[1] \"h\"[1] # \"h\" lid 0"+word+
			"\nHca 2 \"h\"\n[1] \"s\"[1] # lid 0 lmc 0 \"s\" lid 0\n"))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range f.Ports {
			if f.Nodes[p.Node].Type == ib.NodeSwitch && p.Num == 1 {
				return p.Info
			}
		}
		t.Fatal("no port 1 of the switch")
		return fabric.PortInfo{}
	}
	if got, want := read(" 12xFOO"), read(""); got != want {
		t.Errorf("12xFOO: %s%s, want %s%s", got.WidthName(), got.SpeedName(), want.WidthName(), want.SpeedName())
	}
}

func TestLookups(t *testing.T) {
	f := gen.FatTree2(8, 4)
	for i := range f.Nodes {
		if f.NodeByGUID(f.Nodes[i].GUID) != int32(i) {
			t.Fatal("NodeByGUID")
		}
	}
	for _, p := range f.EndPorts {
		if f.EndPortByGUID(f.Ports[p].GUID) != p {
			t.Fatal("EndPortByGUID")
		}
		if sw, _ := f.SwitchOf(p); sw == fabric.None {
			t.Fatal("SwitchOf")
		}
	}
	if f.EndPortByGUID(1) != fabric.None || f.NodeByGUID(1) != fabric.None {
		t.Fatal("found what is not there")
	}
	c := f.Clone()
	c.Ports[f.EndPorts[0]].LID = 5
	if f.Ports[f.EndPorts[0]].LID == 5 || c.LIDs()[5] != f.EndPorts[0] {
		t.Fatal("Clone or LIDs")
	}
	if got := f.Nodes[0].Type; got != ib.NodeCA {
		t.Fatal(got)
	}
}

func FuzzReadText(f *testing.F) {
	f.Add([]byte("Switch 8 \"Switch1\"\n[1] \"Hca1\"[1]\n\nHca 2 \"Hca1\" # \"my host\"\n[1] \"Switch1\"[1]\n"))
	f.Add([]byte("caguid=0x1\nCa 1 \"H-0000000000000001\" # \"x\"\n[1](2) \"S-1\"[1] # lid 1 lmc 0 \"y\" lid 2 4xEDR\n"))
	if b, err := os.ReadFile("testdata/ibnetdiscover.txt"); err == nil {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		fab, err := fabric.ReadText("f", bytes.NewReader(in))
		if err != nil {
			return
		}
		text := gen.Text(fab)
		g, err := fabric.ReadText("a", strings.NewReader(text))
		if err != nil {
			t.Fatalf("cannot read back what was written: %v\n%s", err, text)
		}
		if g.Links() != fab.Links() {
			t.Fatalf("links %d -> %d", fab.Links(), g.Links())
		}
	})
}
