package engine

import (
	"context"
	"hash/fnv"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/program"
	"ibnetworkd/sm/qos"
	"ibnetworkd/sm/smp"
)

// setLanes gives ports the lanes and mappings that routes count on, before the tables
// that need them. Where a switch does not take them, routes do without.
func (w *sweep) setLanes(ctx context.Context) error {
	s := w.s
	for s.prog.want.qos != nil {
		if err := w.writeLanes(ctx); err != nil {
			return err
		}
		fewer, mapped := w.fewerLanes(), w.unmappedChanged()
		if fewer || mapped {
			s.prog.reroute = true
			if err := w.route(ctx); err != nil {
				return err
			}
		}
		if !fewer {
			break
		}
	}
	return nil
}

// writeLanes raises the lanes of links in use, and writes the mappings.
func (w *sweep) writeLanes(ctx context.Context) error {
	var raise []smp.Request
	for i := range int32(len(w.f.Ports)) {
		if !betweenSwitches(w.f, i) || w.have.kept[i] {
			continue
		}
		if n := laneCount(&w.f.Ports[i]); n > 0 && n < qos.VLs(w.pol.VLs[i]) {
			if r, ok := program.OperVLs(w.f, i, w.pol.VLs[i]); ok {
				raise = append(raise, r)
			}
		}
	}
	w.sets += len(raise)
	tried := tags(raise)
	if err := w.send(ctx, raise); err != nil {
		return err
	}
	for _, i := range tried {
		if n := laneCount(&w.f.Ports[i]); n > 0 && n < qos.VLs(w.pol.VLs[i]) {
			w.have.kept[i] = true
			w.s.warnOnce("lanes"+w.f.PortName(int32(i)), "link in use keeps fewer virtual lanes than it could have until it goes down",
				"link_port", w.f.PortName(int32(i)), "lanes", n)
		}
	}
	reqs := program.QoS(w.f, w.s.prog.want.qos, &w.have.lanes)
	if len(reqs) > 0 {
		if err := w.forgetLanes(ctx); err != nil {
			return err
		}
	}
	w.have.lanes.Wrote(w.f, w.s.prog.want.qos, reqs)
	w.sets += len(reqs)
	clear(w.unmapped)
	return w.send(ctx, reqs)
}

// nodeLanes is what is remembered of the tables of lanes of a node: for each port the sum of
// its tables without the two lowest bits. These are Lanes.In, and whether the tables are
// written.
type nodeLanes struct {
	Node ib.GUID  `json:"node"`
	Sums []uint32 `json:"sums"`
}

// laneSum is the sum of the tables that an output port should have.
func laneSum(t *qos.Tables, i int32) uint32 {
	h := fnv.New32a()
	m, low, high := t.SLtoVL(i), t.VLArb(i, 1), t.VLArb(i, 3)
	h.Write(high.Append(low.Append(m.Append([]byte{t.OperVLs(i)}))))
	return h.Sum32() &^ 3
}

// sumLanes gives what is remembered of tables of lanes.
func sumLanes(f *fabric.Fabric, t *qos.Tables, have *program.Lanes) (out []nodeLanes) {
	for n := range f.Nodes {
		first, count := f.PortRange(int32(n))
		l := nodeLanes{Node: f.Nodes[n].GUID}
		for i := first; i < first+count; i++ {
			var sum uint32
			if have.VLs[i] != 0 && have.VLs[i] == t.OperVLs(i) {
				sum = laneSum(t, i) | 2
			}
			if have.In[i] {
				sum |= 1
			}
			l.Sums = append(l.Sums, sum)
		}
		out = append(out, l)
	}
	return out
}

