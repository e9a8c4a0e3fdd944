package route

import (
	"fmt"
	"math/bits"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
)

// CreditLoop searches for a cycle in the channel dependency graph of the tables:
// channels are the directed links between switches, and one depends on the
// next where a packet may occupy the first while it waits for the second. A
// cycle means that the fabric can deadlock; its ports are returned in order,
// named node[port]. nil means there is none. Each service level is a layer of
// its own.
func CreditLoop(f *fabric.Fabric, lft [][]uint8, sl Layers) []string {
	g := newGraph(f)
	if sl == nil {
		dep := make([][4]uint64, len(g.port))
		for s := range lft {
			for lid, p := range lft[s] {
				if p == NoPort {
					continue
				}
				if e := g.linkOf[s<<8|int(p)]; e != fabric.None {
					if t := g.linkTo[e]; lid < len(lft[t]) {
						q := lft[t][lid]
						dep[e][q>>6] |= 1 << (q & 63)
					}
				}
			}
		}
		return g.cycle(dep)
	}
	layers := 0
	for _, row := range sl {
		for _, l := range row {
			layers = max(layers, int(l)+1)
		}
	}
	for layer := range layers {
		dep := make([][4]uint64, len(g.port))
		for d := range int32(g.n) {
			for _, to := range g.dests[d] {
				for s := range int32(g.n) {
					if s == d || int(sl[s][d]) != layer {
						continue
					}
					at, e := s, fabric.None
					for range g.n {
						if int(to.lid) >= len(lft[at]) {
							break
						}
						p := lft[at][to.lid]
						if e != fabric.None && p != NoPort {
							dep[e][p>>6] |= 1 << (p & 63)
						}
						if at == d || p == NoPort {
							break
						}
						if e = g.linkOf[int(at)<<8|int(p)]; e == fabric.None {
							break
						}
						at = g.linkTo[e]
					}
				}
			}
		}
		if c := g.cycle(dep); c != nil {
			return c
		}
	}
	return nil
}

// MayLoop reports whether an engine is named that is used although it leaves a credit loop.
func (o *Options) MayLoop() bool {
	for name := range strings.SplitSeq(o.Engine, ",") {
		if e, _ := resolve(name); e == MinHop || e == DOR {
			return true
		}
	}
	return false
}

// Verify reports a port that tables do not lead to from a switch with a way to it, or else
// a credit loop if none may be.
func Verify(f *fabric.Fabric, lft [][]uint8, sl Layers, mayLoop bool) error {
	g := newGraph(f)
	if len(lft) != g.n || sl != nil && len(sl) != g.n {
		return fmt.Errorf("there are tables for %d switches, not %d", len(lft), g.n)
	}
	if lid, s := g.unreached(lft); s != fabric.None {
		return fmt.Errorf("LID %d is not reached from switch %s", lid, f.Nodes[f.Switches[s].Node].Name())
	}
	if mayLoop {
		return nil
	}
	if loop := CreditLoop(f, lft, sl); loop != nil {
		return fmt.Errorf("there is a credit loop: %s", strings.Join(loop, ", "))
	}
	return nil
}

// unreached is a LID and a switch whose entry for it leads to no other switch, or not to the
// port on the switch itself, though there is a way and the table is large enough; the switch is
// None if there is none. Without a credit loop no entry leads in a circle.
func (g *graph) unreached(lft [][]uint8) (ib.LID, int32) {
	part := newClasses(g.n)
	for s := range int32(g.n) {
		a, b := g.neighbours(s)
		for _, t := range g.peer[a:b] {
			part.join(s, t)
		}
	}
	for s, row := range lft {
		room := int(g.f.Switches[s].Info.LinearFDBCap())
		for d, dests := range g.dests {
			if part.find(int32(s)) != part.find(int32(d)) {
				continue
			}
			for _, to := range dests {
				switch lid := int(to.lid); {
				case room > 0 && lid >= room:
				case lid >= len(row), s == d && row[lid] != to.port, s != d && g.linkOf[s<<8|int(row[lid])] == fabric.None:
					return to.lid, int32(s)
				}
			}
		}
	}
	return 0, fabric.None
}

// cycle finds a cycle of links, where dep has the output ports that each link
// depends on at its far switch.
func (g *graph) cycle(dep [][4]uint64) []string {
	next := func(e int32, yield func(int32) bool) bool {
		to := int(g.linkTo[e]) << 8
		for w, set := range dep[e] {
			for ; set != 0; set &= set - 1 {
				if n := g.linkOf[to|w<<6|bits.TrailingZeros64(set)]; n != fabric.None && !yield(n) {
					return false
				}
			}
		}
		return true
	}
	in := make([]int32, len(dep))
	for e := range dep {
		next(int32(e), func(n int32) bool { in[n]++; return true })
	}
	var queue []int32
	for e, n := range in {
		if n == 0 {
			queue = append(queue, int32(e))
		}
	}
	for i := 0; i < len(queue); i++ {
		next(queue[i], func(n int32) bool {
			if in[n]--; in[n] == 0 {
				queue = append(queue, n)
			}
			return true
		})
	}
	if len(queue) == len(dep) {
		return nil
	}
	// Some link that is left has a way back to itself: going on to any link
	// left, sooner or later one comes up again. Going forward may run into
	// a dead end behind a cycle, so go backward.
	before := make([]int32, len(dep))
	for i := range before {
		before[i] = fabric.None
	}
	start := fabric.None
	for e := range dep {
		if in[e] == 0 {
			continue
		}
		start = int32(e)
		next(int32(e), func(n int32) bool {
			if in[n] > 0 {
				before[n] = int32(e)
			}
			return true
		})
	}
	seen := map[int32]bool{}
	for !seen[start] && before[start] != fabric.None {
		seen[start] = true
		start = before[start]
	}
	var names []string
	for e := start; ; {
		names = append(names, g.linkName(e))
		if e = before[e]; e == start || e == fabric.None {
			break
		}
	}
	for i, j := 0, len(names)-1; i < j; i, j = i+1, j-1 {
		names[i], names[j] = names[j], names[i]
	}
	return names
}

func (g *graph) linkName(e int32) string {
	for s := range int32(g.n) {
		a, b := g.neighbours(s)
		if g.link[a] <= e && e < g.link[b] {
			return fmt.Sprintf("%s[%d]", g.f.Nodes[g.f.Switches[s].Node].Name(), g.port[e])
		}
	}
	return fmt.Sprintf("link %d", e)
}
