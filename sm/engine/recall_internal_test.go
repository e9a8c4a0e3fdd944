package engine

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"testing"

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
	if err != nil {
		t.Fatal(err)
	}
	if again, err := decodeRoutes(b); err != nil || again.Tables != m.Tables || len(again.SL) != len(m.SL) {
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

// Whatever a file of routes says, of the tables in force or of others, there are routes
// with their levels, which share no list of rows with what is in the switches.
func FuzzRoutesFile(f *testing.F) {
	g, opt, m := laneRoutes(f)
	b, err := json.Marshal(m)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b, []byte{}, true, true)
	f.Add(b, []byte{0, 3, 17, 2, 255, 255, 250, 7}, true, false)
	f.Add(b, []byte{}, false, false)
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
