package engine

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/internal/version"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/qos"
	"ibnetworkd/sm/route"
)

// laneRoutes is a torus with a hole, whose routes take several lanes, and what is remembered of them.
func laneRoutes(tb testing.TB) (*fabric.Fabric, route.Options, *remembered) {
	tb.Helper()
	g := gen.LIDs(gen.CutCables(gen.Torus([]int{4, 4}, 1), 1, 10), 0)
	opt := route.Options{Layers: 4}
	r, err := route.Build(g, opt)
	if err != nil || r.SL == nil || r.Trunk == nil {
		tb.Fatalf("%s, %v", r.Engine, err)
	}
	opt.Previous = r.LFT
	return g, opt, &remembered{Version: version.String(), For: sumFor(g, &opt), Tables: sumTables(g, r.LFT), Engine: r.Engine,
		Layers: r.NumLayers, Worst: r.Worst, Bound: r.Bound, Order: r.Order, At: g.SwitchGUIDs(), SL: r.SL, Trunk: r.Trunk}
}

// A file of routes of which a byte changed, or the end is missing, is not used.
func TestRoutesFileDamaged(t *testing.T) {
	_, _, m := laneRoutes(t)
	b, err := m.encode()
	testkit.NoError(t, err)
	if again, err := decodeRoutes(b); err != nil || !slices.Equal(again.Tables, m.Tables) || len(again.SL) != len(m.SL) {
		t.Fatalf("%v", err)
	}
	for i := range b {
		bad := slices.Clone(b)
		bad[i] ^= 1
		for _, text := range [][]byte{bad, b[:i]} {
			if again, err := decodeRoutes(text); err == nil || again != nil {
				t.Fatalf("byte %d of %d: %+v", i, len(b), again)
			}
		}
	}
}

// Remembered routes with a credit loop, or that do not lead everywhere, are not used; others are.
func TestRecallVerifies(t *testing.T) {
	g, opt, m := laneRoutes(t)
	if r := m.recall(g, opt, nil); r.refused != nil || r.Engine != m.Engine || r.known != m {
		t.Fatalf("%s, %v", r.Engine, r.refused)
	}
	flat, gap, turned := *m, *m, *m
	flat.SL = slices.Repeat(route.Layers{make([]uint8, len(m.At))}, len(m.At))
	for name, c := range map[string]struct {
		m    *remembered
		edit func(lft [][]uint8)
		why  string
	}{
		"one level":     {&flat, func([][]uint8) {}, "credit loop"},
		"an entry gone": {&gap, func(lft [][]uint8) { lft[1][g.Ports[g.EndPorts[0]].LID] = route.NoPort }, "is not reached"},
		"wrong port": {&turned, func(lft [][]uint8) {
			s, port := g.SwitchOf(g.EndPorts[len(g.EndPorts)-1])
			lft[s][g.Ports[g.EndPorts[len(g.EndPorts)-1]].LID] = port + 1
		}, "is not reached"},
	} {
		bad := opt
		bad.Previous = nil
		for _, row := range opt.Previous {
			bad.Previous = append(bad.Previous, slices.Clone(row))
		}
		c.edit(bad.Previous)
		c.m.Tables = sumTables(g, bad.Previous)
		r := c.m.recall(g, bad, nil)
		if r.err != nil || r.refused == nil || !strings.Contains(r.refused.Error(), c.why) {
			t.Errorf("%s: %v, %v", name, r.refused, r.err)
		}
		if err := route.Verify(g, r.LFT, r.SL, false); err != nil {
			t.Errorf("%s, computed again: %v", name, err)
		}
	}
}

// Tables are those that were remembered if the only others are empty, and at most half.
func TestRecallBlankTables(t *testing.T) {
	g, opt, m := laneRoutes(t)
	lft := slices.Clone(opt.Previous)
	for n := range g.Switches {
		if ours, all := m.has(g, lft); ours != (2*n <= len(g.Switches)) || all != (n == 0) {
			t.Errorf("%d of %d tables are empty: %v, %v", n, len(g.Switches), ours, all)
		}
		lft[n] = nil
	}
	lft = slices.Clone(opt.Previous)
	lft[0], lft[1] = nil, slices.Clone(lft[1])
	lft[1][1]++
	if ours, _ := m.has(g, lft); ours {
		t.Error("a table of something else is taken for its own")
	}
}

// Routes by an engine that was named although it leaves a credit loop stay after a start.
func TestRecallNamedLoop(t *testing.T) {
	g := gen.LIDs(gen.Ring(7, 2), 0)
	for _, engine := range []string{"minhop", "ftree, sssp"} {
		opt := route.Options{Engine: engine}
		r, err := route.Build(g, opt)
		if err != nil || route.CreditLoop(g, r.LFT, r.SL) == nil {
			t.Fatalf("%s: %s, %v", engine, r.Engine, err)
		}
		opt.Previous = r.LFT
		m := &remembered{Version: version.String(), For: sumFor(g, &opt), Tables: sumTables(g, r.LFT), Engine: r.Engine, Layers: r.NumLayers,
			Order: r.Order, At: g.SwitchGUIDs(), SL: r.SL, Trunk: r.Trunk, Warnings: r.Warnings}
		if now := m.recall(g, opt, nil); now.refused != nil || now.Engine != r.Engine {
			t.Errorf("%s: %s, %v", engine, now.Engine, now.refused)
		}
	}
}

