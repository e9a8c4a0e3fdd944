package explain

import (
	"fmt"
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/route"
)

// Choice is a port by which a switch could send a packet on.
type Choice struct {
	Port  uint8
	Flows int64 // pairs of hosts whose flow leaves by it
}

// Hop is a link on a path.
type Hop struct {
	Out, In int32 // ports, by index into Fabric.Ports
	VL      ib.VL
	Flows   int64    // over the link, 0 where an adapter is at one end
	Choices []Choice // of the switch that sends, the port taken among them
	Why     string   // why this port
}

// Path is the way of packets from one end port to a LID.
type Path struct {
	From, To   int32 // end ports
	SLID, DLID ib.LID
	SL         ib.SL
	Hops       []Hop
	// Broken is why packets do not arrive, a sentence, and Next what to do; both
	// are empty for a path that leads to its end.
	Broken, Next string
}

const (
	nextSweep  = "let the subnet manager write the tables again: ibnetsm resweep --full"
	nextCable  = "check cable and port: ibnetctl sm topology --bad"
	nextManage = "check that a subnet manager serves the subnet: ibnetctl sm status"
)

// Level is the service level that routing wants between two end ports.
func (r *Routes) Level(from, to int32) ib.SL {
	a, _ := r.Fabric.SwitchOf(from)
	b, _ := r.Fabric.SwitchOf(to)
	if a == fabric.None || b == fabric.None || a == b {
		return 0
	}
	return r.SL.SL(a, b)
}

// Path follows the tables from an end port to a LID on a service level.
func (r *Routes) Path(from int32, slid ib.LID, to int32, dlid ib.LID, sl ib.SL) Path {
	f := r.Fabric
	p := Path{From: from, To: to, SLID: slid, DLID: dlid, SL: sl}
	for _, e := range []int32{from, to} {
		if !f.Ports[e].LID.IsUnicast() {
			p.Broken, p.Next = fmt.Sprintf("%s has no LID", f.PortName(e)), nextManage
			return p
		}
	}
	seen := map[int32]bool{}
	in := fabric.None
	for at := from; at != to; {
		node := f.Ports[at].Node
		switch {
		case len(p.Hops) > 0 && f.Nodes[node].Switch == fabric.None:
			p.Broken, p.Next = fmt.Sprintf("the tables lead to %s, which is not the destination", f.PortName(at)), nextSweep
			return p
		case seen[node]:
			p.Broken, p.Next = fmt.Sprintf("the tables lead in a loop: %s is reached again", f.Nodes[node].Name()), nextSweep
			return p
		}
		seen[node] = true
		h := Hop{Out: at}
		if sw := f.Nodes[node].Switch; sw != fabric.None {
			if h.Out = r.next(&p, sw); h.Out == fabric.None {
				return p
			}
			if h.Out == to {
				return p // port 0
			}
			r.choices(&h, sw, dlid)
		} else {
			h.Why = "the adapter's port"
		}
		if h.In = f.Ports[h.Out].Peer; h.In == fabric.None {
			p.Broken, p.Next = fmt.Sprintf("port %s has no link", f.PortName(h.Out)), nextCable
			if h.Out != from {
				p.Broken = fmt.Sprintf("LID %d leaves %s by port %d, which has no link", dlid, f.Nodes[node].Name(), f.Ports[h.Out].Num)
			}
			return p
		}
		h.VL = r.lane(in, h.Out, p.SL)
		p.Hops = append(p.Hops, h)
		if st := r.state(h.Out); st != ib.PortActive {
			p.Broken, p.Next = fmt.Sprintf("the link at %s is %v, and data passes Active links only", f.PortName(h.Out), st), nextManage
			return p
		}
		at, in = h.In, h.In
	}
	return p
}

// next is the port by which a switch sends the path's packets; None ends the path.
func (r *Routes) next(p *Path, sw int32) int32 {
	f := r.Fabric
	node := f.Switches[sw].Node
	name := f.Nodes[node].Name()
	var row []uint8
	if int(sw) < len(r.LFT) {
		row = r.LFT[sw]
	}
	switch {
	case row == nil:
		p.Broken, p.Next = fmt.Sprintf("the forwarding table of %s could not be read", name), "run the command again"
		return fabric.None
	case int(p.DLID) >= len(row) || row[p.DLID] == route.NoPort:
		p.Broken, p.Next = fmt.Sprintf("%s has no entry for LID %d, so it drops the packets", name, p.DLID), nextSweep
		if to, _ := f.SwitchOf(p.To); to == fabric.None || !connected(f, sw, to) {
			p.Broken = fmt.Sprintf("no cables lead from %s to %s", name, f.PortName(p.To))
			p.Next = nextCable
		}
		return fabric.None
	}
	out := f.Port(node, row[p.DLID])
	switch {
	case out == fabric.None:
		p.Broken, p.Next = fmt.Sprintf("the entry of %s for LID %d is port %d, which it does not have", name, p.DLID, row[p.DLID]), nextSweep
	case f.Ports[out].Num == 0 && out != p.To:
		p.Broken, p.Next = fmt.Sprintf("the entry of %s for LID %d is port 0: it keeps the packets itself", name, p.DLID), nextSweep
		return fabric.None
	}
	return out
}

