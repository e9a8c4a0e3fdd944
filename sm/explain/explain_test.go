package explain

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/ib/partition"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/route"
)

func compute(t *testing.T, f *fabric.Fabric, opt Options) *Routes {
	t.Helper()
	if len(opt.Partitions.Partitions) == 0 {
		opt.Partitions = partition.Default()
	}
	r, err := Compute(f, opt, nil)
	testkit.NoError(t, err)
	return r
}

// path is that between two named nodes.
func path(t *testing.T, r *Routes, from, to string) Path {
	t.Helper()
	a, alid, err := EndPort(r.Fabric, from)
	testkit.NoError(t, err)
	b, blid, err := EndPort(r.Fabric, to)
	testkit.NoError(t, err)
	return r.Path(a, alid, b, blid, r.Level(a, b))
}

// Of every fabric, every pair of hosts has a path of connected links both ways, and
// the port of each switch is among those that the engine allows.
func TestPaths(t *testing.T) {
	for name, f := range map[string]*fabric.Fabric{
		"pair": gen.Pair(), "star": gen.Star(4, 8), "tree": gen.FatTree2(8, 4), "tree of three levels": gen.FatTree3(4, 4, 2),
		"torus": gen.Torus([]int{5, 5}, 1), "ring": gen.Ring(6, 1), "random": gen.Random(1, 12, 8, 2), "dragonfly": gen.DragonFly(4, 3, 1),
	} {
		for _, qos := range []bool{false, true} {
			r := compute(t, f, Options{QoS: qos})
			var hosts []string
			for _, e := range r.Fabric.EndPorts {
				hosts = append(hosts, r.Fabric.PortName(e))
			}
			for _, a := range hosts[:min(len(hosts), 8)] {
				for _, b := range hosts {
					if a == b {
						continue
					}
					p := path(t, r, a, b)
					if p.Broken != "" {
						t.Fatalf("%s, qos %v: %s to %s: %s", name, qos, a, b, p.Broken)
					}
					at := p.From
					for i, h := range p.Hops {
						if r.Fabric.Ports[h.Out].Peer != h.In || r.Fabric.Ports[h.Out].Node != r.Fabric.Ports[at].Node {
							t.Fatalf("%s: %s to %s: hop %d does not follow from the one before", name, a, b, i)
						}
						num := r.Fabric.Ports[h.Out].Num
						if len(h.Choices) > 0 && !slices.ContainsFunc(h.Choices, func(c Choice) bool { return c.Port == num }) {
							t.Errorf("%s (%s): %s to %s: %s is not among %v", name, r.Engine, a, b, r.Fabric.PortName(h.Out), h.Choices)
						}
						at = h.In
					}
					if r.Fabric.Ports[at].Node != r.Fabric.Ports[p.To].Node {
						t.Errorf("%s: %s to %s ends at %s", name, a, b, r.Fabric.PortName(at))
					}
				}
			}
		}
	}
}

