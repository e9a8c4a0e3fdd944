package fabric_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
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
	testkit.NoError(t, err)
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
		testkit.NoError(t, err)
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

// Texts as sites have them: a mark at the start, the command that was typed, warnings,
// the headings of ibnetdiscover --grouping, numbers of chassis ports, descriptions with
// quotes and with #, no LID, a system's GUID in the place of the switch's.
func TestReadTextOfSites(t *testing.T) {
	in := "\ufeff[root@node01 ~]# ibnetdiscover\r\n" +
		"src/query_smp.c:195; umad (DR path slid 0; dlid 0; 0,1,1,31 Attr 0x11:0) bad status 110; Connection timed out\r\n" +
		"ibwarn: [12] mad_rpc_open_port: can't open UMAD port ((null):0)\r\n#\r\n# Topology file: generated on Mon Jul 25 11:30:26 2016\r\n" +
		"\r\nChassis 1 (guid 0x8f10400411a09)\r\n\r\n# Spine Nodes\r\n" +
		"switchguid=0xb8cef603008fbe36(b8cef6030019c882)\t# spine 1 Chip 1\r\n" +
		"Switch\t41 \"S-b8cef6030019c882\"\t\t# \"MF0;the \"old\" one # 1:MCS8500/L01/U1\" base port 0 lid 7 lmc 0\r\n" +
		"[1][ext 3]\t\"S-b8cef6030019c7c2\"[21][ext 4]\t\t# \"a \"b\" lid 9 4xHDR\r\n" +
		"[2]\t\"H-0002c90300000001\"[1](2c90300000002) \t\t# \"node \"x HCA-1\" lid 4 4xEDR\r\n" +
		"\r\nNon-Chassis Nodes\r\nswitchguid=0xb8cef603008fbe36(b8cef6030019c7c2)\r\n" +
		"Switch\t41 \"S-b8cef6030019c7c2\"\t\t# \"a \"b\" base port 0 lid  lmc 0\r\n" +
		"\r\ncaguid=0x2c90300000001\r\n" +
		"Ca\t2 \"H-0002c90300000001\"\t\t# \"node \"x HCA-1\"\r\n" +
		"[1](2c90300000002) \t\"S-b8cef6030019c882\"[2]\t\t# lid 4 lmc 1 \"MF0;the \"old\" one # 1:MCS8500/L01/U1\" lid 7 4xEDR\r\n"
	f, err := fabric.ReadText("f", strings.NewReader(in))
	testkit.NoError(t, err)
	var got []string
	for i := range f.Nodes {
		got = append(got, f.Nodes[i].GUID.String()+" "+f.Nodes[i].Desc)
	}
	want := []string{"0x0002c90300000001 node \"x HCA-1", "0xb8cef6030019c7c2 a \"b",
		"0xb8cef6030019c882 MF0;the \"old\" one # 1:MCS8500/L01/U1"}
	testkit.Diff(t, "", want, got)
	for _, p := range f.Ports {
		switch n := &f.Nodes[p.Node]; {
		case n.Type == ib.NodeCA && p.Num == 1 && (p.LID != 4 || p.LMC != 1 || p.Info.SpeedName() != "EDR"):
			t.Errorf("host: LID %d, LMC %d, %s", p.LID, p.LMC, p.Info.SpeedName())
		case n.GUID == 0xb8cef6030019c882 && p.Num == 1 && p.Info.SpeedName() != "HDR":
			t.Errorf("port 1 of the spine: %s", p.Info.SpeedName())
		case n.GUID == 0xb8cef6030019c882 && p.Num == 0 && p.LID != 7:
			t.Errorf("LID of the spine: %d", p.LID)
		}
	}
	if f.Links() != 2 {
		t.Errorf("%d links", f.Links())
	}
}

// A link that is faster than ibnetdiscover knows is taken for one of the fastest that it
// names, not for a slow one.
func TestReadTextNewerSpeed(t *testing.T) {
	f, err := fabric.ReadText("f", strings.NewReader("Switch 8 \"s\"\n[1] \"h\"[1] # \"h\" lid 0 4x???\n[2] \"i\"[1] # \"i\" lid 0 4xEDR\n"+
		"[3] \"j\"[1] # \"j\" lid 0 4xQDR\nHca 2 \"h\"\nHca 2 \"i\"\nHca 2 \"j\"\n"))
	testkit.NoError(t, err)
	for _, p := range f.Ports {
		if f.Nodes[p.Node].Type != ib.NodeSwitch || p.Num < 1 || p.Num > 3 {
			continue
		}
		want := [...]string{1: "4xEDR", 2: "4xEDR", 3: "4xQDR"}[p.Num]
		if got := p.Info.WidthName() + p.Info.SpeedName(); got != want || p.LinkNamed != (p.Num > 1) {
			t.Errorf("port %d: %s, named %v, want %s", p.Num, got, p.LinkNamed, want)
		}
	}
}

// What another tool writes is refused in two lines, not in twenty.
func TestReadTextOfAnotherTool(t *testing.T) {
	_, err := fabric.ReadText("f", strings.NewReader("CA: node01 mlx5_0:\n      0x1      4    1[  ] ==( 4X 25.78125 Gbps Active)==>\n"+
		"Switch: 0x2 sw01:\n"))
	want := "f:1:1: unknown word \"CA:\": want Switch, Hca, Ca, Rt, [PORT] or NAME=VALUE\n" +
		"f: no node record: want the output of ibnetdiscover (ibdiagnet writes it to ibdiagnet2.ibnetdiscover)"
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
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
