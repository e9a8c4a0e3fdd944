package lid_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/guidfile"
	"ibnetworkd/sm/lid"
)

func check(t *testing.T, r lid.Result, lmc ib.LMC) {
	t.Helper()
	seen := map[int]bool{}
	for _, p := range r.Fabric.EndPorts {
		q := &r.Fabric.Ports[p]
		if !q.LID.IsUnicast() || int(q.LID)%q.LMC.Count() != 0 {
			t.Fatalf("port %v: LID %v LMC %d", q.GUID, q.LID, q.LMC)
		}
		if sw := r.Fabric.Nodes[q.Node].Switch != fabric.None; sw && q.LMC != 0 || !sw && q.LMC != lmc {
			t.Fatalf("port %v: LMC %d", q.GUID, q.LMC)
		}
		for k := range q.LMC.Count() {
			if seen[int(q.LID)+k] {
				t.Fatalf("LID %d is used twice", int(q.LID)+k)
			}
			seen[int(q.LID)+k] = true
		}
		if e, ok := r.Memory.Find(q.GUID); !ok || e.LID != q.LID || e.LMC != q.LMC {
			t.Fatalf("memory of %v: %v", q.GUID, e)
		}
	}
}

func TestAssign(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		f := gen.Random(seed, 1+r.IntN(6), r.IntN(6), 1+r.IntN(20)).Clone()
		lmc := ib.LMC(r.IntN(3))
		var m lid.Memory
		for _, p := range f.EndPorts {
			// LIDs that ports have, right and wrong ones, and remembered ones.
			if r.IntN(2) == 0 {
				f.Ports[p].Info.SetLID(ib.LID(r.IntN(40)))
			}
			if r.IntN(2) == 0 {
				m = append(m, lid.Entry{GUID: f.Ports[p].GUID, LID: ib.LID(1 + r.IntN(40)), LMC: lmc})
			}
		}
		a := lid.Assign(f, m, lid.Options{LMC: lmc})
		check(t, a, lmc)
		b := lid.Assign(a.Fabric, a.Memory, lid.Options{LMC: lmc})
		kept := lid.Assign(a.Fabric, nil, lid.Options{KeepLMC: true})
		check(t, kept, lmc)
		if d := cmp.Diff(a.Fabric.EndPorts, kept.Fabric.EndPorts); d != "" || a.Top != kept.Top {
			t.Fatalf("seed %d: LIDs up to %d become up to %d: %s", seed, a.Top, kept.Top, d)
		}
		if d := cmp.Diff(a.Memory, b.Memory); d != "" || b.Changed {
			t.Fatalf("seed %d: a second assignment differs: %s", seed, d)
		}
		// The memory alone gives the same LIDs to ports that lost theirs.
		g := f.Clone()
		for _, p := range g.EndPorts {
			g.Ports[p].Info.SetLID(0)
		}
		c := lid.Assign(g, a.Memory, lid.Options{LMC: lmc})
		if d := cmp.Diff(a.Memory, c.Memory); d != "" {
			t.Fatalf("seed %d: from memory: %s", seed, d)
		}
	}
}

func TestConflict(t *testing.T) {
	f := gen.Star(2, 4).Clone()
	for _, p := range f.EndPorts {
		f.Ports[p].Info.SetLID(7)
	}
	r := lid.Assign(f, nil, lid.Options{})
	check(t, r, 0)
	if len(r.Warnings) != 2 || !strings.Contains(r.Warnings[0], "LID 0x0007 of port") {
		t.Errorf("%q", r.Warnings)
	}
}

// A change of the LMC gives many ports other LIDs: one warning says so.
func TestLMCChanges(t *testing.T) {
	a := lid.Assign(gen.FatTree2(8, 4), nil, lid.Options{})
	b := lid.Assign(a.Fabric, a.Memory, lid.Options{LMC: 2})
	check(t, b, 2)
	if len(b.Warnings) != 1 || !strings.HasSuffix(b.Warnings[0], "ports get new LIDs because the LMC changes") {
		t.Errorf("%q", b.Warnings)
	}
}

func TestNewLIDsAreCompact(t *testing.T) {
	r := lid.Assign(gen.FatTree2(36, 6), nil, lid.Options{})
	if r.Top != 117 {
		t.Errorf("top %d", r.Top)
	}
}

func TestAwayPortsKeepTheirLIDs(t *testing.T) {
	m := lid.Memory{{GUID: 1, LID: 1}, {GUID: 2, LID: 3}}
	r := lid.Assign(gen.Pair(), m, lid.Options{})
	got := fmt.Sprint(r.Fabric.Ports[r.Fabric.EndPorts[0]].LID, r.Fabric.Ports[r.Fabric.EndPorts[1]].LID, len(r.Memory))
	if got != "0x0002 0x0004 4" {
		t.Error(got)
	}
}

func TestText(t *testing.T) {
	m := lid.Assign(gen.FatTree2(8, 4), nil, lid.Options{LMC: 1}).Memory
	b := m.Marshal()
	got, err := lid.Unmarshal("guid2lid", b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(m, got); d != "" {
		t.Fatal(d)
	}
	for i := range b {
		c := append([]byte(nil), b...)
		c[i] ^= 1
		if g, err := lid.Unmarshal("guid2lid", c); err == nil && len(g) != len(m) {
			t.Fatalf("a flipped bit in byte %d went unnoticed", i)
		}
		if _, err := lid.Unmarshal("guid2lid", b[:i]); err == nil && i < len(b)-1 {
			t.Fatalf("a cut at byte %d went unnoticed", i)
		}
	}
}

func FuzzUnmarshal(f *testing.F) {
	f.Add(lid.Memory{{GUID: 5, LID: 6, LMC: 0}}.Marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := lid.Unmarshal("f", b)
		if err != nil {
			return
		}
		n, err := lid.Unmarshal("f", m.Marshal())
		if err != nil || len(n) != len(m) {
			t.Fatal(err)
		}
	})
}

// What another manager remembered is taken for ports that are not known, unless it
// would be of two ports.
func TestAdopt(t *testing.T) {
	m := lid.Memory{{GUID: 2, LID: 8, LMC: 1}, {GUID: 5, LID: 3}}
	got, left := m.Adopt([]guidfile.LIDs{{GUID: 9, LID: 4}, {GUID: 2, LID: 20}, {GUID: 7, LID: 9}, {GUID: 1, LID: 16, LMC: 2}})
	want := lid.Memory{{GUID: 1, LID: 16, LMC: 2}, {GUID: 2, LID: 8, LMC: 1}, {GUID: 5, LID: 3}, {GUID: 9, LID: 4}}
	if d := cmp.Diff(want, got); d != "" || left != 1 || len(m) != 2 {
		t.Errorf("%d left out, %s", left, d)
	}
}
