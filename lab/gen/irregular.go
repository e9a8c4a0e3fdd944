package gen

import (
	"fmt"
	"math/rand/v2"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
)

// RandomRegular is a random graph of switches in which each has degree links
// to others, no two of them parallel, and hosts hosts (the Jellyfish topology,
// Singla et al., 2012). switches*degree must be even.
func RandomRegular(seed uint64, switches, degree, hosts int) *fabric.Fabric {
	if switches*degree%2 != 0 || degree >= switches {
		panic(fmt.Sprintf("no regular graph of %d switches with %d links each", switches, degree))
	}
	r := rand.New(rand.NewPCG(seed, 2))
	edges := regular(r, switches, degree)
	m := New()
	sw, used := make([]int, switches), make([]int, switches)
	for i := range sw {
		sw[i] = m.Switch(degree + hosts)
		used[i] = hosts
	}
	for _, e := range edges {
		used[e[0]]++
		used[e[1]]++
		m.Link(sw[e[0]], used[e[0]], sw[e[1]], used[e[1]])
	}
	return m.Done(m.hostsOn(sw, hosts))
}

// regular pairs the ends of links at random and mends loops and parallel
// links by exchanging ends with other links.
func regular(r *rand.Rand, n, degree int) [][2]int {
	var ends []int
	for s := range n {
		for range degree {
			ends = append(ends, s)
		}
	}
	r.Shuffle(len(ends), func(i, j int) { ends[i], ends[j] = ends[j], ends[i] })
	edges := make([][2]int, len(ends)/2)
	count := map[[2]int]int{}
	key := func(a, b int) [2]int { return [2]int{min(a, b), max(a, b)} }
	for i := range edges {
		edges[i] = [2]int{ends[2*i], ends[2*i+1]}
		count[key(ends[2*i], ends[2*i+1])]++
	}
	bad := func(e [2]int) bool { return e[0] == e[1] || count[key(e[0], e[1])] > 1 }
	for again := true; again; {
		again = false
		for i := range edges {
			if !bad(edges[i]) {
				continue
			}
			again = true
			j := r.IntN(len(edges))
			a, b := edges[i], edges[j]
			count[key(a[0], a[1])]--
			count[key(b[0], b[1])]--
			edges[i], edges[j] = [2]int{a[0], b[1]}, [2]int{b[0], a[1]}
			count[key(a[0], b[1])]++
			count[key(b[0], a[1])]++
		}
	}
	return edges
}

// hostsOn puts hosts on the first ports of each switch and returns the first.
func (m *Maker) hostsOn(sw []int, hosts int) int {
	first := -1
	for _, s := range sw {
		for h := range hosts {
			x := m.Host(1)
			if first < 0 {
				first = x
			}
			m.Link(s, 1+h, x, 1)
		}
	}
	return first
}

// HyperX is a grid of switches in which all switches of a row, in each
// dimension, are joined with each other (Ahn et al., 2009).
func HyperX(dims []int, hosts int) *fabric.Fabric {
	m := New()
	n, degree := 1, 0
	for _, d := range dims {
		n *= d
		degree += d - 1
	}
	sw, used := make([]int, n), make([]int, n)
	for i := range sw {
		sw[i] = m.Switch(degree + hosts)
		used[i] = hosts
	}
	for i := range sw {
		stride := 1
		for _, d := range dims {
			for j := i + stride; i/stride%d+(j-i)/stride < d; j += stride {
				used[i]++
				used[j]++
				m.Link(sw[i], used[i], sw[j], used[j])
			}
			stride *= d
		}
	}
	return m.Done(m.hostsOn(sw, hosts))
}

// DragonFlyPlus is groups of half leaves and half spines, all leaves of a group
// joined with all its spines, and each pair of groups joined by links
// between spines (Shpiner et al., 2017). A leaf has hosts hosts.
func DragonFlyPlus(groups, half, hosts, links int) *fabric.Fabric {
	m := New()
	global := ((groups-1)*links + half - 1) / half
	leaf, spine, used := make([][]int, groups), make([][]int, groups), make([]int, groups)
	var leaves []int
	for g := range groups {
		for range half {
			leaf[g] = append(leaf[g], m.Switch(hosts+half))
		}
		for range half {
			spine[g] = append(spine[g], m.Switch(half+global))
		}
		leaves = append(leaves, leaf[g]...)
		for l := range half {
			for s := range half {
				m.Link(leaf[g][l], hosts+1+s, spine[g][s], 1+l)
			}
		}
	}
	for a := range groups {
		for b := a + 1; b < groups; b++ {
			for range links {
				x, y := used[a], used[b]
				used[a]++
				used[b]++
				m.Link(spine[a][x%half], half+1+x/half, spine[b][y%half], half+1+y/half)
			}
		}
	}
	return m.Done(m.hostsOn(leaves, hosts))
}

