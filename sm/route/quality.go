package route

import (
	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
)

// Load is how the flows between all ordered pairs of hosts lie on the links
// between switches, both directions of a link apart. A flow counts more on a
// slower link: by the speed of the fastest link over the link's own.
type Load struct {
	Worst float64 // flows over the busiest link
	Mean  float64 // flows over a link
	Hops  float64 // links between switches on a path, on average
	Lost  int     // ordered pairs of hosts without a path
}

// Measure counts the flows that tables put on the links. Ports of one adapter
// count as hosts of their own; each has its first LID.
func Measure(f *fabric.Fabric, lft [][]uint8) Load {
	g := newGraph(f)
	_, out := g.measure(lft)
	return out
}

// measure counts the flows over each link.
func (g *graph) measure(lft [][]uint8) (flows []int64, out Load) {
	flows = make([]int64, len(g.port))
	pairs, hops := 0, 0
	for d := range int32(g.n) {
		for i, to := range g.dests[d] {
			if to.kind == uncounted || i > 0 && g.dests[d][i-1].port == to.port {
				continue
			}
			for s := range int32(g.n) {
				if g.hosts[s] == 0 || s == d {
					continue
				}
				at, n := s, 0
				for ; at != d && n <= g.n; n++ {
					e := fabric.None
					if int(to.lid) < len(lft[at]) {
						e = g.linkOf[int(at)<<8|int(lft[at][to.lid])]
					}
					if e == fabric.None {
						break
					}
					flows[e] += g.hosts[s]
					at = g.linkTo[e]
				}
				if at != d {
					out.Lost += int(g.hosts[s])
					continue
				}
				pairs += int(g.hosts[s])
				hops += n * int(g.hosts[s])
			}
		}
	}
	sum := 0.0
	for l, n := range flows {
		v := float64(n*g.cost[l]) / 16
		sum += v
		out.Worst = max(out.Worst, v)
	}
	if len(flows) > 0 {
		out.Mean = sum / float64(len(flows))
	}
	if pairs > 0 {
		out.Hops = float64(hops) / float64(pairs)
	}
	return flows, out
}

// Shift is what hosts get that each send to one other at a time: in the
// permutations i -> i+k of the host ports, in an order of end ports as that of
// Options.HostOrder, by default that of the fabric, the mean
// over all flows of one over the flows on the flow's busiest link (1 is full
// bandwidth), and the most flows on one link. On a slower link each counts more, as
// in Load. Of many distances k a part is taken, up to 128.
func Shift(f *fabric.Fabric, lft [][]uint8, order ...ib.GUID) (share, worst float64) {
	g := newGraph(f)
	_ = g.orderHosts(order)
	return g.shift(lft, 128)
}

// shift is Shift for a number of distances.
func (g *graph) shift(lft [][]uint8, distances int) (share, worst float64) {
	f := g.f
	type host struct {
		s    int32
		lid  ib.LID
		aims bool
	}
	var hosts []host
	for i := range f.EndPorts {
		if g.ends != nil {
			i = int(g.ends[i])
		}
		e := f.EndPorts[i]
		if s, out := f.SwitchOf(e); s != fabric.None && out != 0 && g.kind[i] != uncounted {
			hosts = append(hosts, host{s, f.Ports[e].LID, g.aims(i)})
		}
	}
	n := 0
	count := make([]int64, len(g.port))
	paths := make([][]int32, len(hosts))
	for k := 1; k < len(hosts); k += max(1, (len(hosts)-1)/distances) {
		clear(count)
		for i, a := range hosts {
			b := hosts[(i+k)%len(hosts)]
			paths[i] = paths[i][:0]
			if !b.aims {
				continue
			}
			for at := a.s; at != b.s && len(paths[i]) <= g.n; {
				l := fabric.None
				if int(b.lid) < len(lft[at]) {
					l = g.linkOf[int(at)<<8|int(lft[at][b.lid])]
				}
				if l == fabric.None {
					break
				}
				paths[i] = append(paths[i], l)
				count[l] += g.cost[l]
				at = g.linkTo[l]
			}
		}
		for i, p := range paths {
			if !hosts[(i+k)%len(hosts)].aims {
				continue
			}
			most := 1.0
			for _, l := range p {
				most = max(most, float64(count[l])/16)
			}
			worst = max(worst, most)
			share += 1 / most
			n++
		}
	}
	if n > 0 {
		share /= float64(n)
	}
	return share, worst
}