// What is wrong with tables is reported in a sentence.
func TestBroken(t *testing.T) {
	f := gen.FatTree2(8, 4)
	good := compute(t, f, Options{})
	name := func(sw int32) string { return good.Fabric.Nodes[good.Fabric.Switches[sw].Node].Name() }
	p := path(t, good, "H-00001", "H-00010")
	if len(p.Hops) != 4 {
		t.Fatalf("the path has %d hops", len(p.Hops))
	}
	first := good.Fabric.Nodes[good.Fabric.Ports[p.Hops[1].Out].Node].Switch
	second := good.Fabric.Nodes[good.Fabric.Ports[p.Hops[2].Out].Node].Switch
	back := good.Fabric.Ports[p.Hops[1].In].Num // of the second, towards the first
	other := good.Fabric.Ports[p.Hops[0].In].Num
	for _, tt := range []struct {
		what string
		do   func(r *Routes)
		want string
	}{
		{"no entry", func(r *Routes) { r.LFT[first][p.DLID] = route.NoPort }, name(first) + " has no entry for LID 10, so it drops the packets"},
		{"a short table", func(r *Routes) { r.LFT[first] = r.LFT[first][:5] }, name(first) + " has no entry for LID 10"},
		{"no table", func(r *Routes) { r.LFT[first] = nil }, "the forwarding table of " + name(first) + " could not be read"},
		{"no tables", func(r *Routes) { r.LFT = nil }, "the forwarding table of " + name(first) + " could not be read"},
		{"loop", func(r *Routes) { r.LFT[second][p.DLID] = back }, "the tables lead in a loop: " + name(first) + " is reached again"},
		{"no such port", func(r *Routes) { r.LFT[first][p.DLID] = 77 }, "for LID 10 is port 77, which it does not have"},
		{"port 0", func(r *Routes) { r.LFT[first][p.DLID] = 0 }, "for LID 10 is port 0: it keeps the packets itself"},
		{"another host", func(r *Routes) { r.LFT[first][p.DLID] = other }, "the tables lead to H-00001[1], which is not the destination"},
		{"no LID", func(r *Routes) { r.Fabric.Ports[p.To].LID = 0 }, "H-00010[1] has no LID"},
		{"a port without a cable", func(r *Routes) {
			out := &r.Fabric.Ports[p.Hops[1].Out]
			r.Fabric.Ports[out.Peer].Peer, out.Peer = fabric.None, fabric.None
		}, "LID 10 leaves " + name(first) + " by port "},
		{"a link that is not Active", func(r *Routes) {
			r.Live = true
			for i := range r.Fabric.Ports {
				r.Fabric.Ports[i].Info.SetState(ib.PortActive)
			}
			r.Fabric.Ports[p.Hops[1].In].Info.SetState(ib.PortInit)
		}, "is Initializing, and data passes Active links only"},
	} {
		r := &Routes{Fabric: good.Fabric.Clone(), Result: good.Result}
		r.LFT = nil
		for _, row := range good.LFT {
			r.LFT = append(r.LFT, slices.Clone(row))
		}
		tt.do(r)
		got := r.Path(p.From, p.SLID, p.To, p.DLID, 0)
		if !strings.Contains(got.Broken, tt.want) || got.Next == "" {
			t.Errorf("%s: %q, next %q; want %q", tt.what, got.Broken, got.Next, tt.want)
		}
	}
	// No cables at all.
	hosts := gen.Unplug(f, func(a, b *fabric.Port) bool {
		return good.Fabric.Nodes[a.Node].Switch == first && good.Fabric.Nodes[b.Node].Switch != fabric.None ||
			good.Fabric.Nodes[b.Node].Switch == first && good.Fabric.Nodes[a.Node].Switch != fabric.None
	})
	if got := path(t, compute(t, hosts, Options{}), "H-00001", "H-00010"); !strings.HasPrefix(got.Broken, "no cables lead from ") {
		t.Errorf("an island: %q", got.Broken)
	}
}

// Tables that the subnet manager makes are recognized, others are not.
func TestRecognize(t *testing.T) {
	for name, f := range map[string]*fabric.Fabric{"tree": gen.FatTree2(8, 4), "torus": gen.Torus([]int{4, 4}, 1),
		"random": gen.Random(3, 10, 6, 2)} {
		want := compute(t, f, Options{})
		r := &Routes{Fabric: want.Fabric}
		r.LFT = want.LFT
		differ, of, err := r.Recognize(Options{})
		if err != nil || differ != 0 || of == 0 || r.Engine != want.Engine {
			t.Errorf("%s: %d of %d entries differ, engine %q, %v; want %q", name, differ, of, r.Engine, err, want.Engine)
		}
		r = &Routes{Fabric: want.Fabric}
		for _, row := range want.LFT {
			r.LFT = append(r.LFT, slices.Clone(row))
		}
		r.LFT[0][r.Fabric.Ports[r.Fabric.EndPorts[1]].LID] = 200
		if differ, _, err = r.Recognize(Options{}); err != nil || differ == 0 || r.Engine != "" {
			t.Errorf("%s: with a wrong entry %d differ, engine %q, %v", name, differ, r.Engine, err)
		}
	}
}