// DragonFly is groups of a switches that are all joined with each other, and
// each pair of groups joined by one link (Kim et al., 2008).
func DragonFly(groups, a, hosts int) *fabric.Fabric {
	m := New()
	global := (groups - 1 + a - 1) / a
	sw, used := make([]int, groups*a), make([]int, groups)
	for i := range sw {
		sw[i] = m.Switch(hosts + a - 1 + global)
	}
	for g := range groups {
		for i := range a {
			for j := i + 1; j < a; j++ {
				m.Link(sw[g*a+i], hosts+j, sw[g*a+j], hosts+1+i)
			}
		}
	}
	for x := range groups {
		for y := x + 1; y < groups; y++ {
			p, q := used[x], used[y]
			used[x]++
			used[y]++
			m.Link(sw[x*a+p%a], hosts+a+p/a, sw[y*a+q%a], hosts+a+q/a)
		}
	}
	return m.Done(m.hostsOn(sw, hosts))
}

// Uneven is a two-level tree as clusters grow: leaves with unlike numbers of
// hosts, and spines with unlike numbers of cables to each leaf. hosts are
// spread over the leaves, radix is that of all switches.
func Uneven(seed uint64, radix, leaves, spines, hosts int) *fabric.Fabric {
	r := rand.New(rand.NewPCG(seed, 3))
	m := New()
	lv, sp := make([]int, leaves), make([]int, spines)
	count, free := make([]int, leaves), make([]int, spines)
	for i := range lv {
		lv[i] = m.Switch(radix)
		count[i] = hosts / leaves * (50 + r.IntN(51)) / 100
	}
	for i := range sp {
		sp[i] = m.Switch(radix)
	}
	left := hosts
	for _, c := range count {
		left -= c
	}
	for i := 0; left > 0; i = (i + 1) % leaves {
		if count[i] < radix/2 {
			count[i]++
			left--
		}
	}
	first := -1
	for i, l := range lv {
		for h := range count[i] {
			x := m.Host(1)
			if first < 0 {
				first = x
			}
			m.Link(l, 1+h, x, 1)
		}
		up := min(radix/2, radix-count[i])
		for u, tries := 0, 0; u < up && tries < 10*spines; tries++ {
			s := (i + u) % spines
			if r.IntN(8) == 0 {
				s = r.IntN(spines)
			}
			if free[s] < radix-r.IntN(max(1, radix/8)) {
				free[s]++
				u++
				m.Link(l, radix-u+1, sp[s], free[s])
			}
		}
	}
	return m.Done(first)
}

// Unplug takes cables out of a copy of the fabric: those for which drop, called
// with the nodes and ports at both ends in the order of the ports, is true.
func Unplug(f *fabric.Fabric, drop func(a, b *fabric.Port) bool) *fabric.Fabric {
	f = f.Clone()
	for i := range f.Ports {
		if p := &f.Ports[i]; p.Peer > int32(i) && drop(p, &f.Ports[p.Peer]) {
			f.Ports[p.Peer].Peer, p.Peer = fabric.None, fabric.None
		}
	}
	return f
}

// CutCables takes percent of the cables between switches out, at random.
func CutCables(f *fabric.Fabric, seed uint64, percent float64) *fabric.Fabric {
	r := rand.New(rand.NewPCG(seed, 4))
	return Unplug(f, func(a, b *fabric.Port) bool {
		return between(f, a, b) && r.Float64()*100 < percent
	})
}

// HostsOff takes the cables of all hosts out but of percent of them, at random.
// The manager's host stays.
func HostsOff(f *fabric.Fabric, seed uint64, percent float64) *fabric.Fabric {
	r := rand.New(rand.NewPCG(seed, 5))
	return Unplug(f, func(a, b *fabric.Port) bool {
		if between(f, a, b) {
			return false
		}
		off := r.Float64()*100 >= percent
		return off && (f.SMPort == fabric.None || f.Ports[f.SMPort].Node != a.Node && f.Ports[f.SMPort].Node != b.Node)
	})
}

// EmptyLeaf leaves switch number s of the fabric with keep hosts.
func EmptyLeaf(f *fabric.Fabric, s, keep int) *fabric.Fabric {
	node := f.Switches[s].Node
	return Unplug(f, func(a, b *fabric.Port) bool {
		if between(f, a, b) || a.Node != node && b.Node != node {
			return false
		}
		keep--
		return keep < 0
	})
}

func between(f *fabric.Fabric, a, b *fabric.Port) bool {
	return f.Nodes[a.Node].Type == ib.NodeSwitch && f.Nodes[b.Node].Type == ib.NodeSwitch
}

