package route

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/guidfile"
)

// Engine names of Options and Result.
const (
	Auto    = ""
	MinHop  = "minhop"
	UpDown  = "updn"
	FatTree = "ftree"
	DOR     = "dor"
	Layered = "layered"
	Direct  = "direct" // two ports and a cable: there is nothing to route
)

// Engines are the names that Options.Engine takes, apart from Auto.
var Engines = []string{MinHop, UpDown, FatTree, DOR, Layered}

// Options steer Build.
type Options struct {
	// Engine is one of Engines or a name that opensm has for one, several of
	// them with commas between, in order of preference, or Auto to choose by
	// the shape of the graph.
	Engine string
	// Roots are switches to take as roots of ftree and updn instead of those found,
	// by their GUIDs or by that of an adapter on them. Auto takes one of these
	// engines then. GUIDs that the fabric lacks, here and below, are a warning.
	Roots []ib.GUID
	// Compute are ports of hosts, by port GUID, for which routes are balanced; others,
	// but for IO, get routes without regard to their load. Empty is all ports.
	Compute []ib.GUID
	// IO are ports of servers, by port GUID. The flows to them are balanced apart from
	// those to others, as if there were no others.
	IO []ib.GUID
	// HostOrder are ports of hosts, by port GUID, in the order in which jobs number them.
	// Where neighbours in the order are on one switch, paths to them spread in it; without
	// it, that of the switch's ports counts. Ports that are not in it come last.
	HostOrder []ib.GUID
	// HopWeights are lengths of hops other than 1. They decide which paths are the
	// shortest for minhop, updn and ftree; dor has no use for them.
	HopWeights []guidfile.Weight
	// Previous are the tables in force, by switch index of the fabric. An entry
	// among the equally good ones stays as it is.
	Previous [][]uint8
	// Order is Result.Order of the tables in force. Up/down keeps to it while
	// it is nearly the best, for entries of another order may not be mixed in.
	Order []ib.GUID
	// SL is Result.SL of the tables in force, by switch index of the fabric (see
	// Layers.Carry). Paths that stay keep their levels.
	SL Layers
	// Trunk is Result.Trunk of the tables in force, by switch index of the fabric.
	Trunk []uint8
	// Before is the engine of the tables in force, if it is known: for Result.NoTree, and to
	// keep dimension order where cables go.
	Before string
	// Layers is how many service levels the caller gives lanes of their
	// own; 0 means 1. With several, paths through a torus are the shortest,
	// and those through other graphs without levels nearly so.
	Layers int
	// OwnLevels is set where service levels are chosen for something else: a share of the
	// links, a QoS policy or a partition. Auto takes no layers then, which leave no choice.
	OwnLevels bool
	// Early asks for tables in force that were repaired without a comparison with tables from
	// nothing, which takes most of the time, where such are possible: Result.Early says so.
	Early bool
	// Processors is how many processors the computation may take; 0 means 1. With several
	// a part of the work on large fabrics is done on another one. The tables are the same.
	Processors int
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

// Carry gives the levels by the switch indices of another fabric, from the node GUIDs of
// the switches that they are for. Switches that those lack have level 0.
func (l Layers) Carry(from []ib.GUID, to *fabric.Fabric) Layers {
	if l == nil || len(l) != len(from) {
		return nil
	}
	old := slices.Repeat([]int{-1}, len(to.Switches))
	for i, g := range from {
		if n := to.NodeByGUID(g); n != fabric.None && to.Nodes[n].Switch != fabric.None {
			old[to.Nodes[n].Switch] = i
		}
	}
	out := make(Layers, len(old))
	for a := range out {
		out[a] = make([]uint8, len(old))
		for b := range out {
			if old[a] >= 0 && old[b] >= 0 {
				out[a][b] = l[old[a]][old[b]]
			}
		}
	}
	return out
}

// CarryTrunk gives a trunk by the switch indices of another fabric, as Layers.Carry does.
func CarryTrunk(trunk []uint8, from []ib.GUID, to *fabric.Fabric) []uint8 {
	if trunk == nil || len(trunk) != len(from) {
		return nil
	}
	out := make([]uint8, len(to.Switches))
	for i, g := range from {
		if n := to.NodeByGUID(g); n != fabric.None && to.Nodes[n].Switch != fabric.None {
			out[to.Nodes[n].Switch] = trunk[i]
		}
	}
	return out
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
	// Order are the switches by node GUID from the top down, where the engine
	// has such an order.
	Order []ib.GUID
	// Trunk is the tree that all multicast has to take, by switch index the port towards
	// the root of it, 0 at a root; nil where any tree will do. With the paths of
	// each level it is free of deadlock, whatever the level of a group is.
	Trunk []uint8
	// Worst is the load of the busiest link between switches, counted as pairs
	// of hosts whose flow passes it, once for each LID of the second, more on slower
	// links: by the speed of the fastest link over the link's own. No tables can do with
	// less than Bound, because the hosts of some switch have no more links to the others.
	Worst, Bound float64
	// NoTree is why Auto does not take ftree, where Worst is more than twice Bound or
	// Options.Before is ftree.
	NoTree string
	// Early is set for tables that Build may replace by better ones without Options.Early.
	Early    bool
	Warnings []string
}

// Build makes the forwarding tables of a fabric whose end ports have LIDs.
//
// Auto takes the fat-tree engine where switches form levels, minimum hop where
// that gives no credit loop, dimension order on a mesh, torus or HyperX, and up/down
// elsewhere, or layers where levels have lanes and that relieves the busiest link.
// All of them spread the flows between all pairs of hosts over equally good links.
//
// An engine that is unknown or does not fit the fabric is reported in Warnings and
// the next one is taken: a subnet without routes would be worse. The error is
// ErrNoLIDs only.
func Build(f *fabric.Fabric, opt Options) (Result, error) {
	g, list := pendants(f, opt.Roots)
	r, searched, err := build(g, opt, list)
	if err == nil && r.LFT != nil {
		r.attach(f, list, opt.Previous)
	}
	if searched && !slices.EqualFunc(r.LFT, opt.Previous, slices.Equal) {
		// A search that begins in tables in force may end elsewhere than that from nothing, of which these may be.
		opt.Order, opt.SL, opt.Trunk, opt.Before, opt.Early = nil, nil, nil, "", false
		was := opt.Previous
		opt.Previous = nil
		if n, err := Build(f, opt); err == nil && slices.EqualFunc(n.LFT, was, slices.Equal) {
			return n, nil
		}
	}
	return r, err
}

// build is Build for a fabric without the links of pendant switches. searched reports whether
// tables in force that lead everywhere were the beginning of a search.
func build(f *fabric.Fabric, opt Options, list []pendant) (r Result, searched bool, err error) {
	kinds, hints := kindsOf(f, &opt)
	g := newHinted(f, kinds)
	if g.n == 0 {
		return Result{Engine: Direct, NumLayers: 1}, false, nil
	}
	if g.top == 0 {
		return Result{}, false, ErrNoLIDs
	}
	g.apart, g.procs = g.pairsOf(list), opt.Processors
	roots, lack := rootsOf(f, opt.Roots)
	hints = slices.Concat(hints, lack, g.weighHops(opt.HopWeights), g.orderHosts(opt.HostOrder))
	b := &builder{graph: g, prev: opt.Previous, prior: g.placesOf(opt.Order), roots: roots, early: opt.Early}
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
		if r.Engine != FatTree && len(b.roots) == 0 && (r.Worst > 2*r.Bound || opt.Before == FatTree) {
			levels, _ := b.levels()
			r.NoTree = b.noTree(levels)
		}
		if len(warnings) > 0 {
			warnings[len(warnings)-1] += "; " + r.Engine + " is used instead"
		}
	}
	searched = b.disjoin(&r, &opt)
	if r.Engine == DOR && len(opt.HopWeights) > 0 {
		hints = append(hints, "hop weights have no effect on routing engine dor")
	}
	r.Warnings = slices.Concat(hints, warnings, r.Warnings, g.tooSmall(r.LFT))
	return r, searched, nil
}

