package route

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
)

// Engine names of Options and Result.
const (
	Auto    = ""
	MinHop  = "minhop"
	UpDown  = "updn"
	FatTree = "ftree"
	DOR     = "dor"
	Direct  = "direct" // two ports and a cable: there is nothing to route
)

// Engines are the names that Options.Engine takes, apart from Auto.
var Engines = []string{MinHop, UpDown, FatTree, DOR}

// Options steer Build.
type Options struct {
	// Engine is one of Engines or a name that opensm has for one, several of
	// them with commas between, in order of preference, or Auto to choose by
	// the shape of the graph.
	Engine string
	// Roots are switches, by node GUID, to take as roots of up/down instead
	// of those found. GUIDs that are not there are ignored with a warning.
	Roots []ib.GUID
	// Previous are the tables in force, by switch index of the fabric at
	// hand. An entry among the equally good ones stays as it is.
	Previous [][]uint8
	// Layers is how many service levels the caller gives lanes of their
	// own; 0 means 1. With several, paths through a torus are the shortest.
	Layers int
}

// Layers gives the service level of the path between two switches, by switch
// index; nil means level 0 everywhere.
type Layers [][]uint8

// SL is the service level from switch a to switch b.
func (l Layers) SL(a, b int32) ib.SL {
	if l == nil {
		return 0
	}
	return ib.SL(l[a][b])
}

// Result is what Build decided.
type Result struct {
	// LFT has a row for each switch index: LID to output port, NoPort for
	// LIDs that go nowhere; all rows reach to the highest LID in use, or as
	// far as the switch's table does.
	LFT [][]uint8
	// Engine is the engine used.
	Engine string
	// SL is set when paths need service levels above 0 to be free of
	// deadlock; NumLayers of them are in use, each on a lane of its own.
	SL        Layers
	NumLayers int
	Warnings  []string
}

// Build makes the forwarding tables of a fabric whose end ports have LIDs.
//
// Auto takes the fat-tree engine where switches form levels, minimum hop where
// that gives no credit loop, dimension order on a mesh or torus, and up/down
// elsewhere. All of them spread the flows between all pairs of hosts over
// equally good links.
//
// An engine that is unknown or does not fit the fabric as it is now is said in
// Warnings and the next one is taken: a subnet without routes would be worse.
// The error is ErrNoLIDs only.
func Build(f *fabric.Fabric, opt Options) (Result, error) {
	g := newGraph(f)
	if g.n == 0 {
		return Result{Engine: Direct, NumLayers: 1}, nil
	}
	if g.top == 0 {
		return Result{}, ErrNoLIDs
	}
	b := &builder{graph: g, prev: opt.Previous}
	var r Result
	var warnings []string
	done := false
	for name := range strings.SplitSeq(opt.Engine, ",") {
		engine, why := resolve(name)
		if why != "" {
			warnings = append(warnings, why)
			continue
		}
		if engine == Auto {
			break
		}
		r = Result{Engine: engine, NumLayers: 1}
		err := b.try(&r, opt)
		if done = err == nil; done {
			break
		}
		warnings = append(warnings, err.Error())
	}
	if !done {
		r = Result{NumLayers: 1}
		b.auto(&r, opt)
		if len(warnings) > 0 {
			warnings[len(warnings)-1] += "; " + r.Engine + " is used instead"
		}
	}
	r.Warnings = append(append(warnings, r.Warnings...), g.tooSmall(r.LFT)...)
	return r, nil
}

// ErrNoLIDs is Build's error for a fabric that LIDs were not assigned to.
var ErrNoLIDs = errors.New("no port of the fabric has a LID, so there is nothing to route to")

