// Package gen makes subnets of known shapes for tests, benchmarks and the
// simulator: cables, stars, fat-trees, rings, tori, meshes and random graphs.
//
// It owns nothing at run time and is deterministic: the same arguments give
// the same subnet.
package gen

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
)

// GUID ranges of the generated nodes.
const (
	HostGUID   = ib.GUID(0x0002c90000100000)
	SwitchGUID = ib.GUID(0x0002c90000f00000)
)

// Text is a fabric as text.
func Text(f *fabric.Fabric) string {
	var b strings.Builder
	_ = fabric.WriteText(&b, f) // fails with its writer only
	return b.String()
}

// Hosts are the ports of adapters, in GUID order.
func Hosts(f *fabric.Fabric) []int32 {
	return slices.DeleteFunc(slices.Clone(f.EndPorts), func(p int32) bool { return f.Ports[p].Num == 0 })
}

// LIDs is a fabric of which every end port has a LID, in GUID order from 1, a host's with 1<<lmc.
func LIDs(f *fabric.Fabric, lmc ib.LMC) *fabric.Fabric {
	f = f.Clone()
	next := 1
	for _, e := range f.EndPorts {
		p := &f.Ports[e]
		p.LMC = 0
		if f.Nodes[p.Node].Type != ib.NodeSwitch {
			p.LMC = lmc
		}
		next = (next + p.LMC.Count() - 1) &^ (p.LMC.Count() - 1)
		p.LID = ib.LID(next)
		next += p.LMC.Count()
	}
	return f
}

// Cyclic searches for a cycle, depth first.
func Cyclic[K comparable](next map[K]map[K]bool) bool {
	state := map[K]int{}
	var visit func(K) bool
	visit = func(k K) bool {
		state[k] = 1
		for n := range next[k] {
			if state[n] == 1 || state[n] == 0 && visit(n) {
				return true
			}
		}
		state[k] = 2
		return false
	}
	for k := range next {
		if state[k] == 0 && visit(k) {
			return true
		}
	}
	return false
}

// Maker adds hosts, switches and links to a subnet; a mistake of the caller
// (a taken port) panics, for it is a bug of a test.
type Maker struct {
	B        *fabric.Builder
	hosts    int
	switches int
	hostNo   int
	info     fabric.PortInfo
}