// CheckEngines reports the names of Options.Engine that Build would pass over with a
// warning.
func CheckEngines(list string) error {
	var errs []error
	for name := range strings.SplitSeq(list, ",") {
		if _, why := resolve(name); why != "" {
			errs = append(errs, errors.New(why))
		}
	}
	return errors.Join(errs...)
}

// ErrNoLIDs is Build's error for a fabric that LIDs were not assigned to.
var ErrNoLIDs = errors.New("no port of the fabric has a LID, so there is nothing to route to")

// foreign maps the names, in small letters, of engines of opensm and the managers
// derived from it to the engine here that does the same.
var foreign = map[string]string{
	"(null)": Auto, "none": Auto, "auto": Auto,
	// Up/down with the two directions exchanged: the same paths are legal
	// read backwards, and it is as free of deadlocks.
	"dnup": UpDown,
	// Shortest paths, spread by the load that earlier ones left.
	"sssp": MinHop,
	// Dimension order with date lines, on service levels of its own.
	"torus-2qos": DOR,
	// Shortest paths on as many lanes as it takes.
	"dfsssp": Layered, "nue": Layered, "lash": Layered,
	// The adaptive forms differ in tables that these switches get besides.
	"ar_updn": UpDown, "ar_ftree": FatTree, "ar_dor": DOR, "pqft": FatTree, "auto_updn": UpDown,
}

