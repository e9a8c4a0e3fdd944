package explain

import (
	"errors"
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/ib/partition"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/program"
	"ibnetworkd/sm/route"
)

// Change is what the tables of a fabric do before and after it changes.
type Change struct {
	Before, After *Routes
	// Unreachable are the end ports of adapters, by index into Before's ports, that
	// have no way to the others any more and are not on a node that was taken
	// away; Switches the same of nodes that are switches.
	Unreachable, Switches []int32
	Pairs                 int // ordered pairs of hosts that are there before and after
	Moved, Lost           int // of these: with another path, without one that had one
	Entries, Blocks       int // of forwarding tables that are written
	Written               int // switches that they are in
	Tops                  int // switches whose highest LID is set
	Levels                int // of Pairs: with another service level
	Register              int // ports of hosts that are asked to register again for that, by an SMP each
	LoopBefore, LoopAfter []string
}

// Worse reports whether something is lost that was not taken away.
func (c *Change) Worse() bool {
	return len(c.Unreachable) > 0 || len(c.Switches) > 0 || c.Lost > 0 || c.LoopAfter != nil && c.LoopBefore == nil
}

// Without is a fabric as a subnet manager finds it when nodes are off and cables
// are unplugged, by indices into Nodes and Ports: only the largest connected part is
// left. If the manager's port is not in it, the first adapter there replaces it.
func Without(f *fabric.Fabric, off, cut []int32) *fabric.Fabric {
	gone, out := make([]bool, len(f.Nodes)), make([]bool, len(f.Ports))
	for _, n := range off {
		gone[n] = true
	}
	for _, p := range cut {
		out[p] = true
		if q := f.Ports[p].Peer; q != fabric.None {
			out[q] = true
		}
	}
	linked := func(p int32) bool {
		q := f.Ports[p].Peer
		return q != fabric.None && !out[p] && !gone[f.Ports[p].Node] && !gone[f.Ports[q].Node]
	}
	// The manager's part comes first, and wins among equals.
	ends := f.EndPorts
	if f.SMPort != fabric.None {
		ends = append([]int32{f.SMPort}, ends...)
	}
	sm, most := fabric.None, 0
	var part []bool
	seen := make([]bool, len(f.Nodes))
	for _, e := range ends {
		n := f.Ports[e].Node
		if seen[n] || gone[n] || f.Nodes[n].Switch != fabric.None && e != f.SMPort {
			continue
		}
		in, size := reach(f, e, linked), 0
		for i := range in {
			if in[i] {
				seen[i], size = true, size+1
			}
		}
		if size > most {
			sm, most, part = e, size, in
		}
	}
	if sm == fabric.None {
		return fabric.NewBuilder().Build()
	}
	return rebuild(f, sm, part, linked)
}

// reach finds the nodes that directed routes from a port lead to: adapters pass
// nothing on.
func reach(f *fabric.Fabric, from int32, linked func(p int32) bool) []bool {
	in := make([]bool, len(f.Nodes))
	queue := []int32{f.Ports[from].Node}
	in[queue[0]] = true
	for i := 0; i < len(queue); i++ {
		n := queue[i]
		if i > 0 && f.Nodes[n].Switch == fabric.None {
			continue
		}
		first, count := f.PortRange(n)
		for p := first; p < first+count; p++ {
			if !linked(p) || i == 0 && f.Nodes[n].Switch == fabric.None && p != from {
				continue
			}
			if m := f.Ports[f.Ports[p].Peer].Node; !in[m] {
				in[m] = true
				queue = append(queue, m)
			}
		}
	}
	return in
}

// rebuild copies some nodes and their links.
func rebuild(f *fabric.Fabric, sm int32, in []bool, linked func(p int32) bool) *fabric.Fabric {
	b := fabric.NewBuilder()
	b.SetPrefix(f.Prefix)
	num := make([]int, len(f.Nodes))
	for i := range f.Nodes {
		if !in[i] {
			continue
		}
		n := f.Nodes[i]
		num[i], _ = b.AddNode(n) // as it was in a fabric, it fits in one
		if n.Switch != fabric.None {
			b.SetSwitchInfo(num[i], f.Switches[n.Switch].Info)
		}
		first, count := f.PortRange(int32(i))
		for p := first; p < first+count; p++ {
			q := &f.Ports[p]
			to := b.Port(num[i], q.Num)
			*to = *q
			to.Peer = 0 // Build sets it
			if there := linked(p) && in[f.Ports[q.Peer].Node]; q.Peer != fabric.None && !there {
				to.Info.SetState(ib.PortDown)
				if n.Switch == fabric.None && p != sm {
					to.GUID, to.LID, to.Known = 0, 0, false // a walk does not come by this port
				}
			}
		}
	}
	for p := range int32(len(f.Ports)) {
		if q := &f.Ports[p]; linked(p) && p < q.Peer && in[q.Node] && in[f.Ports[q.Peer].Node] {
			_ = b.Link(num[q.Node], q.Num, num[f.Ports[q.Peer].Node], f.Ports[q.Peer].Num)
		}
	}
	b.SetSM(num[f.Ports[sm].Node], f.Ports[sm].Num)
	return b.Build()
}

