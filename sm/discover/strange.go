package discover

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/smp"
)

// Nodes without a GUID, with that of others, or with another one each time do not
// keep the rest from coming up. Each is reported by one sentence, with the place of
// its cable and the next step.

// nameless is an answer without a GUID at a port.
type nameless struct {
	node int32
	port uint8
	ni   mad.NodeInfo
}

// again is the next step after a GUID was mended.
const again = "then: ibnetsm resweep"

// named reports whether the node behind a port can be used with the GUIDs that it
// shows. A switch needs none for its port 0: see ownGUID.
func (d *Discovery) named(i int32, p uint8, ni *mad.NodeInfo) bool {
	if ni.NodeGUID != 0 && (ni.PortGUID != 0 || ni.NodeType == ib.NodeSwitch) {
		return true
	}
	x := &d.nodes[i]
	d.res.SilentAt = append(d.res.SilentAt, x.ni.NodeGUID)
	if len(d.nameless) < most {
		d.nameless = append(d.nameless, nameless{i, p, *ni})
	}
	return false
}

// reportNameless reports the nodes without a GUID. Answers of one kind of switch, of
// which each came out of another port, are taken for one switch.
func (d *Discovery) reportNameless() {
	place := func(a *nameless) string { return fmt.Sprintf("%s[%d]", d.nodes[a.node].name(), a.port) }
	list := d.nameless
	slices.SortFunc(list, func(a, b nameless) int {
		return cmp.Or(strings.Compare(d.nodes[a.node].name(), d.nodes[b.node].name()), cmp.Compare(a.port, b.port))
	})
	for len(list) > 0 {
		first, rest := list[0], list[1:]
		places, seen := []string{place(&first)}, map[uint8]bool{first.ni.LocalPortNum: true}
		alike := first.ni
		list = nil
		for _, a := range rest {
			alike.LocalPortNum, alike.PortGUID = a.ni.LocalPortNum, a.ni.PortGUID
			if alike != a.ni || a.ni.NodeType != ib.NodeSwitch || seen[a.ni.LocalPortNum] {
				list = append(list, a)
				continue
			}
			seen[a.ni.LocalPortNum] = true
			places = append(places, place(&a))
		}
		const few = 4
		if n := len(places) - few; n > 0 {
			places = append(places[:few], fmt.Sprintf("%d more ports", n))
		}
		node, what, behind := "node", "node", ""
		if first.ni.NodeGUID != 0 {
			what = "port"
		}
		if first.ni.NodeType == ib.NodeSwitch {
			node, behind = "switch", " with what is behind it alone"
		}
		path := PathString(smp.PathTo(d.nodes[first.node].path, first.port))
		msg := fmt.Sprintf("the %s at %s, path %s, has %s GUID 0 and is left out%s; write its GUIDs with its firmware tool, %s",
			node, strings.Join(places, ", "), path, what, behind, again)
		d.res.Silent = append(d.res.Silent, msg)
		d.keep(first.node, msg, false)
	}
	d.nameless = nil
}

// samePort gives each end port of what was found a GUID of its own: a switch that of
// its node, and an adapter port with a GUID that is in use is left out. It reports
// whether something had to be changed.
func (d *Discovery) samePort(f *fabric.Fabric) (changed bool) {
	for i := range f.Switches {
		n := f.Switches[i].Node
		changed = f.Ports[f.Port(n, 0)].GUID == 0 && d.ownGUID(d.byGUID[f.Nodes[n].GUID]) || changed
	}
	at := func(k int) (i int32, p uint8) {
		q := &f.Ports[f.EndPorts[k]]
		return d.byGUID[f.Nodes[q.Node].GUID], q.Num
	}
	for k := 1; k < len(f.EndPorts); k++ {
		guid := f.Ports[f.EndPorts[k]].GUID
		if f.Ports[f.EndPorts[k-1]].GUID != guid {
			continue
		}
		i, p := at(k - 1)
		j, q := at(k)
		if j == d.root && q == d.rootP || j < i && (i != d.root || p != d.rootP) {
			i, p, j, q = j, q, i, p
		}
		// Node j is the later one. A switch never makes way for an adapter.
		if d.ownGUID(j) || d.ownGUID(i) {
			changed = true
			continue
		}
		if d.nodes[j].sw() {
			j, q, i, p = i, p, j, q
		}
		o := d.nodes[j].ports.get(int(q))
		if o.peer < 0 || d.nodes[j].sw() {
			continue
		}
		dup := Duplicate{Port: true, GUID: guid, Path: d.nodes[i].path, AtPort: d.cabled(i, p), Other: d.nodes[j].path,
			AtPeer: d.cabled(j, q)}
		d.unlink(o.peer, o.peerP)
		d.res.SilentAt = append(d.res.SilentAt, d.nodes[o.peer].ni.NodeGUID)
		d.res.Duplicates = append(d.res.Duplicates, dup)
		d.keep(o.peer, dup.String(), false)
		changed = true
	}
	return changed
}

