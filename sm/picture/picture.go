// Package picture draws a subnet: as SVG for people and as DOT for Graphviz.
//
// It is a function from a Fabric to text: no clock, no file. The layout follows
// the shape: meshes and tori as grids, fat-trees of three levels as pods below
// their core switches, other trees in levels with the adapters below their leaf,
// anything else by springs. Where there are many adapters or switches they are
// summarized as counts, and what is not as it should be keeps a colour of its own.
//
// Called by the subnet manager's socket and by ibnetctl.
package picture

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/route"
)

const (
	foldAbove   = 200  // more adapters are counts
	springs     = 240  // most switches that springs place
	linesAtMost = 3000 // with more within pods each row of switches is one box
	char        = 6.7  // width of a character at fontSize
	fontSize    = 11
	rowHeight   = 20
	margin      = 24
)

// The state of a link or of a bundle of links: the worst of its links.
type state uint8

const (
	active state = iota
	reduced
	waiting // Initializing or Armed
	down
)

var colours = [...]string{active: "#3a8a3a", reduced: "#d07a00", waiting: "#b09000", down: "#c03030"}

// bundle is all links between two nodes.
type bundle struct {
	a, b  int32
	n     int
	bad   int // links that are not active
	state state
	title string // the first links
}

// leaf is what is attached to a switch.
type leaf struct {
	hosts []int32 // adapters and routers, by port
	links map[int32]*bundle
	n     int // links
	bad   int
	state state
	sm    bool
}

// model is the fabric as it is drawn.
type model struct {
	f       *fabric.Fabric
	health  *fabric.Health
	bundles []*bundle         // between switches, or where one end is drawn elsewhere
	leaves  map[int32]*leaf   // by switch node
	loose   []int32           // adapters on no switch
	sw      []int32           // switch nodes
	at      map[int32][]int32 // neighbours of a switch among switches
	level   []int32           // by node
	hosts   int
	sm      int32
	fold    bool
}

func build(f *fabric.Fabric) *model {
	m := &model{f: f, health: f.Health(), leaves: map[int32]*leaf{}, at: map[int32][]int32{}, level: levels(f), sm: fabric.None}
	if f.SMPort != fabric.None {
		m.sm = f.Ports[f.SMPort].Node
	}
	home := make([]int32, len(f.Nodes)) // the switch that an adapter is drawn at
	for i := range f.Nodes {
		n := int32(i)
		home[i] = fabric.None
		if f.Nodes[i].Switch != fabric.None {
			m.sw = append(m.sw, n)
			m.leaves[n] = &leaf{links: map[int32]*bundle{}}
			continue
		}
		m.hosts++
		first, count := f.PortRange(n)
		for p := first; p < first+count && home[i] == fabric.None; p++ {
			if q := f.Ports[p].Peer; q != fabric.None && f.Nodes[f.Ports[q].Node].Switch != fabric.None {
				home[i] = f.Ports[q].Node
			}
		}
		if home[i] == fabric.None {
			m.loose = append(m.loose, n)
		}
	}
	m.fold = m.hosts > foldAbove
	between := map[[2]int32]*bundle{}
	for i := range f.Ports {
		p := &f.Ports[i]
		if p.Peer == fabric.None || p.Peer < int32(i) {
			continue
		}
		q := &f.Ports[p.Peer]
		a, b := p.Node, q.Node
		if a == b {
			continue // a link back to the same switch carries nothing
		}
		st := m.stateOf(int32(i))
		title := fmt.Sprintf("%s - %s: %s%s %v", f.PortName(int32(i)), f.PortName(p.Peer), p.Info.WidthName(), p.Info.SpeedName(),
			min(p.Info.State(), q.Info.State()))
		if f.Nodes[a].Switch == fabric.None && f.Nodes[b].Switch != fabric.None {
			a, b = b, a
		}
		if l := m.leaves[a]; l != nil && f.Nodes[b].Switch == fabric.None && (home[b] == a || m.fold) {
			if home[b] == a && l.links[b] == nil {
				l.hosts = append(l.hosts, b)
				l.sm = l.sm || b == m.sm
			}
			l.links[b] = add(l.links[b], a, b, st, title)
			l.n++
			if st != active {
				l.bad++
			}
			l.state = max(l.state, st)
			continue
		}
		key := [2]int32{min(a, b), max(a, b)}
		if between[key] == nil {
			between[key] = &bundle{a: key[0], b: key[1]}
			m.bundles = append(m.bundles, between[key])
		}
		add(between[key], key[0], key[1], st, title)
	}
	for _, b := range m.bundles {
		if f.Nodes[b.a].Switch != fabric.None && f.Nodes[b.b].Switch != fabric.None {
			m.at[b.a], m.at[b.b] = append(m.at[b.a], b.b), append(m.at[b.b], b.a)
		}
	}
	for n, l := range m.leaves {
		slices.SortFunc(l.hosts, func(x, y int32) int { return cmp.Or(cmp.Compare(m.portTo(n, x), m.portTo(n, y)), cmp.Compare(x, y)) })
	}
	return m
}