// lacking are engines of opensm without an equivalent here, with the reason in
// the words of a warning.
var lacking = map[string]string{
	"file":        "tables are computed, not loaded",
	"chain":       "one engine routes the whole subnet",
	"chains":      "one engine routes the whole subnet",
	"no_fallback": "a subnet without routes would be worse than one with others",
}

// resolve gives the engine of a name, or why there is none.
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
		if len(b.roots) > 0 {
			b.rooted(r, b.roots)
			return nil
		}
		levels, tree := b.levels()
		if !tree {
			return errors.New("routing engine ftree: the switches do not form a fat-tree: " + b.noTree(levels))
		}
		b.level = levels
		b.ordered(r, b.treeOrder(levels))
	case UpDown:
		b.upDown(r)
	case DOR:
		t := b.grid()
		if t == nil {
			list := b.allRows()
			if len(list) == 0 {
				return errors.New("routing engine dor: the switches form neither a mesh, a torus nor a HyperX")
			}
			b.through(r, list, false)
			return nil
		}
		t.open = t.layers() > min(b.lanes(), max(1, opt.Layers))
		b.dor(r, t)
		b.check(r)
	case Layered:
		y, ok := b.resumed(opt)
		if !ok {
			count, err := b.layersFor(opt)
			if err != nil {
				return err
			}
			y, _ = b.inLayers(count, layeredGain, true)
		}
		*r = y
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
			out = append(out, fmt.Sprintf("switch %s has a forwarding table for %d LIDs, but LIDs up to %d are in use: those from %d on "+
				"are not reached through it",
				g.f.Nodes[s.Node].Name(), n, g.top, n))
		}
	}
	return out
}

type builder struct {
	*graph
	prev  [][]uint8
	prior []float64 // by switch: its place in the order of prev
	roots []int32   // switches that were named as such
	level []int32   // by switch: its level in a tree, nil if it is none
	early bool      // see Options.Early
}