// connected reports whether cables lead from one switch to another.
func connected(f *fabric.Fabric, a, b int32) bool {
	seen := make([]bool, len(f.Switches))
	seen[a] = true
	for queue := []int32{a}; len(queue) > 0; queue = queue[1:] {
		if queue[0] == b {
			return true
		}
		first, n := f.PortRange(f.Switches[queue[0]].Node)
		for i := first; i < first+n; i++ {
			if f.Ports[i].Peer == fabric.None {
				continue
			}
			if s := f.Nodes[f.Ports[f.Ports[i].Peer].Node].Switch; s != fabric.None && !seen[s] {
				seen[s] = true
				queue = append(queue, s)
			}
		}
	}
	return false
}

// state is that of a link: the lower of its ends. Without a live fabric all links
// are taken to become Active.
func (r *Routes) state(out int32) ib.PortState {
	p := &r.Fabric.Ports[out]
	q := &r.Fabric.Ports[p.Peer]
	switch {
	case !r.Live:
		return ib.PortActive
	case !p.Known:
		return q.Info.State()
	case !q.Known:
		return p.Info.State()
	}
	return min(p.Info.State(), q.Info.State())
}

func (r *Routes) lane(in, out int32, sl ib.SL) ib.VL {
	if r.VL == nil {
		return 0
	}
	return r.VL(in, out, sl)
}

// choices fills in what a switch could do instead.
func (r *Routes) choices(h *Hop, sw int32, dlid ib.LID) {
	v := r.View()
	f := r.Fabric
	num := f.Ports[h.Out].Num
	h.Flows = v.Flows(h.Out)
	legal, nearer := v.Choices(sw, dlid)
	if legal == nil && nearer == nil {
		h.Why = "the destination's port"
		return
	}
	among, rule := legal, "the engine allows"
	if len(among) == 0 {
		among, rule = nearer, "lead one hop nearer"
	}
	for _, c := range among {
		n := v.Flows(f.Port(f.Switches[sw].Node, c))
		h.Choices = append(h.Choices, Choice{c, n})
	}
	switch {
	case !slices.Contains(among, num) && len(legal) > 0 && r.further(dlid):
		h.Why = fmt.Sprintf("not among %s, which %s: paths to the LIDs of a port have fewer switches in common this way", some(among), rule)
	case !slices.Contains(among, num) && r.Engine == route.Layered:
		h.Why = "not on a shortest way; " + some(among) + " would be, but that could close a credit loop in the layers"
	case !slices.Contains(among, num) && len(legal) == 0:
		h.Why = "not on a shortest way; " + some(among) + " would be"
	case !slices.Contains(among, num):
		h.Why = fmt.Sprintf("not among %s, which %s", some(among), rule)
	case len(among) == 1 && (len(legal) == 0 || slices.Equal(legal, nearer)):
		h.Why = "the only port that leads nearer"
	case len(among) == 1:
		h.Why = "the only port that the engine allows"
	default:
		least, most := h.spread(num)
		h.Why = fmt.Sprintf("one of %d ports that %s: %d %s on it, %s on the others", len(among), rule, h.Flows,
			map[bool]string{true: "flow", false: "flows"}[h.Flows == 1], between(least, most))
	}
	barred := slices.DeleteFunc(nearer, func(p uint8) bool { return slices.Contains(legal, p) })
	if len(legal) > 0 && len(barred) > 0 && slices.Contains(among, num) {
		h.Why += fmt.Sprintf("; %s would lead nearer, but that could close a credit loop", some(barred))
	}
	if avoided := v.Avoided(sw, dlid); len(avoided) > 0 {
		h.Why += fmt.Sprintf("; %s would lead nearer if no switch were drained", some(avoided))
	}
}

// further reports whether a LID is not the first of its port.
func (r *Routes) further(lid ib.LID) bool {
	return slices.ContainsFunc(r.Fabric.EndPorts, func(e int32) bool {
		p := &r.Fabric.Ports[e]
		return p.LID < lid && int(lid) < int(p.LID)+p.LMC.Count()
	})
}

// spread is the least and the most flows on the ports that were not taken.
func (h *Hop) spread(num uint8) (least, most int64) {
	least = -1
	for _, c := range h.Choices {
		if c.Port == num {
			continue
		}
		if most = max(most, c.Flows); least < 0 || c.Flows < least {
			least = c.Flows
		}
	}
	return least, most
}

func between(a, b int64) string {
	if a == b {
		return fmt.Sprint(a)
	}
	return fmt.Sprintf("%d to %d", a, b)
}

// some names ports.
func some(ports []uint8) string {
	if len(ports) == 1 {
		return fmt.Sprintf("port %d", ports[0])
	}
	text := "ports "
	for i, p := range ports[:min(len(ports), maxNamed)] {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprint(p)
	}
	if more := len(ports) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