// Compare computes the tables after nodes go off and cables are taken out, and
// compares them with those before.
func Compare(before *Routes, off, cut []int32, opt Options) (*Change, error) {
	f := before.Fabric
	rest := Without(f, off, append(before.unused(), cut...))
	if len(rest.Nodes) == 0 {
		return nil, errNothing
	}
	after, err := Compute(rest, opt, before)
	if err != nil {
		return nil, err
	}
	c := &Change{Before: before, After: after}
	gone := map[int32]bool{}
	for _, n := range off {
		gone[n] = true
	}
	whole := Without(f, nil, before.unused())
	for _, e := range f.EndPorts {
		p := &f.Ports[e]
		if gone[p.Node] || whole.EndPortByGUID(p.GUID) == fabric.None || rest.EndPortByGUID(p.GUID) != fabric.None {
			continue
		}
		if f.Nodes[p.Node].Switch != fabric.None {
			c.Switches = append(c.Switches, p.Node)
		} else if p.Peer != fabric.None {
			c.Unreachable = append(c.Unreachable, e)
		}
	}
	c.written()
	c.paths()
	c.levels()
	// Without the levels of its layers nothing can be said about a table.
	if len(before.LFT) > 0 && (before.SL != nil || before.NumLayers <= 1) {
		c.LoopBefore = route.CreditLoop(f, before.LFT, before.SL)
	}
	if len(after.LFT) > 0 {
		c.LoopAfter = route.CreditLoop(after.Fabric, after.LFT, after.SL)
	}
	return c, nil
}

var errNothing = errors.New("no adapter is left, so there is nothing to route")

// written counts what has to be written to the switches that are left.
func (c *Change) written() {
	f := c.After.Fabric
	have, sets := carried(c.Before, f), map[uint64]bool{}
	if first := c.After.repaired; first != nil {
		c.step(have, first, sets)
		have = first
	}
	c.step(have, c.After.LFT, sets)
	c.Written = len(sets)
	if len(c.Before.Fabric.LIDs()) != len(f.LIDs()) {
		c.Tops = len(f.Switches)
	}
}

// step counts what differs between two tables, and adds the switches to sets.
func (c *Change) step(have, want [][]uint8, sets map[uint64]bool) {
	l := program.LFT{Fabric: c.After.Fabric, Have: have, Want: want}
	for {
		r, ok := l.Next()
		if !ok {
			break
		}
		sets[r.Tag] = true
		row := have[r.Tag]
		for k, p := range r.Data {
			was := route.NoPort
			if i := int(r.Mod)*program.LFTBlock + k; i < len(row) {
				was = row[i]
			}
			if was != p {
				c.Entries++
			}
		}
	}
	c.Blocks += l.Count
}

// levels counts what follows from other service levels, as the manager does: paths that a
// host may remember must not have an old level on the new tables. The tables of lanes depend
// on links only, and are not written again.
func (c *Change) levels() {
	f, g := c.Before.Fabric, c.After.Fabric
	was, now := c.Before.SL.Carry(f.SwitchGUIDs(), g), c.After.SL
	if was == nil && now == nil {
		return
	}
	known, changed, hosts := make([]bool, len(g.Switches)), make([]bool, len(g.Switches)), make([]int, len(g.Switches))
	for s := range g.Switches {
		known[s] = f.NodeByGUID(g.Nodes[g.Switches[s].Node].GUID) != fabric.None
	}
	for _, e := range g.EndPorts {
		if s, port := g.SwitchOf(e); s != fabric.None && port != 0 && f.EndPortByGUID(g.Ports[e].GUID) != fabric.None {
			hosts[s]++
		}
	}
	for a := range int32(len(changed)) {
		for b := range int32(len(changed)) {
			if a != b && known[a] && known[b] && was.SL(a, b) != now.SL(a, b) {
				changed[a], changed[b] = true, true
				c.Levels += hosts[a] * hosts[b]
			}
		}
	}
	own := slices.ContainsFunc(c.After.Groups, func(p partition.Precreated) bool { return p.SL != 0 })
	for _, e := range g.EndPorts {
		if s, _ := g.SwitchOf(e); s != fabric.None && g.Ports[e].Num != 0 && (changed[s] || own && (was == nil) != (now == nil)) {
			c.Register++
		}
	}
}

