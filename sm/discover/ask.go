package discover

import (
	"bytes"
	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/smp"
)

// turn queues a switch for probing its ports.
func (d *Discovery) turn(i int32) {
	if x := &d.nodes[i]; !x.queued {
		x.queued = true
		d.turns.push(uint64(uint32(i)))
	}
}

// start begins a switch's turn.
func (d *Discovery) start(i int32) {
	if d.turning >= 0 {
		d.nodes[d.turning].explored = true
	}
	if d.grown() {
		d.bound()
	}
	x := &d.nodes[i]
	if d.turning = i; x.out {
		return
	}
	x.queued = false
	if x.recheck {
		d.urgent.push(tag(kSwitch, 1, i, 0))
		return
	}
	d.askPorts(i, 1)
}

// sampled is how many ports of a switch are read first, and worth how many
// others there must be at least to try its table, which takes up to two
// requests.
const (
	sampled = 8
	worth   = 8
)

// askPorts reads a switch's ports from the given one on: the unknown ones, or all
// when the switch is rechecked.
//
// Of a new switch a few ports are read first. Where most of them have no link the
// others may have none either, and many switches have the states of all ports in
// one table (SwitchPortStateTable, an optional attribute since release 1.3 of the
// architecture): then only ports with a link are read one by one.
func (d *Discovery) askPorts(i int32, from int) {
	x := &d.nodes[i]
	var ask []uint8
	for p := from; p < x.ports.n; p++ {
		q := x.ports.at(int(p))
		if !x.recheck && q.known {
			if q.peer < 0 && q.info.State() >= ib.PortInit {
				d.probe(i, uint8(p))
			}
			continue
		}
		if x.recheck || d.wanted(q) {
			ask = append(ask, uint8(p))
		}
	}
	if !x.recheck && x.unknown && !d.opt.Ports && len(ask) >= sampled+worth {
		x.sample, x.down = sampled, 0
		ask, x.rest = ask[:sampled], ask[sampled:]
	}
	x.recheck, x.read = false, true
	for _, p := range ask {
		d.urgent.push(tag(kPort, 1, i, p))
	}
}

// probe queries what is behind a port. A switch at the end of the longest directed
// route would answer for itself.
func (d *Discovery) probe(i int32, p uint8) {
	if x := &d.nodes[i]; len(x.path) >= MaxHops {
		d.far = append(d.far, farPort{i, p})
		return
	}
	d.urgent.push(tag(kProbe, 0, i, p))
}

// farPort is a port at the end of the longest directed route.
type farPort struct {
	node int32
	port uint8
}

// reportFar reports them, by the names that are known at the end of the walk.
func (d *Discovery) reportFar() {
	for _, x := range d.far {
		if n := &d.nodes[x.node]; !n.gone {
			d.problem(x.node, "what is behind port %s[%d] is more than %d hops away, out of reach of directed routes; run the subnet manager "+
				"on a host nearer the middle", n.name(), x.port, MaxHops)
		}
	}
	d.far = nil
}

// wanted reports whether a port's PortInfo is to be read.
func (d *Discovery) wanted(q *dport) bool {
	if q.known {
		return false
	}
	if q.peer >= 0 && !d.opt.Ports {
		// The far end of a link that was found from its other end: what it
		// answers is needed only if it is configured already.
		if o := d.nodes[q.peer].ports.at(int(q.peerP)); o.known && o.info.State() == ib.PortInit {
			return false
		}
	}
	return true
}

// askRest queries the ports of a switch that the sample left.
func (d *Discovery) askRest(i int32) {
	x := &d.nodes[i]
	for _, p := range x.rest {
		if d.wanted(x.ports.at(int(p))) {
			d.urgent.push(tag(kPort, 1, i, p))
		}
	}
	x.rest, x.table = nil, nil
}

// gotSample goes on when the sample has answered.
func (d *Discovery) gotSample(i int32, p uint8) {
	x := &d.nodes[i]
	if x.sample == 0 {
		return
	}
	if q := x.ports.at(int(p)); q.known && q.info.State() < ib.PortInit {
		x.down++
	}
	if x.sample--; x.sample > 0 {
		return
	}
	switch {
	case x.down < sampled*3/4:
		d.askRest(i)
	case !x.ports.at(0).known:
		d.urgent.push(tag(kPort, 3, i, 0)) // its capabilities are the switch's
	default:
		d.askTable(i)
	}
}