// ownGUID gives port 0 of a switch the GUID of its node instead of another one.
func (d *Discovery) ownGUID(i int32) bool {
	x := &d.nodes[i]
	if q := x.ports.at(0); x.sw() && q.guid != x.ni.NodeGUID {
		why := "which another port has too"
		if q.guid == 0 {
			why = "which is none"
		}
		d.lasting(i, "the switch at %s, path %s, has port GUID %v, %s; its node GUID is used instead: write its GUIDs with its firmware tool, %s",
			d.cabled(i, 0), PathString(x.path), q.guid, why, again)
		q.guid = x.ni.NodeGUID
		return true
	}
	return false
}

// cabled returns where a port of a node is cabled.
func (d *Discovery) cabled(i int32, p uint8) string {
	x := &d.nodes[i]
	if x.sw() {
		p = x.entry
	}
	if i != d.root && int(p) < x.ports.n {
		if o := x.ports.get(int(p)); o.peer >= 0 {
			return fmt.Sprintf("%s[%d]", d.nodes[o.peer].name(), o.peerP)
		}
	}
	return "the manager's node"
}

// alike reports whether a node that is found behind two switches may be so because
// these are one, which has shown two GUIDs: it has the same place behind both.
func (d *Discovery) alike(i int32, p uint8, j int32, q uint8) bool {
	x, y := &d.nodes[i], &d.nodes[j]
	return p == q && x.sw() && y.sw() && kindOf(&x.ni) == kindOf(&y.ni)
}

// sameCables reports whether two switches that are alike can be one: no port has a link
// here and none, or another one, there. A device that shows itself as an honest switch has
// its own cable at a port where that switch has another.
func (d *Discovery) sameCables(i, j int32) bool {
	x, y := &d.nodes[i], &d.nodes[j]
	apart := func(a, b *dport) bool {
		return a.peer >= 0 && (b.peer >= 0 || b.known && b.info.State() == ib.PortDown)
	}
	for p := 1; p < x.ports.n; p++ {
		if a, b := x.ports.get(p), y.ports.get(p); apart(&a, &b) || apart(&b, &a) {
			return false
		}
	}
	return true
}

// kindOf is what remains of a NodeInfo when a node has got another GUID.
func kindOf(ni *mad.NodeInfo) mad.NodeInfo {
	k := *ni
	k.NodeGUID, k.PortGUID, k.SystemImageGUID, k.LocalPortNum = 0, 0, 0, 0
	return k
}

// gotSelf settles whether a switch is one with another that is alike: one of the two
// then does not show the GUID any more that it was found with.
func (d *Discovery) gotSelf(i int32, extra uint16, r *smp.Reply) {
	c := d.claims[extra]
	j, ok := d.byGUID[c.ni.NodeGUID]
	if !ok || d.nodes[c.from].out {
		return
	}
	o := d.nodes[j].ports.get(int(c.ni.LocalPortNum))
	if o.peer < 0 || o.peer == c.from || d.nodes[o.peer].out {
		return
	}
	var ni mad.NodeInfo
	switch now := r.OK() && ni.Decode(r.Data[:]) == nil; {
	case now && ni.NodeGUID != d.nodes[i].ni.NodeGUID && d.alike(c.from, c.fromP, o.peer, o.peerP) && d.sameCables(c.from, o.peer):
		d.merge(min(c.from, o.peer), max(c.from, o.peer), &ni)
	case i == c.from:
		d.back.push(tag(kSelf, extra, o.peer, 0))
	default:
		d.duplicate(j, c.from, c.fromP)
	}
}

