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
	return g.shift(g.waysOf(lft), 128)
}

// shift is Shift for ways and a number of distances. Of two at a time one is on another processor.
func (g *graph) shift(way [][]uint8, distances int) (share, worst float64) {
	hosts := g.shifters()
	n := 0
	step := max(1, (len(hosts)-1)/distances)
	var pair [2]permutation
	for i := range pair {
		pair[i] = permutation{count: make([]int64, len(g.port)), paths: make([][]int32, len(hosts)), most: make([]float64, len(hosts))}
	}
	for k := 1; k < len(hosts); k += 2 * step {
		both := pair[:min(2, 1+(len(hosts)-1-k)/step)]
		if len(both) == 2 && len(hosts) >= shiftAhead {
			done := make(chan struct{})
			go func() {
				pair[1].run(g, way, hosts, k+step)
				close(done)
			}()
			pair[0].run(g, way, hosts, k)
			<-done
		} else {
			for i := range both {
				both[i].run(g, way, hosts, k+i*step)
			}
		}
		for i := range both {
			for j, most := range both[i].most {
				if hosts[(j+k+i*step)%len(hosts)].aims {
					worst = max(worst, most)
					share += 1 / most
					n++
				}
			}
		}
	}
	if n > 0 {
		share /= float64(n)
	}
	return share, worst
}

// shiftAhead is from how many hosts on shift uses two processors.
const shiftAhead = 500

// shifter is a host in the permutations of shift.
type shifter struct {
	s    int32
	lid  ib.LID
	aims bool // whether flows to it are of this part
}

func (g *graph) shifters() (hosts []shifter) {
	f := g.f
	for i := range f.EndPorts {
		if g.ends != nil {
			i = int(g.ends[i])
		}
		e := f.EndPorts[i]
		if s, out := f.SwitchOf(e); s != fabric.None && out != 0 && g.kind[i] != uncounted {
			hosts = append(hosts, shifter{s, f.Ports[e].LID, g.aims(i)})
		}
	}
	return hosts
}

// permutation is one permutation of shift.
type permutation struct {
	count []int64   // by link
	paths [][]int32 // by host
	most  []float64 // by host: the flows on its busiest link
}

// run fills most for the flows of each host to the one k after it.
func (p *permutation) run(g *graph, way [][]uint8, hosts []shifter, k int) {
	clear(p.count)
	for i, a := range hosts {
		b := hosts[(i+k)%len(hosts)]
		path := p.paths[i][:0]
		var row []uint8 // nil where no destination has the LID
		if b.aims && int(b.lid) < len(way) {
			row = way[b.lid]
		}
		for at := a.s; row != nil && at != b.s && len(path) <= g.n; {
			l := g.linkAt(at, row[at])
			if l == fabric.None {
				break
			}
			path = append(path, l)
			p.count[l] += g.cost[l]
			at = g.linkTo[l]
		}
		p.paths[i] = path
	}
	for i, path := range p.paths {
		most := int64(16)
		for _, l := range path {
			most = max(most, p.count[l])
		}
		p.most[i] = float64(most) / 16
	}
}