// foreign are engines of opensm and of the managers made from it, by their
// names in small letters, with the engine here that does the same.
var foreign = map[string]string{
	"(null)": Auto, "none": Auto, "auto": Auto,
	// Up/down with the two directions exchanged: the same paths are legal
	// read backwards, and it is as free of deadlocks.
	"dnup": UpDown,
	// Shortest paths, spread by the load that earlier ones left.
	"sssp": MinHop,
	// Dimension order with date lines, on service levels of its own.
	"torus-2qos": DOR,
	// The adaptive forms differ in tables that these switches get besides.
	"ar_updn": UpDown, "ar_ftree": FatTree, "ar_dor": DOR, "pqft": FatTree, "auto_updn": UpDown,
}

// lacking are engines of opensm without an equivalent here, with the reason in
// the words of a warning.
var lacking = map[string]string{
	"lash":        "its paths are free of deadlocks, as those of every engine that is chosen here",
	"dfsssp":      "its paths are free of deadlocks, as those of every engine that is chosen here",
	"nue":         "its paths are free of deadlocks, as those of every engine that is chosen here",
	"file":        "tables are computed, not loaded",
	"chain":       "one engine routes the whole subnet",
	"chains":      "one engine routes the whole subnet",
	"no_fallback": "a subnet without routes would be worse than one with others",
}

// resolve gives the engine that a name stands for, or why there is none.
func resolve(name string) (engine, why string) {
	name = strings.TrimSpace(name)
	n := strings.ToLower(name)
	if n == Auto || slices.Contains(Engines, n) {
		return n, ""
	}
	if e, ok := foreign[n]; ok {
		return e, ""
	}
	if w, ok := lacking[n]; ok {
		return "", fmt.Sprintf("routing engine %s is opensm's alone (%s)", name, w)
	}
	return "", fmt.Sprintf("routing engine %q is unknown; known are %s", name, strings.Join(Engines, ", "))
}

// try builds the tables with the engine named in r.
func (b *builder) try(r *Result, opt Options) error {
	switch r.Engine {
	case MinHop:
		b.assign(r, &minHop{g: b.graph})
		b.check(r)
	case FatTree:
		levels, ok := b.levels()
		if !ok {
			return errors.New("routing engine ftree: the switches do not form a fat-tree: links within a level or hosts at several levels")
		}
		if !b.upDown(r, b.orderByLevel(levels), true) {
			return errors.New("routing engine ftree: the tree has pairs of switches without a common ancestor")
		}
		r.Engine = FatTree
	case UpDown:
		b.autoUpDown(r, opt)
	case DOR:
		t := b.grid()
		if t == nil {
			return errors.New("routing engine dor: the switches form neither a mesh nor a torus")
		}
		t.open = t.layers() > min(b.lanes(), max(1, opt.Layers))
		b.dor(r, t)
		b.check(r)
	}
	return nil
}

// tooSmall cuts the rows of switches whose tables do not reach to the highest
// LID, for such a switch refuses the rest, and names them.
func (g *graph) tooSmall(lft [][]uint8) (out []string) {
	for i := range g.f.Switches {
		s := &g.f.Switches[i]
		if n := int(s.Info.LinearFDBCap()); n > 0 && n <= g.top {
			lft[i] = lft[i][:n:n]
			out = append(out, fmt.Sprintf("switch %s has a forwarding table for %d LIDs, but LIDs up to %d are in use: those from %d on are not reached through it",
				g.f.Nodes[s.Node].Name(), n, g.top, n))
		}
	}
	return out
}

type builder struct {
	*graph
	prev [][]uint8
}

func (b *builder) auto(r *Result, opt Options) {
	if len(opt.Roots) == 0 {
		if levels, ok := b.levels(); ok && b.upDown(r, b.orderByLevel(levels), true) {
			r.Engine = FatTree
			return
		}
		// A long ring or a torus always has credit loops under minimum
		// hop; looking first saves building the tables twice.
		if t := b.grid(); t != nil {
			t.open = t.layers() > min(b.lanes(), max(1, opt.Layers))
			if t.layers() > 1 || len(t.dims) > 1 {
				b.dor(r, t)
			}
		}
		if r.Engine == DOR {
			if CreditLoop(b.f, r.LFT, r.SL) == nil {
				return
			}
		}
		*r = Result{Engine: MinHop, NumLayers: 1}
		if e := (&minHop{g: b.graph}); b.safe(e) {
			b.assign(r, e)
			return
		}
	}
	b.autoUpDown(r, opt)
}