func TestNames(t *testing.T) {
	b := fabric.NewBuilder()
	node := func(g ib.GUID, typ ib.NodeType, ports uint8, desc string) int {
		n, err := b.AddNode(fabric.Node{GUID: g, Type: typ, NumPorts: ports, Desc: desc})
		testkit.NoError(t, err)
		for p := uint8(1); p <= ports && typ != ib.NodeSwitch; p++ {
			b.Port(n, p).GUID = g + ib.GUID(p)
		}
		return n
	}
	sw := node(0x1000, ib.NodeSwitch, 12, "spine 1")
	b.Port(sw, 0).GUID, b.Port(sw, 0).LID = 0x1000, 9
	for i, n := range []int{node(0x2000, ib.NodeCA, 1, "node01 mlx5_0"), node(0x3000, ib.NodeCA, 1, "node02 mlx5_0"),
		node(0x4000, ib.NodeCA, 1, "node02 mlx5_1"), node(0x5000, ib.NodeCA, 2, "node03 mlx5_0"), node(0x6000, ib.NodeCA, 1, "7"),
		node(0x7000, ib.NodeCA, 1, "17"), node(0x8000, ib.NodeCA, 1, "0x2000"),
		node(0x2c90000100003, ib.NodeCA, 1, "MF0;ibsw01:MQM8700/U1"), node(0xa000, ib.NodeCA, 1, "MF0;ibsw02:MQM8700/U1")} {
		p := b.Port(n, 1)
		p.LID, p.LMC = ib.LID(16+2*i), 1
		testkit.NoError(t, b.Link(sw, uint8(i+1), n, 1))
		if i == 3 {
			testkit.NoError(t, b.Link(sw, 12, n, 2))
		}
	}
	f := b.Build()
	for _, tt := range []struct{ word, port, err string }{
		{"node01 mlx5_0", "node01 mlx5_0[1] 16", ""},
		{"NODE01", "node01 mlx5_0[1] 16", ""},
		{"node01[1]", "node01 mlx5_0[1] 16", ""},
		{"17", "node01 mlx5_0[1] 17", ""},
		{"0x11", "node01 mlx5_0[1] 17", ""},
		{"0x2000", "node01 mlx5_0[1] 16", ""},
		{"0x2001", "node01 mlx5_0[1] 16", ""},
		{"0000:0000:0000:2001", "node01 mlx5_0[1] 16", ""},
		{"spine 1", "spine 1[0] 9", ""},
		{"spine 1[3]", "spine 1[0] 9", ""},
		{"7", "7[1] 24", ""},
		{"0x7000", "17[1] 26", ""},
		{"0x8001", "0x2000[1] 28", ""},
		// As people type it who read ibnetdiscover's output.
		{"ibsw01", "MF0;ibsw01:MQM8700/U1[1] 30", ""},
		{"IBSW01[1]", "MF0;ibsw01:MQM8700/U1[1] 30", ""},
		{"2c90000100003", "MF0;ibsw01:MQM8700/U1[1] 30", ""},
		{"0002c90000100003", "MF0;ibsw01:MQM8700/U1[1] 30", ""},
		{"H-0002c90000100003", "MF0;ibsw01:MQM8700/U1[1] 30", ""},
		{"MQM8700", "", `"MQM8700" is not a name, GUID or LID in the fabric; similar: MF0;ibsw02:MQM8700/U1`},
		{"node03", "", "node03 mlx5_0 has 2 linked ports: name one of node03 mlx5_0[1], node03 mlx5_0[2]"},
		{"node03[2]", "node03 mlx5_0[2] 0", ""},
		{"node02", "", `"node02" means 2 nodes: node02 mlx5_0 (0x0000000000003000), node02 mlx5_1 (0x0000000000004000); name one by its GUID`},
		{"node01[2]", "", "node01 mlx5_0 has ports 1 to 1, no port 2"},
		{"node01[x]", "", `"node01[x]": want a port number from 0 to 254 in the brackets`},
		{"node01[0]", "", "node01 mlx5_0 has ports 1 to 1, no port 0"},
		{"ode0", "", `"ode0" is not a name, GUID or LID in the fabric; similar: node01 mlx5_0`},
		{"", "", `"" is not a name`},
		{"99", "", `"99" is not a name`},
		{"[1]", "", `"[1]" is not a name`},
	} {
		p, lid, err := EndPort(f, tt.word)
		got := ""
		if err == nil {
			got = fmt.Sprintf("%s %d", f.PortName(p), uint16(lid))
		}
		if got != tt.port || (err != nil) != (tt.err != "") || err != nil && !strings.HasPrefix(err.Error(), tt.err) {
			t.Errorf("%q is %q, %v", tt.word, got, err)
		}
	}
}

// What people type never makes the search fail otherwise than with a sentence.
func FuzzNames(f *testing.F) {
	fab := compute2(f)
	for _, s := range []string{"H-00001", "H-00001[1]", "S-0001[300]", "0x1", "12", "[", "x[1]", "H-00001[-1]", "::"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, word string) {
		p, lid, err := EndPort(fab, word)
		if err == nil && (!fab.IsEndPort(p) || !lid.IsUnicast()) {
			t.Errorf("%q is port %d, LID %v", word, p, lid)
		}
		if nodes, err := Nodes(fab, word); err == nil && len(nodes) == 0 {
			t.Errorf("%q is no node, without an error", word)
		}
		if c, err := Cable(fab, word); err == nil && fab.Ports[c].Peer == fabric.None {
			t.Errorf("%q is a cable at %s, which has none", word, fab.PortName(c))
		}
		for _, e := range []error{err} {
			if e != nil && (e.Error() == "" || len(e.Error()) > 1000) {
				t.Errorf("%q: %v", word, e)
			}
		}
	})
}

func compute2(f *testing.F) *fabric.Fabric {
	r, err := Compute(gen.FatTree2(8, 4), Options{Partitions: partition.Default()}, nil)
	testkit.NoError(f, err)
	return r.Fabric
}