// add counts a link in its bundle.
func add(b *bundle, x, y int32, st state, title string) *bundle {
	if b == nil {
		b = &bundle{a: x, b: y}
	}
	b.n++
	if st != active {
		b.bad++
	}
	if b.n <= 8 && (b.n == 1 || st >= b.state) {
		if b.title != "" {
			b.title += "\n"
		}
		b.title += title
	}
	b.state = max(b.state, st)
	return b
}

func (m *model) portTo(sw, host int32) uint8 {
	first, count := m.f.PortRange(sw)
	for p := first; p < first+count; p++ {
		if q := m.f.Ports[p].Peer; q != fabric.None && m.f.Ports[q].Node == host {
			return m.f.Ports[p].Num
		}
	}
	return 0
}

func (m *model) stateOf(port int32) state {
	p := &m.f.Ports[port]
	st := min(p.Info.State(), m.f.Ports[p.Peer].Info.State())
	a, _ := m.health.Link(port)
	b, _ := m.health.Link(p.Peer)
	switch {
	case st < ib.PortInit:
		return down
	case st < ib.PortActive:
		return waiting
	case (a|b)&(fabric.Narrow|fabric.Slow|fabric.Behind) != 0:
		return reduced
	}
	return active
}

// levels gives adapters 0 and switches their distance from the next adapter; a
// switch that none is near to is 1.
func levels(f *fabric.Fabric) []int32 {
	level := make([]int32, len(f.Nodes))
	var queue []int32
	for i := range f.Nodes {
		level[i] = -1
		if f.Nodes[i].Switch == fabric.None {
			level[i] = 0
			queue = append(queue, int32(i))
		}
	}
	for k := 0; k < len(queue); k++ {
		first, count := f.PortRange(queue[k])
		for p := first; p < first+count; p++ {
			if q := f.Ports[p].Peer; q != fabric.None && level[f.Ports[q].Node] < 0 {
				level[f.Ports[q].Node] = level[queue[k]] + 1
				queue = append(queue, f.Ports[q].Node)
			}
		}
	}
	for i := range level {
		if level[i] < 0 {
			level[i] = 1
		}
	}
	return level
}

// pods are the parts that are left of the switches without those of the highest
// level, nil where the fabric is no tree of three levels.
func (m *model) pods() (pods [][]int32, core []int32) {
	top := int32(0)
	for _, s := range m.sw {
		top = max(top, m.level[s])
	}
	if top < 3 {
		return nil, nil
	}
	seen := map[int32]bool{}
	for _, s := range m.sw {
		if m.level[s] == top {
			core = append(core, s)
			seen[s] = true
		}
	}
	for _, s := range m.sw {
		if seen[s] {
			continue
		}
		part := []int32{s}
		seen[s] = true
		for k := 0; k < len(part); k++ {
			for _, t := range m.at[part[k]] {
				if !seen[t] {
					seen[t] = true
					part = append(part, t)
				}
			}
		}
		pods = append(pods, part)
	}
	if len(pods) < 2 {
		return nil, nil
	}
	return pods, core
}

// layered reports whether most links between switches lead from one level to
// another.
func (m *model) layered() bool {
	flat, n := 0, 0
	for _, b := range m.bundles {
		if m.f.Nodes[b.a].Switch == fabric.None || m.f.Nodes[b.b].Switch == fabric.None {
			continue
		}
		n++
		if m.level[b.a] == m.level[b.b] {
			flat++
		}
	}
	return 3*flat <= n
}

// draw lays the fabric out.
func draw(f *fabric.Fabric) *drawing {
	m := build(f)
	d := &drawing{}
	grid := (*route.Grid)(nil)
	if len(m.sw) >= 4 {
		if grid = route.GridOf(f); grid != nil {
			grid = joinPairs(grid)
		}
	}
	pods, core := m.pods()
	switch {
	case grid != nil && (len(grid.Size) == 2 || len(grid.Size) == 3):
		m.grid(d, grid)
	case pods != nil:
		m.podded(d, pods, core)
	case len(m.sw) > springs:
		m.heap(d)
	case m.layered():
		m.levelled(d)
	default:
		m.sprung(d)
	}
	m.looseHosts(d)
	m.legend(d)
	d.finish()
	return d
}

func plural(n int, one, many string) string {
	if n == 1 {
		return fmt.Sprintf("%d %s", n, one)
	}
	return fmt.Sprintf("%d %s", n, many)
}

// short is a name of at most n characters.
func short(s string, n int) string {
	r := []rune(s)
	if len(r) > n {
		r = append(r[:n-1], '…')
	}
	return string(r)
}

func textWidth(s string) float64 { return math.Ceil(float64(len([]rune(s)))*char) + 12 }
