package discover

import (
	"fmt"

	"ibnetworkd/sm/smp"
)

// A device that lies can answer as a subnet without end behind its one link. A
// real subnet of some size is meshed: almost every switch is reached in two ways.
// So what hangs on one link alone, is large, and consists of switches that hang
// on one link each, is left out of the walk, and with it what was to be asked
// there: the rest of the subnet does not wait for it.

// switchesMost and nodesMost are how many may be found behind one link while most
// of the switches there have no second way either.
const (
	switchesMost = 256
	nodesMost    = 1 << 12
)

// treeLeast is how many switches of such a part must have been walked before it
// is judged.
const treeLeast = 3

// grown reports whether enough was found since bound looked last.
func (d *Discovery) grown() bool {
	if d.switches < d.checkSwitches && len(d.nodes) < d.checkNodes {
		return false
	}
	d.checkSwitches = d.switches + max(switchesMost/4, d.switches/4)
	d.checkNodes = len(d.nodes) + max(nodesMost/4, len(d.nodes)/4)
	return true
}

// bound leaves out the smallest parts that are too large for a tree.
func (d *Discovery) bound() {
	type frame struct {
		node int32
		port int // the next to look at
		via  int // the port that it was entered by, -1 of the root
	}
	n := len(d.nodes)
	num := make([]int32, n)  // order of the search from 1, 0 not reached
	low := make([]int32, n)  // the first in that order that a node's part is linked to
	size := make([]int32, n) // nodes of its part
	sw := make([]int32, n)   // switches of its part
	done := make([]int32, n) // switches of its part that were walked
	hang := make([]int32, n) // those of them that hang on one link
	judged := make([]bool, n)
	if d.root < 0 {
		return
	}
	type part struct {
		from int32
		port uint8
		node int32
	}
	var parts []part
	next := int32(0)
	enter := func(i int32) {
		next++
		num[i], low[i], size[i] = next, next, 1
		if d.nodes[i].sw() {
			sw[i] = 1
		}
		if d.nodes[i].explored {
			done[i] = 1
		}
	}
	enter(d.root)
	stack := []frame{{d.root, 0, -1}}
	for len(stack) > 0 {
		t := &stack[len(stack)-1]
		x := &d.nodes[t.node]
		if t.port < x.ports.n {
			p := t.port
			t.port++
			q := x.ports.look(p)
			switch {
			case q.peer < 0 || p == t.via || d.nodes[q.peer].out || !x.sw() && t.node != d.root:
			case num[q.peer] != 0:
				low[t.node] = min(low[t.node], num[q.peer])
			default:
				enter(q.peer)
				stack = append(stack, frame{q.peer, 0, int(q.peerP)})
			}
			continue
		}
		v := t.node
		stack = stack[:len(stack)-1]
		if len(stack) == 0 {
			break
		}
		u := &stack[len(stack)-1]
		low[u.node] = min(low[u.node], low[v])
		bridge := low[v] == num[v]
		if bridge && d.nodes[v].explored {
			hang[v]++
		}
		if bridge && !judged[v] && (sw[v] > switchesMost || size[v] > nodesMost) && done[v] >= treeLeast && hang[v]*2 > done[v] && u.node != d.root {
			parts = append(parts, part{u.node, uint8(u.port - 1), v})
			judged[v] = true
		}
		size[u.node] += size[v]
		sw[u.node] += sw[v]
		done[u.node] += done[v]
		hang[u.node] += hang[v]
		judged[u.node] = judged[u.node] || judged[v]
	}
	for _, p := range parts {
		d.leaveOut(p.from, p.port, p.node)
	}
}

// leaveOut takes what hangs on a port out of the walk.
func (d *Discovery) leaveOut(i int32, p uint8, v int32) {
	at := d.nodes[i].ports.at(int(p))
	at.peer = -1
	count := 0
	for q := []int32{v}; len(q) > 0; {
		j := q[len(q)-1]
		q = q[:len(q)-1]
		x := &d.nodes[j]
		if x.out || j == i {
			continue
		}
		x.out, x.gone = true, true
		count++
		for k := range x.ports.n {
			if o := x.ports.look(k); o.peer >= 0 && o.peer != i {
				q = append(q, o.peer)
			}
		}
		x.ports = makePorts(x.ports.n)
		if d.byGUID[x.ni.NodeGUID] == j {
			delete(d.byGUID, x.ni.NodeGUID)
		}
	}
	d.silent(i, p, fmt.Sprintf("behind port %s[%d], path %s, are %d nodes and more, whose switches hang on one link each: no real subnet is like that; what is there is left out",
		d.nodes[i].name(), p, PathString(smp.PathTo(d.nodes[i].path, p)), count))
}

// stop ends the walk with what was found.
func (d *Discovery) stop() {
	d.urgent, d.back, d.turns = queue{}, queue{}, queue{}
	if d.stopped {
		return
	}
	d.stopped = true
	d.warn("the walk has taken %d SMPs and is ended; what was not found by then is left out", d.opt.MaxSMPs)
}
