package route

import (
	"bytes"
	"slices"
	"testing"

	"ibnetworkd/lab/gen"
)

// Tables with candidates found ahead are those without, also after a search that stops early.
func TestAhead(t *testing.T) {
	g := newGraph(gen.LIDs(gen.FatTree3(24, 12, 2), 0))
	if len(g.peer) < aheadGroups {
		t.Fatalf("%d groups of links, candidates are found ahead from %d on", len(g.peer), aheadGroups)
	}
	plain, ahead := newAssignment(g, &minHop{g: g}, 0), newAssignment(g, &minHop{g: g}, 0)
	ahead.ahead = true
	var list []int32
	for d := range int32(g.n) {
		list = append(list, d)
	}
	for range 2 {
		for _, stop := range []int{1, 7, g.n} {
			n := 0
			ahead.towards(list, func(d int32) bool {
				if d != list[n] || len(ahead.c.order) != g.n-1 {
					t.Fatalf("switch %d with %d others, want %d with %d", d, len(ahead.c.order), list[n], g.n-1)
				}
				n++
				return n < stop
			})
			if n != stop {
				t.Errorf("%d switches, want %d", n, stop)
			}
		}
		plain.pass()
		ahead.pass()
		if !slices.EqualFunc(plain.way, ahead.way, bytes.Equal) || !slices.Equal(plain.load, ahead.load) {
			t.Errorf("other tables")
		}
	}
}