// recalledLanes gives the tables of lanes that a manager with LID sm wrote before it ended, as
// far as its links stayed up since, no other manager has set the node, and it has not restarted
// so that its forwarding table is empty.
func recalledLanes(f *fabric.Fabric, t *qos.Tables, was []nodeLanes, sm ib.LID, lft [][]uint8) program.Lanes {
	out := program.Lanes{VLs: make([]uint8, len(f.Ports)), In: make([]bool, len(f.Ports))}
	up := func(i int32) bool {
		p := &f.Ports[i]
		return p.Known && p.Info.State() >= ib.PortArmed && p.Info.OperVLs() == t.OperVLs(i)
	}
	for _, l := range was {
		n := f.NodeByGUID(l.Node)
		if n == fabric.None {
			continue
		}
		first, count := f.PortRange(n)
		if len(l.Sums) != int(count) {
			continue
		}
		sw := f.Nodes[n].Switch != fabric.None
		if sw && (f.Ports[first].Info.MasterSMLID() != sm || isBlank(lft, int(f.Nodes[n].Switch))) {
			continue
		}
		for k := range count {
			i := first + k
			p, sum := &f.Ports[i], l.Sums[k]
			if p.Num == 0 || p.Peer == fabric.None || !sw && p.Info.MasterSMLID() != sm {
				continue
			}
			// A first sweep reads one end of most links.
			if known := p.Known || f.Ports[p.Peer].Known; !known || p.Known && !up(i) || f.Ports[p.Peer].Known && !up(p.Peer) {
				continue
			}
			out.In[i] = sum&1 != 0
			if sum&2 != 0 && sum&^3 == laneSum(t, i) {
				out.VLs[i] = t.OperVLs(i)
			}
		}
	}
	return out
}

// laneCount is the number of lanes of a link in use, 0 where they are not known.
func laneCount(p *fabric.Port) int {
	if p.Peer == fabric.None || p.Num == 0 || !p.Known || p.Info.State() < ib.PortArmed {
		return 0
	}
	return qos.VLs(p.Info.OperVLs())
}

// fewerLanes reports whether a link in use kept fewer lanes than routes count on.
func (w *sweep) fewerLanes() bool {
	for i := range w.f.Ports {
		if n := laneCount(&w.f.Ports[i]); w.have.kept[i] && n > 0 && n < qos.VLs(w.pol.VLs[i]) {
			return true
		}
	}
	return false
}

// lanesInUse has by port how many lanes a link in use keeps, 0 where it can have others:
// between switches what they did not take more than, to hosts what there is. The second is
// the fewest between switches, at most 15.
func (w *sweep) lanesInUse() (out []uint8, fewest int) {
	out, fewest = make([]uint8, len(w.f.Ports)), 15
	for i := range w.f.Ports {
		p, n := &w.f.Ports[i], laneCount(&w.f.Ports[i])
		if n == 0 {
			w.have.kept[i] = false
			continue
		}
		between := betweenSwitches(w.f, int32(i))
		if between && !w.have.kept[i] {
			continue
		}
		if between {
			fewest = min(fewest, n)
		}
		for _, e := range [2]int32{int32(i), p.Peer} {
			if out[e] == 0 || int(out[e]) > n {
				out[e] = uint8(n)
			}
		}
	}
	return out, fewest
}

// unmappedChanged notes the switches whose mappings are not written, where routes need
// them, and reports whether routes have to do without levels now, or no longer.
func (w *sweep) unmappedChanged() bool {
	s := w.s
	without := len(s.prog.noVLs) > 0
	for g, refused := range s.prog.noVLs {
		n := w.f.NodeByGUID(g)
		if _, failed := w.unmapped[n]; refused || failed || n == fabric.None {
			continue
		}
		if _, ok := program.PathTo(w.f, w.f.Port(n, 0)); ok {
			delete(s.prog.noVLs, g)
		}
	}
	if without || s.prog.want.layers > 1 {
		for n, refused := range w.unmapped {
			g := w.f.Nodes[n].GUID
			s.prog.noVLs[g] = s.prog.noVLs[g] || refused
			s.warnOnce("noVLs"+g.String(), "SL-to-VL table of a switch is not written; routing without service levels", "node",
				w.f.Nodes[n].Name(), "guid", g.String(), "refused", refused)
		}
	}
	w.regained = w.regained || without && len(s.prog.noVLs) == 0
	return without != (len(s.prog.noVLs) > 0)
}

// forgetUnmapped drops those that left the subnet.
func (w *sweep) forgetUnmapped() {
	without := len(w.s.prog.noVLs) > 0
	for g := range w.s.prog.noVLs {
		if w.f.NodeByGUID(g) == fabric.None {
			delete(w.s.prog.noVLs, g)
		}
	}
	w.regained = without && len(w.s.prog.noVLs) == 0
}

// betweenSwitches reports whether a port has a link from a switch to another.
func betweenSwitches(f *fabric.Fabric, i int32) bool {
	p := &f.Ports[i]
	return p.Num != 0 && p.Peer != fabric.None && f.Nodes[p.Node].Switch != fabric.None && f.Nodes[f.Ports[p.Peer].Node].Switch != fabric.None
}
