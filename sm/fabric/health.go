package fabric

import (
	"fmt"
	"math/bits"
	"strings"

	"ibnetworkd/ib"
)

// Fault is what is wrong with a link, as bits.
type Fault uint8

// The faults. A link that trained to less than both of its ports support is
// narrow or slow; one that is slower than most of its kind is Behind.
const (
	NotActive Fault = 1 << iota // the logical state of one end is below Active
	Down                        // disabled, training or in recovery; the other end is not known
	Narrow
	Slow
	Behind
)

// lanesOf are the lanes of each bit of a link width (IBA vol 1, 14.2.5.6).
var lanesOf = [5]int{1, 4, 8, 12, 2}

// bestLanes is the widest link that both ports support, 0 where one does not say.
func bestLanes(a, b *PortInfo) int {
	best := 0
	for i, n := range lanesOf {
		if a.WidthSupported()&b.WidthSupported()&(1<<i) != 0 {
			best = max(best, n)
		}
	}
	return best
}

// bestLane is the fastest lane that both ports support in tenths of Gb/s, 0 where
// one does not say.
func bestLane(a, b *PortInfo) int {
	if e := a.SpeedExtSupported() & b.SpeedExtSupported(); e != 0 {
		return [4]int{140, 250, 500, 1000}[bits.Len8(e)-1]
	}
	if s := a.SpeedSupported() & b.SpeedSupported() & 7; s != 0 {
		return [3]int{25, 50, 100}[bits.Len8(s)-1]
	}
	return 0
}

// tenths is the signalling rate of the link in tenths of Gb/s.
func tenths(p *PortInfo) int { return p.Lanes() * p.LaneTenths() }

// linkTenths is the rate of the link of a port in tenths of Gb/s, where its ends
// contradict each other the lower one.
func (f *Fabric) linkTenths(port int32) int {
	p := &f.Ports[port]
	t := tenths(&p.Info)
	if p.Peer != None && f.Ports[p.Peer].Known {
		t = min(t, tenths(&f.Ports[p.Peer].Info))
	}
	return t
}

// kind is 0 for links between switches and 1 for those of adapters.
func (f *Fabric) kind(port int32) int {
	p := &f.Ports[port]
	if f.Nodes[p.Node].Switch != None && p.Peer != None && f.Nodes[f.Ports[p.Peer].Node].Switch != None {
		return 0
	}
	return 1
}

// Health is the faults of a fabric's links.
type Health struct {
	f *Fabric
	// usual is the rate that most links between switches, and most links of
	// adapters, have, in tenths of Gb/s, and how many have it of how many.
	usual, have, of [2]int
}

// Health examines all links.
func (f *Fabric) Health() *Health {
	h := &Health{f: f}
	var rates [2]map[int]int
	rates[0], rates[1] = map[int]int{}, map[int]int{}
	for i := range f.Ports {
		if p := &f.Ports[i]; p.Peer > int32(i) && p.Known && p.Info.State() >= ib.PortInit {
			rates[f.kind(int32(i))][f.linkTenths(int32(i))]++
		}
	}
	for k, m := range rates {
		for r, n := range m {
			h.of[k] += n
			if n > h.have[k] || n == h.have[k] && r > h.usual[k] {
				h.usual[k], h.have[k] = r, n
			}
		}
	}
	return h
}

// Link is what is wrong with the link of a port, and the same in words; zero
// where nothing is. A port without a link has a fault if something keeps it
// from having one; an empty port has none.
func (h *Health) Link(port int32) (Fault, string) {
	p := &h.f.Ports[port]
	if p.Num == 0 || !p.Known {
		return 0, ""
	}
	var what Fault
	var words []string
	if p.Peer == None {
		word := map[ib.PhysState]string{ib.PhysDisabled: "disabled", ib.PhysTraining: "down: training",
			ib.PhysLinkRecovery: "down: recovery of the link", ib.PhysLinkUp: "up, and what it leads to does not answer"}[p.Info.PhysState()]
		if word == "" {
			return 0, ""
		}
		return Down, word
	}
	q := &h.f.Ports[p.Peer]
	if s := p.Info.State(); s < ib.PortActive {
		what |= NotActive
		words = append(words, s.String())
	} else if q.Known && q.Info.State() < ib.PortActive {
		what |= NotActive
		words = append(words, "other end "+q.Info.State().String())
	}
	if !q.Known {
		return what, strings.Join(words, ", ")
	}
	if n := p.Info.Lanes(); n < bestLanes(&p.Info, &q.Info) {
		what |= Narrow
		words = append(words, fmt.Sprintf("narrow: %dx, both ends support %dx", n, bestLanes(&p.Info, &q.Info)))
	}
	if t, best := p.Info.LaneTenths(), bestLane(&p.Info, &q.Info); t < best {
		what |= Slow
		words = append(words, fmt.Sprintf("slow: %g Gb/s a lane, both ends support %g", float64(t)/10, float64(best)/10))
	}
	if k, t := h.f.kind(port), h.f.linkTenths(port); what == 0 && t < h.usual[k] && 2*h.have[k] > h.of[k] {
		what |= Behind
		words = append(words, fmt.Sprintf("slower than most: %g Gb/s, %d of %d such links have %g", float64(t)/10, h.have[k], h.of[k],
			float64(h.usual[k])/10))
	}
	return what, strings.Join(words, ", ")
}

// Usual is the rate that most links between switches and most links of adapters
// have, in tenths of Gb/s; 0 where there is no link.
func (h *Health) Usual() (switches, adapters int) { return h.usual[0], h.usual[1] }