// Why a fabric is no tree any more is known after a start, too, that finds a cable cut.
func TestRecallReason(t *testing.T) {
	f := gen.FatTree2(8, 4)
	bad := f.Clone()
	var ends []int32 // a host's port on each of two leaves
	for _, e := range bad.EndPorts {
		if s, out := bad.SwitchOf(e); out != 0 && (len(ends) == 0 || len(ends) == 1 && bad.Ports[ends[0]].Node != bad.Switches[s].Node) {
			ends = append(ends, bad.Ports[e].Peer)
		}
	}
	a, b := ends[0], ends[1]
	for _, p := range ends {
		bad.Ports[bad.Ports[p].Peer].Peer = fabric.None
	}
	bad.Ports[a].Peer, bad.Ports[b].Peer = b, a
	g := gen.LIDs(bad, 0)
	opt := route.Options{}
	r, err := route.Build(g, route.Options{Before: route.FatTree})
	if err != nil || r.NoTree == "" {
		t.Fatalf("%s, %q, %v", r.Engine, r.NoTree, err)
	}
	opt.Previous = r.LFT
	m := &remembered{Version: version.String(), For: "another fabric", Tables: sumTables(g, r.LFT), Engine: r.Engine, Layers: 1,
		NoTree: r.NoTree, Order: r.Order, At: g.SwitchGUIDs()}
	if now := m.recall(g, opt, nil); now.Engine == route.FatTree || now.NoTree != r.NoTree {
		t.Errorf("%s, %q, not %q", now.Engine, now.NoTree, r.NoTree)
	}
	m.Engine, m.NoTree = route.FatTree, ""
	if now := m.recall(g, opt, nil); now.NoTree != r.NoTree {
		t.Errorf("%s after ftree: %q, not %q", now.Engine, now.NoTree, r.NoTree)
	}
}

// Whatever a file of routes says, of the tables in force or of others, there are routes
// with their levels, which share no list of rows with what is in the switches.
func FuzzRoutesFile(f *testing.F) {
	g, opt, m := laneRoutes(f)
	b, err := json.Marshal(m)
	testkit.NoError(f, err)
	f.Add(b, []byte{}, true, true)
	f.Add(b, []byte{0, 3, 17, 2, 255, 255, 250, 7}, true, false)
	f.Add(b, []byte{}, false, false)
	f.Add([]byte(`{"layers":1,"lanes":[{"node":1,"sums":[7]},{"node":2,"sums":[4294967295,3]}]}`), []byte{}, true, true)
	f.Add([]byte(`{"layers":2,"order":[0,0],"at":[1,1],"sl":["AAE=","AQA="],"trunk":"//8="}`), []byte{}, true, false)
	f.Fuzz(func(t *testing.T, text, edits []byte, sealed, whole bool) {
		b := text
		if sealed {
			b = append([]byte(sumBytes(text)+"\n"), text...)
		}
		got, err := decodeRoutes(b)
		if (got == nil) != (err != nil) {
			t.Fatalf("%+v, %v", got, err)
		}
		if got == nil {
			return
		}
		if again, err := got.encode(); err != nil || !sealed && !bytes.HasPrefix(b, []byte(sumBytes(b[65:]))) {
			t.Fatalf("%s: %v", again, err)
		}
		got.Tables = m.Tables
		if whole {
			got.Version, got.For, got.At = m.Version, m.For, m.At
		}
		for ; len(edits) > 1; edits = edits[2:] {
			switch at, v := int(edits[0]), edits[1]; {
			case at < 200 && len(got.SL) > 0:
				row := got.SL[at%len(got.SL)]
				row[int(v>>4)%len(row)] = v & 0xf
			case at < 240 && len(got.Trunk) > 0:
				got.Trunk[at%len(got.Trunk)] = v
			case len(got.Order) > 0:
				got.Order[at%len(got.Order)] = g.SwitchGUIDs()[int(v)%len(g.Switches)]
			}
		}
		if !got.valid() {
			return
		}
		for _, q := range []*qos.Options{nil, {}} {
			r := got.recall(g, opt, q)
			if r.err != nil || len(r.LFT) != len(g.Switches) || math.IsNaN(r.Worst) {
				t.Fatalf("%d tables, %v", len(r.LFT), r.err)
			}
			if r.qos != nil {
				if l := recalledLanes(g, r.qos, got.Lanes, 1, r.LFT); len(l.VLs) != len(g.Ports) || len(l.In) != len(g.Ports) {
					t.Fatalf("lanes of %d and %d ports", len(l.VLs), len(l.In))
				}
			}
			for s, row := range r.LFT {
				for _, e := range g.EndPorts {
					if row[g.Ports[e].LID] == route.NoPort {
						t.Fatalf("switch %d has no way to LID %v", s, g.Ports[e].LID)
					}
				}
			}
			for _, row := range r.SL {
				if len(row) != len(g.Switches) || int(slices.Max(row)) >= r.NumLayers {
					t.Fatalf("levels %v, %d are in use", row, r.NumLayers)
				}
			}
			if &r.LFT[0] == &opt.Previous[0] {
				t.Fatal("shared with the tables of the switches")
			}
		}
	})
}