// New starts a subnet whose links run at 4x EDR.
func New() *Maker {
	m := &Maker{B: fabric.NewBuilder(), info: fabric.DefaultPortInfo()}
	m.info.SetCapMask(mad.CapExtendedSpeeds | mad.CapTrap | mad.CapClientReregister)
	m.info.SetSpeeds(7, 7, 4)
	m.info.SetSpeedsExt(3, 3, 2)
	return m
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Host adds an adapter with that many ports.
func (m *Maker) Host(ports int) int {
	m.hostNo++
	g := HostGUID + ib.GUID(m.hosts)
	m.hosts += ports + 1
	n := must(m.B.AddNode(fabric.Node{GUID: g, SystemGUID: g, Type: ib.NodeCA, NumPorts: uint8(ports), Base: 1, Class: 1,
		PKeyCap: 64, VendorID: 0x2c9, DeviceID: 0x1017, Desc: fmt.Sprintf("H-%05d", m.hostNo)}))
	for p := 1; p <= ports; p++ {
		q := m.B.Port(n, uint8(p))
		q.GUID, q.Info, q.Known = g+ib.GUID(p), m.info, true
		q.Info.SetLocalPort(uint8(p))
	}
	return n
}

// Switch adds a switch with that many external ports.
func (m *Maker) Switch(ports int) int {
	g := SwitchGUID + ib.GUID(m.switches)
	m.switches++
	n := must(m.B.AddNode(fabric.Node{GUID: g, SystemGUID: g, Type: ib.NodeSwitch, NumPorts: uint8(ports), Base: 1, Class: 1,
		PKeyCap: 64, VendorID: 0x2c9, DeviceID: 0xd2f0, Desc: fmt.Sprintf("S-%04d", m.switches)}))
	var si fabric.SwitchInfo
	si.SetCaps(49152, 1024, 64)
	si.SetEnforcementCap(mad.EnforceInbound | mad.EnforceOutbound)
	m.B.SetSwitchInfo(n, si)
	for p := 0; p <= ports; p++ {
		q := m.B.Port(n, uint8(p))
		q.Info, q.Known = m.info, true
		q.Info.SetLocalPort(uint8(p))
	}
	p0 := m.B.Port(n, 0)
	p0.GUID = g
	p0.Info.SetState(ib.PortActive)
	p0.Info.SetPhysState(ib.PhysLinkUp)
	return n
}

// Link joins two ports and brings them to Initializing.
func (m *Maker) Link(a, p, b, q int) {
	must(0, m.B.Link(a, uint8(p), b, uint8(q)))
	for _, x := range [2][2]int{{a, p}, {b, q}} {
		i := &m.B.Port(x[0], uint8(x[1])).Info
		i.SetState(ib.PortInit)
		i.SetPhysState(ib.PhysLinkUp)
	}
}

// Done builds the subnet with the manager on port 1 of node sm.
func (m *Maker) Done(sm int) *fabric.Fabric {
	m.B.SetSM(sm, 1)
	return m.B.Build()
}

// Pair is two hosts and a cable.
func Pair() *fabric.Fabric {
	m := New()
	a, b := m.Host(1), m.Host(1)
	m.Link(a, 1, b, 1)
	return m.Done(a)
}

// Star is one switch with hosts on its first ports.
func Star(hosts, radix int) *fabric.Fabric {
	m := New()
	s := m.Switch(radix)
	first := -1
	for i := range hosts {
		h := m.Host(1)
		if i == 0 {
			first = h
		}
		m.Link(s, i+1, h, 1)
	}
	return m.Done(first)
}

// FatTree2 is a two-level fat-tree of leaves with radix/2 hosts each.
func FatTree2(radix, leaves int) *fabric.Fabric {
	m := New()
	h := radix / 2
	spines := (leaves*h + radix - 1) / radix
	lv, sp, free := make([]int, leaves), make([]int, spines), make([]int, spines)
	for i := range lv {
		lv[i] = m.Switch(radix)
	}
	for i := range sp {
		sp[i] = m.Switch(radix)
	}
	first := -1
	for l := range lv {
		for u := range h {
			s := u % spines
			free[s]++
			m.Link(lv[l], h+1+u, sp[s], free[s])
		}
		for i := range h {
			n := m.Host(1)
			if first < 0 {
				first = n
			}
			m.Link(lv[l], i+1, n, 1)
		}
	}
	return m.Done(first)
}

// FatTree3 is a three-level fat-tree of pods with radix/2 leaves, each with
// hosts hosts (at most radix/2).
func FatTree3(radix, pods, hosts int) *fabric.Fabric {
	m := New()
	h := radix / 2
	cores := (pods*h*h + radix - 1) / radix
	core, free := make([]int, cores), make([]int, cores)
	leaf, mid := make([][]int, pods), make([][]int, pods)
	for p := range pods {
		for range h {
			leaf[p] = append(leaf[p], m.Switch(radix))
		}
	}
	for p := range pods {
		for range h {
			mid[p] = append(mid[p], m.Switch(radix))
		}
	}
	for c := range core {
		core[c] = m.Switch(radix)
	}
	first := -1
	for p := range pods {
		for l := range h {
			for s := range h {
				m.Link(leaf[p][l], h+1+s, mid[p][s], l+1)
			}
			for i := range min(hosts, h) {
				n := m.Host(1)
				if first < 0 {
					first = n
				}
				m.Link(leaf[p][l], i+1, n, 1)
			}
		}
		for s := range h {
			for u := range h {
				c := (s*h + u) % cores
				if cores%h == 0 {
					per := cores / h
					c = s*per + (p*h+u)%per
				}
				free[c]++
				m.Link(mid[p][s], h+1+u, core[c], free[c])
			}
		}
	}
	return m.Done(first)
}

// Ring is switches in a ring with hosts each.
func Ring(switches, hosts int) *fabric.Fabric { return Torus([]int{switches}, hosts) }

// Torus is a grid of switches with wrap-around links and hosts each; a
// dimension of size two gets one link, not a pair.
func Torus(dims []int, hosts int) *fabric.Fabric { return grid(dims, hosts, true) }

// Mesh is a grid of switches without wrap-around.
func Mesh(dims []int, hosts int) *fabric.Fabric { return grid(dims, hosts, false) }

func grid(dims []int, hosts int, wrap bool) *fabric.Fabric {
	m := New()
	n := 1
	for _, d := range dims {
		n *= d
	}
	sw := make([]int, n)
	for i := range sw {
		sw[i] = m.Switch(2*len(dims) + hosts)
	}
	first := -1
	for i := range sw {
		stride := 1
		for k, d := range dims {
			at := i / stride % d
			j := -1
			if at+1 < d {
				j = i + stride
			} else if wrap && d > 2 {
				j = i - stride*(d-1)
			}
			if j >= 0 {
				m.Link(sw[i], 2*k+1, sw[j], 2*k+2)
			}
			stride *= d
		}
		for h := range hosts {
			x := m.Host(1)
			if first < 0 {
				first = x
			}
			m.Link(sw[i], 2*len(dims)+1+h, x, 1)
		}
	}
	return m.Done(first)
}

// Random is a connected graph of switches with extra links beyond a spanning
// tree (parallel links and loops back to the same switch among them) and hosts
// spread over them, some with two ports.
func Random(seed uint64, switches, extra, hosts int) *fabric.Fabric {
	r := rand.New(rand.NewPCG(seed, 1))
	m := New()
	const radix = 24
	sw, used := make([]int, switches), make([]int, switches)
	free := func() (int, bool) {
		for range 50 {
			if s := r.IntN(switches); used[s] < radix {
				return s, true
			}
		}
		return 0, false
	}
	for i := range sw {
		sw[i] = m.Switch(radix)
		if i > 0 {
			for {
				if j := r.IntN(i); used[j] < radix-2 {
					used[i]++
					used[j]++
					m.Link(sw[i], used[i], sw[j], used[j])
					break
				}
			}
		}
	}
	first := -1
	host := func() {
		s, ok := free()
		if !ok {
			return
		}
		ports := 1 + r.IntN(2)
		h := m.Host(ports)
		if first < 0 {
			first = h
		}
		for p := 1; p <= ports; p++ {
			if p > 1 {
				if s, ok = free(); !ok || r.IntN(2) == 0 {
					return
				}
			}
			used[s]++
			m.Link(sw[s], used[s], h, p)
		}
	}
	host()
	for range extra {
		a, ok1 := free()
		b, ok2 := free()
		if !ok1 || !ok2 || a == b && used[a] > radix-2 {
			continue
		}
		used[a]++
		pa := used[a]
		used[b]++
		m.Link(sw[a], pa, sw[b], used[b])
	}
	for range hosts - 1 {
		host()
	}
	return m.Done(first)
}