// check warns of credit loops in tables of an engine that was asked for.
func (b *builder) check(r *Result) {
	if loop := CreditLoop(b.f, r.LFT, r.SL); loop != nil {
		r.Warnings = append(r.Warnings, fmt.Sprintf("routing engine %s leaves a credit loop, so the fabric may deadlock: %v", r.Engine, loop))
	}
}

// autoUpDown finds an order of the switches that works for up/down: the roots
// asked for, the levels above the hosts, or else one central root, which always
// works.
func (b *builder) autoUpDown(r *Result, opt Options) {
	if len(opt.Roots) > 0 {
		var roots []int32
		for _, g := range opt.Roots {
			if i := b.f.NodeByGUID(g); i != fabric.None && b.f.Nodes[i].Switch != fabric.None {
				roots = append(roots, b.f.Nodes[i].Switch)
			} else {
				r.Warnings = append(r.Warnings, fmt.Sprintf("root %v of up/down routing is no switch of the fabric", g))
			}
		}
		if len(roots) > 0 {
			if w := r.Warnings; b.upDown(r, b.orderFrom(roots), false) {
				r.Warnings = append(w, r.Warnings...)
				return
			}
			r.Warnings = append(r.Warnings, "the roots given for up/down routing leave switches without a legal path; a central switch is the root instead")
		}
	} else if levels := b.rawLevels(); slices.Max(levels) > 0 && b.upDown(r, b.orderByLevel(levels), false) {
		return
	}
	w := r.Warnings
	b.upDown(r, b.orderFrom([]int32{b.centre()}), false)
	r.Warnings = append(w, r.Warnings...)
}

// engine gives the candidates for next hops towards one switch.
type engine interface {
	// towards fills c for the destination switch d.
	towards(d int32, c *candidates)
}

// candidates are the links that a packet to one switch may take.
type candidates struct {
	order []int32 // switches with a way, nearest first, without the destination itself
	first []int32 // by switch: where its links start in links
	last  []int32
	links []int32
	lost  int // switches without a way
}

func newCandidates(n int) *candidates {
	return &candidates{first: make([]int32, n), last: make([]int32, n)}
}

func (c *candidates) reset() {
	c.order, c.links, c.lost = c.order[:0], c.links[:0], 0
	clear(c.first)
	clear(c.last)
}

// begin and end bracket the links of one switch.
func (c *candidates) begin(s int32) { c.first[s] = int32(len(c.links)) }
func (c *candidates) end(s int32) {
	c.last[s] = int32(len(c.links))
	if c.last[s] > c.first[s] {
		c.order = append(c.order, s)
	} else {
		c.lost++
	}
}

// addGroup adds all parallel links of a group.
func (c *candidates) addGroup(g *graph, group int32) {
	for l := g.link[group]; l < g.link[group+1]; l++ {
		c.links = append(c.links, l)
	}
}