// askTable reads the states of all ports if the switch has the table.
func (d *Discovery) askTable(i int32) {
	x := &d.nodes[i]
	if p := x.ports.at(0); !p.known || !p.info.HasPortStateTable() {
		d.askRest(i)
		return
	}
	x.blocks = (x.ports.n + fabric.TablePorts - 1) / fabric.TablePorts
	x.table = make([]byte, 64*x.blocks)
	for b := range x.blocks {
		d.urgent.push(tag(kTable, uint16(b), i, 0))
	}
}

// gotTable reads the ports that have a link by the table of states: four bits for
// each port, coded as PortInfo:PortState, the first in the upper half of a byte.
// A table that contradicts the ports' own answers is not used, and a port without
// a state in it is read.
func (d *Discovery) gotTable(i int32, block int, r *smp.Reply) {
	x := &d.nodes[i]
	if x.table == nil {
		return // it was late, and the ports were asked
	}
	if r.OK() {
		copy(x.table[64*block:], r.Data[:])
	}
	if x.blocks--; x.blocks > 0 {
		return
	}
	state := func(p int) ib.PortState { return fabric.StateInTable(x.table, p) }
	fits := func(p int) bool {
		q := x.ports.at(int(p))
		switch up := state(p) >= ib.PortInit; {
		case q.known:
			return up == (q.info.State() >= ib.PortInit)
		case q.peer >= 0:
			return up
		}
		return true
	}
	for p := 1; p < x.ports.n; p++ {
		if state(p) != 0 && !fits(p) {
			d.lasting(i, "switch %s: the state of port %d in its SwitchPortStateTable is not that of the port", x.name(), p)
			d.askRest(i)
			return
		}
	}
	left := x.rest[:0]
	for _, p := range x.rest {
		if q := x.ports.at(int(p)); state(int(p)) == ib.PortDown && !q.known && q.peer < 0 {
			q.info.SetState(ib.PortDown)
		} else {
			left = append(left, p)
		}
	}
	x.rest, x.table = left, nil
	d.askRest(i)
}

// request makes the SMP of a tag; false when its target cannot be reached.
func (d *Discovery) request(t uint64) (smp.Request, bool) {
	k, extra, i, p := untag(t)
	r := smp.Request{Method: mad.MethodGet, Tag: t}
	if k == kRoot {
		r.Attr = mad.AttrNodeInfo
		return r, true
	}
	if d.dirty {
		d.paths()
	}
	if d.nodes[i].gone {
		return r, false
	}
	x := &d.nodes[i]
	r.Path = x.path
	switch k {
	case kProbe, kVerifyProbe:
		if len(x.path) >= MaxHops {
			return r, false
		}
		r.Attr = mad.AttrNodeInfo
		r.Path = smp.PathTo(x.path, p)
	case kPort, kVerifyPort:
		if r.Attr, r.Mod = mad.AttrPortInfo, uint32(p); !x.noExtSpeeds {
			r.Mod |= smp.ExtendedSpeeds
		}
		if !x.sw() {
			return r, d.caPath(i, p, &r.Path)
		}
	case kSelf, kStill, kCount:
		r.Attr = mad.AttrNodeInfo
	case kDesc:
		r.Attr = mad.AttrNodeDescription
	case kSwitch:
		r.Attr = mad.AttrSwitchInfo
	case kTable:
		r.Attr, r.Mod = mad.AttrSwitchPortState, uint32(extra)
	case kClear:
		r.Attr, r.Method, r.MKey = mad.AttrSwitchInfo, mad.MethodSet, x.ports.at(0).info.MKey()
		si := x.si
		si.SetPortStateChange(true)
		r.Data = si.Wire()
	case kSM:
		r.Attr, r.ShortTimeout = mad.AttrSMInfo, d.opt.ShortSMTimeout
		if !x.sw() {
			return r, d.caPath(i, p, &r.Path)
		}
	}
	return r, true
}