// The record is what the subnet administrator gives, and partitions decide.
func TestPartitions(t *testing.T) {
	f := gen.FatTree2(8, 4)
	guid := func(name string) ib.GUID {
		p, _, err := EndPort(f, name)
		testkit.NoError(t, err)
		return f.Ports[p].GUID
	}
	conf, err := partition.Parse("p.conf", fmt.Appendf(nil,
		"Default=0x7fff: ALL=limited, SELF=full;\nx=0x12: %v=full, %v=limited, %v=limited;\n",
		guid("H-00002"), guid("H-00003"), guid("H-00004")))
	testkit.NoError(t, err)
	r := compute(t, f, Options{Partitions: conf})
	for _, tt := range []struct {
		a, b, want string
		pkey       ib.PKey
	}{
		{"H-00002", "H-00003", "[{0x7fff false false} {0x0012 true false}]", 0x8012},
		{"H-00003", "H-00004", "[{0x7fff false false} {0x0012 false false}]", 0},
		{"H-00001", "H-00004", "[{0x7fff true false}]", 0xffff},
	} {
		a, alid, _ := EndPort(r.Fabric, tt.a)
		b, blid, _ := EndPort(r.Fabric, tt.b)
		rec, ok := r.Record(alid, blid)
		if got := fmt.Sprint(r.Partitions(a, b)); got != tt.want || ok != (tt.pkey != 0) || ok && rec.PKey != tt.pkey {
			t.Errorf("%s and %s: %s, record %v %+v; want %s", tt.a, tt.b, got, ok, rec, tt.want)
		}
	}
}

// The cable of an adapter that has none is no question of which port.
func TestCableOfUnplugged(t *testing.T) {
	for ports := uint8(1); ports <= 2; ports++ {
		b := fabric.NewBuilder()
		if _, err := b.AddNode(fabric.Node{GUID: 0x1000, Type: ib.NodeCA, NumPorts: ports, Desc: "spare"}); err != nil {
			t.Fatal(err)
		}
		if _, err := Cable(b.Build(), "spare"); err == nil || err.Error() != "spare has no link" {
			t.Errorf("with %d ports: %v", ports, err)
		}
	}
}

// Links that a manager has not brought up yet are counted, of a live fabric only.
func TestInactive(t *testing.T) {
	f := gen.FatTree2(8, 4).Clone()
	first := fabric.None
	for i := range f.Ports {
		p := &f.Ports[i]
		p.Info.SetState(ib.PortActive)
		if first == fabric.None && p.Num != 0 && p.Peer != fabric.None && f.Nodes[p.Node].Switch != fabric.None &&
			f.Nodes[f.Ports[p.Peer].Node].Switch != fabric.None {
			first = int32(i)
		}
	}
	r := Routes{Fabric: f, Live: true}
	if n := r.Inactive(); n != 0 {
		t.Errorf("%d links of a fabric that is up", n)
	}
	f.Ports[first].Info.SetState(ib.PortInit)
	if n := r.Inactive(); n != 1 {
		t.Errorf("%d links, want 1", n)
	}
	if r.Live = false; r.Inactive() != 0 {
		t.Error("links of a file, which has no states")
	}
}

// In layers, both directions of a pair have one service level, and each link between
// switches the lane of that level.
func TestLayersAndLanes(t *testing.T) {
	r := compute(t, gen.CutCables(gen.Torus([]int{5, 5}, 1), 3, 6), Options{QoS: true})
	if r.Engine != route.Layered || r.NumLayers < 2 {
		t.Fatalf("%s on %d layers", r.Engine, r.NumLayers)
	}
	lanes := map[ib.VL]int{}
	for _, a := range r.Fabric.EndPorts {
		for _, b := range r.Fabric.EndPorts {
			if a == b {
				continue
			}
			level := r.Level(a, b)
			p := r.Path(a, r.Fabric.Ports[a].LID, b, r.Fabric.Ports[b].LID, level)
			if p.Broken != "" || r.Level(b, a) != level {
				t.Fatalf("from %s to %s: level %d, back %d, %s", r.Fabric.PortName(a), r.Fabric.PortName(b), level, r.Level(b, a), p.Broken)
			}
			for _, h := range p.Hops {
				if h.VL != ib.VL(level) {
					t.Fatalf("at %s: lane %d for level %d", r.Fabric.PortName(h.Out), h.VL, level)
				}
				lanes[h.VL]++
			}
		}
	}
	if len(lanes) != r.NumLayers {
		t.Errorf("%d layers, hops on the lanes %v", r.NumLayers, lanes)
	}
}