// states of a switch on the way to one destination.
const (
	unseen uint8 = iota
	same
	moved
	lost
	none // had no path before
)

// paths counts the pairs of hosts whose path differs.
func (c *Change) paths() {
	f, g := c.Before.Fabric, c.After.Fabric
	to := make([]int32, len(f.Switches)) // switch index in g, None if it is gone
	hosts := make([]int, len(f.Switches))
	for s := range f.Switches {
		to[s] = fabric.None
		if n := g.NodeByGUID(f.Nodes[f.Switches[s].Node].GUID); n != fabric.None {
			to[s] = g.Nodes[n].Switch
		}
	}
	var ends []int32
	for _, e := range f.EndPorts {
		p := &f.Ports[e]
		s, out := f.SwitchOf(e)
		x := g.EndPortByGUID(p.GUID)
		if s == fabric.None || out == 0 || x == fabric.None || !p.LID.IsUnicast() {
			continue
		}
		if t, _ := g.SwitchOf(x); t == fabric.None || t != to[s] {
			continue
		}
		hosts[s]++
		ends = append(ends, e)
	}
	c.Pairs = len(ends) * (len(ends) - 1)
	state := make([]uint8, len(f.Switches))
	var trail []int32
	for _, e := range ends {
		clear(state)
		d, out := f.SwitchOf(e)
		state[d] = same
		if c.entry(c.Before.LFT, d, f.Ports[e].LID) != out {
			state[d] = none
		}
		for s := range int32(len(f.Switches)) {
			n := hosts[s]
			if s == d {
				n-- // not to itself
			}
			if n <= 0 {
				continue
			}
			switch c.pathState(state, &trail, to, s, d, f.Ports[e].LID) {
			case moved:
				c.Moved += n
			case lost:
				c.Lost += n
			}
		}
	}
}

func (c *Change) entry(lft [][]uint8, s int32, lid ib.LID) uint8 {
	if s == fabric.None || int(s) >= len(lft) || int(lid) >= len(lft[s]) {
		return route.NoPort
	}
	return lft[s][lid]
}

// pathState compares the path from a switch before with that after, and remembers
// the answer of each switch on the path before.
func (c *Change) pathState(state []uint8, trail *[]int32, to []int32, s, d int32, lid ib.LID) uint8 {
	f := c.Before.Fabric
	*trail = (*trail)[:0]
	at := s
	for state[at] == unseen {
		*trail = append(*trail, at)
		state[at] = none // in a loop it stays so
		out := f.Port(f.Switches[at].Node, c.entry(c.Before.LFT, at, lid))
		if out == fabric.None || f.Ports[out].Peer == fabric.None {
			break
		}
		next := f.Nodes[f.Ports[f.Ports[out].Peer].Node].Switch
		if next == fabric.None {
			break
		}
		at = next
	}
	for i := len(*trail) - 1; i >= 0; i-- {
		was := (*trail)[i]
		next := state[at]
		at = was
		switch {
		case next == none || next == unseen:
			state[was] = none
		case c.entry(c.After.LFT, to[was], lid) == c.entry(c.Before.LFT, was, lid) && next == same:
			state[was] = same
		case c.arrives(to[was], to[d], lid):
			state[was] = moved
		default:
			state[was] = lost
		}
	}
	return state[s]
}

// arrives reports whether the tables after lead from a switch to the one that
// delivers a LID.
func (c *Change) arrives(s, d int32, lid ib.LID) bool {
	g := c.After.Fabric
	for range len(g.Switches) + 1 {
		if s == fabric.None || s == d {
			return s == d && s != fabric.None
		}
		out := g.Port(g.Switches[s].Node, c.entry(c.After.LFT, s, lid))
		if out == fabric.None || g.Ports[out].Peer == fabric.None {
			return false
		}
		s = g.Nodes[g.Ports[g.Ports[out].Peer].Node].Switch
	}
	return false
}