// caPath is the directed route that ends at one port of an adapter.
func (d *Discovery) caPath(i int32, p uint8, path *[]uint8) bool {
	if i == d.root && p == d.rootP {
		*path = nil
		return true
	}
	q := d.nodes[i].ports.at(int(p))
	if q.peer < 0 {
		return false
	}
	o := &d.nodes[q.peer]
	if o.gone || !o.sw() && (q.peer != d.root || q.peerP != d.rootP) {
		return false
	}
	*path = smp.PathTo(o.path, q.peerP)
	return true
}

// paths computes every node's directed route over the links known, breadth
// first, low ports first. Nodes without a way are gone.
func (d *Discovery) paths() {
	d.dirty = false
	seen := make([]bool, len(d.nodes))
	order := make([]int32, 0, len(d.nodes))
	visit := func(i int32, path []uint8, entry uint8) {
		seen[i] = true
		d.nodes[i].path, d.nodes[i].entry = path, entry
		order = append(order, i)
	}
	if d.root >= 0 {
		visit(d.root, nil, d.rootP)
	}
	for k := 0; k < len(order); k++ {
		i := order[k]
		x := &d.nodes[i]
		if !x.sw() && i != d.root || len(x.path) >= MaxHops {
			continue
		}
		for p := range x.ports.n {
			peer, entry := x.ports.link(p)
			if peer < 0 || seen[peer] || !x.sw() && uint8(p) != d.rootP {
				continue
			}
			path := d.nodes[peer].path
			if !extends(path, x.path, uint8(p)) {
				path = smp.PathTo(x.path, uint8(p))
			}
			visit(peer, path, entry)
		}
	}
	for i := range d.nodes {
		d.nodes[i].gone = !seen[i]
	}
}

// extends reports whether a route is another one and a hop more.
func extends(route, to []uint8, hop uint8) bool {
	n := len(to)
	return len(route) == n+1 && route[n] == hop && bytes.Equal(route[:n], to)
}

// lostLink reads the other ends of links of a known switch that lost one: of a switch that
// is off, the traps of its neighbours may be lost, or sent over the switch itself. The first
// time one other link is read: if that is up, only a cable was cut.
func (d *Discovery) lostLink(i int32) {
	if i < 0 || !d.resumed || !d.nodes[i].sw() || d.rereads(i) {
		return
	}
	x := &d.nodes[i]
	if x.lost == 2 {
		return // all are read
	}
	x.lost++
	for p := range x.ports.n {
		j, q := x.ports.link(p)
		if j < 0 || !d.nodes[j].sw() || d.rereads(j) {
			continue
		}
		d.back.push(tag(kPort, 0, j, q))
		if x.lost == 1 {
			return
		}
	}
}

// rereads reports whether the walk reads all ports of a switch.
func (d *Discovery) rereads(i int32) bool {
	return d.nodes[i].queued || d.nodes[i].explored || d.turning == i
}

// askCounts queries the number of ports of switches that reported a change of a port which
// none of their known ports has: a module that is plugged in does not restart the switch.
func (d *Discovery) askCounts() {
	for _, i := range d.stirred {
		if x := &d.nodes[i]; !x.gone && !x.moved {
			d.back.push(tag(kCount, 0, i, 0))
		}
	}
	d.stirred = nil
}

// gotCount reads the ports that a switch has got.
func (d *Discovery) gotCount(i int32, r *smp.Reply) {
	x := &d.nodes[i]
	var ni mad.NodeInfo
	if !r.OK() || ni.Decode(r.Data[:]) != nil || !valid(&ni) || ni.NodeGUID != x.ni.NodeGUID || ni.NodeType != x.ni.NodeType ||
		ni.NumPorts <= x.ni.NumPorts || d.claimed+int(ni.NumPorts-x.ni.NumPorts) >= maxPorts {
		return
	}
	was := x.ports.n
	x.ni.NumPorts = ni.NumPorts
	x.ports.grow(int(ni.NumPorts) + 1)
	d.claimed += x.ports.n - was
	d.res.Changed = true
	d.askPorts(i, was)
}