// Case is a subnet with a name.
type Case struct {
	Name   string
	Fabric *fabric.Fabric
}

// Balance are subnets as they are found: whole ones, and such with racks that
// are off, thin leaves, missing cables, slow links, and no tree at all.
func Balance() []Case {
	ft2, ft3, ft3big := FatTree2(36, 18), FatTree3(16, 8, 8), FatTree3(20, 10, 10)
	thin := ft3
	for pod := range 8 {
		thin = EmptyLeaf(thin, 8*pod+3, 1)
	}
	uneven := Uneven(1, 64, 26, 14, 542)
	medium, small := Uneven(2, 36, 17, 8, 281), Uneven(3, 40, 5, 2, 96)
	other := Uneven(8, 40, 5, 2, 96)
	torus := Torus([]int{8, 8}, 2)
	return []Case{
		{"ft2-324", ft2},
		{"ft2-324, third of spines FDR", Slow(ft2, func(s int) bool { return s >= 18 && s%3 == 0 }, 100, 14)},
		{"ft2-324, some links 1x", Slow(ft2, func(s int) bool { return s < 18 }, 4, 1)},
		{"ft3-512", ft3},
		{"ft3-512, third of cores FDR", Slow(ft3, func(s int) bool { return s >= 128 && s%3 == 0 }, 100, 14)},
		{"ft3-512, 10 % of links FDR", Slow(ft3, func(int) bool { return true }, 10, 14)},
		{"ft3-512, a leaf empty", EmptyLeaf(ft3, 27, 0)},
		{"ft3-512, a leaf with 1 host", EmptyLeaf(ft3, 27, 1)},
		{"ft3-512, a thin leaf a pod", thin},
		{"ft3-512, 70 % of hosts on", HostsOff(ft3, 1, 70)},
		{"ft3-512, 30 % of hosts on", HostsOff(ft3, 1, 30)},
		{"ft3-512, 10 % of hosts on", HostsOff(ft3, 1, 10)},
		{"ft3-512, 5 % of cables out", CutCables(ft3, 1, 5)},
		{"ft3-512, 10 % out (a)", CutCables(ft3, 1, 10)},
		{"ft3-512, 10 % out (b)", CutCables(ft3, 2, 10)},
		{"ft3-512, 10 % out (c)", CutCables(ft3, 3, 10)},
		{"ft3-1000", ft3big},
		{"ft3-1000, a leaf empty", EmptyLeaf(ft3big, 33, 0)},
		{"40 uneven switches", uneven},
		{"40 uneven, 5 % out", CutCables(uneven, 1, 5)},
		{"25 uneven switches", medium},
		{"25 uneven, 5 % out", CutCables(medium, 1, 5)},
		{"7 uneven switches", small},
		{"7 uneven, 5 % out", CutCables(small, 1, 5)},
		{"7 others", other},
		{"7 others, 5 % out", CutCables(other, 1, 5)},
		{"DragonFly+", DragonFlyPlus(9, 4, 4, 1)},
		{"DragonFly+, 2 links", DragonFlyPlus(9, 4, 4, 2)},
		{"DragonFly+, 4 links", DragonFlyPlus(9, 4, 4, 4)},
		{"DragonFly", DragonFly(9, 4, 2)},
		{"torus 8x8", torus},
		{"torus 8x8, 2 % out", CutCables(torus, 2, 2)},
		{"torus 6x6x6", Torus([]int{6, 6, 6}, 1)},
		{"torus 6x6x6, 3 % out", CutCables(Torus([]int{6, 6, 6}, 1), 1, 3)},
		{"64 switches at random", RandomRegular(1, 64, 8, 4)},
		{"HyperX 6x6", HyperX([]int{6, 6}, 4)},
		{"hypercube 6", Mesh([]int{2, 2, 2, 2, 2, 2}, 2)},
	}
}

// Slow takes percent of the cables between the switches that which names, by
// number, and others down to another speed: 14 for FDR at four lanes, 1 for one
// lane of what they have.
func Slow(f *fabric.Fabric, which func(s int) bool, percent float64, speed int) *fabric.Fabric {
	r := rand.New(rand.NewPCG(7, 6))
	f = f.Clone()
	for i := range f.Ports {
		a := &f.Ports[i]
		if a.Peer < int32(i) {
			continue
		}
		b := &f.Ports[a.Peer]
		if !between(f, a, b) || !which(int(f.Nodes[a.Node].Switch)) && !which(int(f.Nodes[b.Node].Switch)) || r.Float64()*100 >= percent {
			continue
		}
		for _, p := range []*fabric.Port{a, b} {
			if speed == 1 {
				p.Info.SetWidthActive(1)
			} else {
				p.Info.SetSpeedExtActive(1) // 14.0625 Gb/s
			}
		}
	}
	return f
}