// assign fills the tables. For each destination it walks from the far switches
// to the near ones; each takes the link that carries the fewest flows so far
// for its speed, a flow being a pair of hosts, and adds the flows of everything
// behind it. It returns the number of switch pairs without a way.
func (b *builder) assign(r *Result, e engine) (lost int) {
	g := b.graph
	r.LFT = make([][]uint8, g.n)
	flat := make([]uint8, g.n*(g.top+1))
	for i := range flat {
		flat[i] = NoPort
	}
	for s := range r.LFT {
		r.LFT[s] = flat[s*(g.top+1) : (s+1)*(g.top+1) : (s+1)*(g.top+1)]
	}
	load := make([]int64, len(g.port))
	var flow []int64 // by switch and destination LID of the switch at hand
	c := newCandidates(g.n)
	// One entry may carry twice the flows of the best and a bit before it
	// moves: a link that came back gets its share, and nothing else does.
	slack := 32 * slices.Max(g.hosts)
	for d := range int32(g.n) {
		dests := g.dests[d]
		if len(dests) == 0 {
			continue
		}
		c.reset()
		e.towards(d, c)
		lost += c.lost
		// Hosts talk to hosts; what goes to a switch is management and
		// does not count.
		k := len(dests)
		flow = slices.Grow(flow[:0], g.n*k)[:g.n*k]
		for s, h := range g.hosts {
			for i, to := range dests {
				if flow[s*k+i] = h; to.port == 0 {
					flow[s*k+i] = 0
				}
			}
		}
		for _, to := range dests {
			r.LFT[d][to.lid] = to.port
		}
		for i := len(c.order) - 1; i >= 0; i-- {
			s := c.order[i]
			links := c.links[c.first[s]:c.last[s]]
			row := r.LFT[s]
			var prev []uint8
			if int(s) < len(b.prev) {
				prev = b.prev[s]
			}
			mine := flow[int(s)*k : int(s)*k+k]
			for j, to := range dests {
				best := links[0]
				if len(links) > 1 {
					least := int64(0)
					if mine[j] == 0 {
						// No host's traffic comes this way.
						best = links[j%len(links)]
					} else {
						least = load[best]
						for _, l := range links[1:] {
							if v := load[l]; v < least {
								best, least = l, v
							}
						}
					}
					if int(to.lid) < len(prev) && prev[to.lid] != g.port[best] && prev[to.lid] != NoPort {
						old := g.linkOf[int(s)<<8|int(prev[to.lid])]
						if old != fabric.None && (mine[j] == 0 || load[old] <= 2*least+slack) && slices.Contains(links, old) {
							best = old
						}
					}
				}
				row[to.lid] = g.port[best]
				load[best] += mine[j] * g.cost[best]
				flow[int(g.linkTo[best])*k+j] += mine[j]
			}
		}
	}
	if lost > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%d pairs of switches have no path between them", lost))
	}
	return lost
}

// safe reports whether no choice among the engine's candidates can leave a
// credit loop. Judging the candidates, not one set of tables, keeps the choice
// of the engine from depending on the tables in force.
func (b *builder) safe(e engine) bool {
	g := b.graph
	dep := make([][4]uint64, len(g.port))
	out := make([][4]uint64, g.n)
	c := newCandidates(g.n)
	for d := range int32(g.n) {
		if len(g.dests[d]) == 0 {
			continue
		}
		c.reset()
		e.towards(d, c)
		out[d] = [4]uint64{}
		for _, s := range c.order {
			var set [4]uint64
			for _, l := range c.links[c.first[s]:c.last[s]] {
				q := g.port[l]
				set[q>>6] |= 1 << (q & 63)
			}
			out[s] = set
		}
		for _, l := range c.links {
			next, have := &out[g.linkTo[l]], &dep[l]
			for i := range next {
				have[i] |= next[i]
			}
		}
	}
	return g.cycle(dep) == nil
}

// minHop takes every link that leads one hop nearer.
type minHop struct {
	g     *graph
	dist  []int32
	queue []int32
}

func (m *minHop) towards(d int32, c *candidates) {
	if m.dist == nil {
		m.dist = make([]int32, m.g.n)
	}
	m.queue = m.g.bfs(m.dist, m.queue, d)
	for _, s := range m.queue[1:] {
		c.begin(s)
		a, b := m.g.neighbours(s)
		for i := a; i < b; i++ {
			if m.dist[m.g.peer[i]] == m.dist[s]-1 {
				c.addGroup(m.g, i)
			}
		}
		c.end(s)
	}
	c.lost += m.g.n - len(m.queue)
}