func (b *builder) auto(r *Result, opt Options) {
	layers := min(b.lanes(), opt.Layers) > 1 && len(b.roots) == 0 && !slices.Contains(b.kind, server) && !opt.OwnLevels
	if len(b.roots) == 0 {
		if levels, tree := b.levels(); tree {
			r.Engine, b.level = FatTree, levels
			b.ordered(r, b.treeOrder(levels))
			return
		}
		// Levels with a tree for multicast are those of layers, and stay.
		if layers && opt.Trunk != nil {
			if y, ok := b.resumed(opt); ok {
				*r = y
				return
			}
		}
		// A long ring or a torus always has credit loops under minimum hop;
		// checking first saves building the tables twice.
		if t := b.grid(); t != nil && !t.full() {
			t.open = t.layers() > min(b.lanes(), max(1, opt.Layers))
			layers = layers && t.open
			if (len(t.dims) > 1 || t.layers() > 1 || t.open && b.hop == nil) && b.open(r, t, layers, opt) {
				return
			}
		}
		*r = Result{Engine: MinHop, NumLayers: 1}
		if e := (&minHop{g: b.graph}); b.safe(e) {
			b.assign(r, e)
			return
		}
		if list := b.allRows(); len(list) > 0 && b.hop == nil {
			b.product(r, list, opt.SL == nil && b.settled())
			if layers {
				b.better(r, opt)
			}
			return
		}
	}
	if layers && b.better(r, opt) {
		return
	}
	*r = Result{NumLayers: 1}
	b.irregular(r, opt)
}

// open makes tables by dimension order, or on layers where these are better. It is false
// where they have a credit loop.
func (b *builder) open(r *Result, t *grid, layers bool, opt Options) bool {
	by := *b
	if layers {
		by.prev = nil
	}
	by.dor(r, t)
	if CreditLoop(b.f, r.LFT, r.SL) != nil {
		return false
	}
	if layers && !b.better(r, opt) && b.prev != nil {
		*r = Result{NumLayers: 1}
		b.dor(r, t)
	}
	return true
}

// check warns of credit loops in tables of an engine that was asked for.
func (b *builder) check(r *Result) {
	if loop := CreditLoop(b.f, r.LFT, r.SL); loop != nil {
		r.Warnings = append(r.Warnings, fmt.Sprintf("routing engine %s leaves a credit loop, so the fabric may deadlock: %v", r.Engine, loop))
	}
}

// upDown builds tables for the best order of the switches: that by the roots that were
// named, or else the one that spreads the flows best.
func (b *builder) upDown(r *Result) {
	if len(b.roots) > 0 {
		b.rooted(r, b.roots)
		return
	}
	r.Engine = UpDown
	if b.prior != nil && !b.several() {
		b.keep(r, nil, b.fresh)
		return
	}
	b.ordered(r, b.searched())
}

// searched is the order of the switches that spreads the flows best.
func (b *builder) searched() []int32 {
	few := b.hostSum <= fewHosts && b.hop == nil
	if few && b.prior != nil {
		return b.fewOrder(b.connectedOrder(b.prior))
	}
	levels, _ := b.levels()
	pos := b.bestOrder(0, b.edgeLast(), above(levels), b.remoteness(), b.from(b.centre()))
	if few {
		return b.fewOrder(pos)
	}
	return pos
}

// ordered builds tables for an order of the switches.
func (b *builder) ordered(r *Result, pos []int32) {
	r.Order = b.named(pos)
	b.assign(r, newUpDown(b.graph, pos))
}

// named is an order by node GUID.
func (g *graph) named(pos []int32) []ib.GUID {
	order := make([]ib.GUID, g.n)
	for s, p := range pos {
		order[p] = g.f.Nodes[g.f.Switches[s].Node].GUID
	}
	return order
}

// placesOf gives each switch its place in an order by node GUID; those that it
// does not have come last. nil stays nil.
func (g *graph) placesOf(order []ib.GUID) []float64 {
	if len(order) == 0 {
		return nil
	}
	place := make(map[ib.GUID]float64, len(order))
	for i, guid := range order {
		place[guid] = float64(i)
	}
	rank := make([]float64, g.n)
	for s := range rank {
		if p, ok := place[g.f.Nodes[g.f.Switches[s].Node].GUID]; ok {
			rank[s] = p
		} else {
			rank[s] = float64(len(order))
		}
	}
	return rank
}