// merge makes one switch of two, under the GUID that it shows now if that is one of both.
func (d *Discovery) merge(a, b int32, now *mad.NodeInfo) {
	x, y := &d.nodes[a], &d.nodes[b]
	for p := range y.ports.n {
		o := y.ports.get(p)
		if o.peer < 0 {
			continue
		}
		if q := x.ports.at(p); p != 0 && q.peer < 0 {
			*q = o
			d.nodes[o.peer].ports.at(int(o.peerP)).peer = a
		} else {
			d.unlink(b, uint8(p))
		}
	}
	was, other := x.ni.NodeGUID, y.ni.NodeGUID
	d.drop(b)
	d.byGUID[other] = a
	if now.NodeGUID == other {
		x.ni.NodeGUID, x.ports.at(0).guid = other, other
	}
	d.dirty, d.res.Changed = true, true
	d.twoGUIDs = append(d.twoGUIDs, changing{a, was, other})
}

// changing is a switch that has shown two GUIDs.
type changing struct {
	node       int32
	was, other ib.GUID
}

// reportChanging reports each switch that has shown several GUIDs once.
func (d *Discovery) reportChanging() {
	said := map[int32]bool{}
	for _, c := range d.twoGUIDs {
		x := &d.nodes[c.node]
		if said[c.node] || x.gone {
			continue
		}
		said[c.node] = true
		d.lasting(c.node, "the switch at %s, path %s, changes its node GUID: it has shown %v and %v; it is used as %v: restart it or "+
			"write its GUIDs with its firmware tool, %s", d.cabled(c.node, 0), PathString(x.path), c.was, c.other, x.ni.NodeGUID, again)
	}
	d.twoGUIDs, d.replaced = nil, nil
}

// drop forgets a node; what it still answers is ignored.
func (d *Discovery) drop(j int32) {
	x := &d.nodes[j]
	x.out, x.gone = true, true
	d.claimed -= x.ports.n
	x.ports = makePorts(x.ports.n)
	if d.byGUID[x.ni.NodeGUID] == j {
		delete(d.byGUID, x.ni.NodeGUID)
	}
}

// otherShape reports whether two NodeInfo of one GUID are of two nodes, or of one
// that has changed.
func otherShape(a, b *mad.NodeInfo) bool {
	return a.NumPorts != b.NumPorts || a.NodeType != b.NodeType || a.SystemImageGUID != b.SystemImageGUID || a.DeviceID != b.DeviceID
}

// gotStill settles whether a node that is found with other properties has changed
// or is another one: does it still answer as before at its place?
func (d *Discovery) gotStill(j int32, extra uint16, r *smp.Reply) {
	c := d.claims[extra]
	if d.nodes[c.from].out || d.nodes[c.from].ports.at(int(c.fromP)).peer >= 0 {
		return
	}
	y := &d.nodes[j]
	var ni mad.NodeInfo
	if d.replaced[c.ni.NodeGUID] || r.OK() && ni.Decode(r.Data[:]) == nil && ni.NodeGUID == y.ni.NodeGUID && !otherShape(&ni, &y.ni) {
		d.duplicate(j, c.from, c.fromP)
		return
	}
	if y.ni.NumPorts != c.ni.NumPorts {
		d.warn("node %s at %s[%d] has %d ports now and had %d, it is read and configured again; check it if its ports and its "+
			"firmware were not changed", y.name(), d.nodes[c.from].name(), c.fromP, c.ni.NumPorts, y.ni.NumPorts)
	}
	for p := range y.ports.n {
		if o := y.ports.get(p); o.peer >= 0 {
			d.unlink(o.peer, o.peerP)
			if o.peer != c.from || o.peerP != c.fromP {
				d.probe(o.peer, o.peerP)
			}
		}
	}
	d.drop(j)
	if d.replaced == nil {
		d.replaced = map[ib.GUID]bool{}
	}
	d.replaced[c.ni.NodeGUID] = true
	k := d.add(c.ni, smp.PathTo(d.nodes[c.from].path, c.fromP))
	d.link(c.from, c.fromP, k, c.ni)
	// Its other ports were found while the old one was asked.
	for _, n := range d.reshaped[c.ni.NodeGUID] {
		if o := d.claims[n]; !d.nodes[o.from].out && d.nodes[o.from].ports.at(int(o.fromP)).peer < 0 {
			d.probe(o.from, o.fromP)
		}
	}
}
