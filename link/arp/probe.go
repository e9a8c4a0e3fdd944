package arp

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/link"
)

// The times of RFC 5227, section 1.1.
const (
	ProbeWait        = time.Second
	ProbeNum         = 3
	ProbeMin         = time.Second
	ProbeMax         = 2 * time.Second
	AnnounceWait     = 2 * time.Second
	AnnounceNum      = 2
	AnnounceInterval = 2 * time.Second
	DefendInterval   = 10 * time.Second
	// RateLimitInterval is how long an address of another host is left alone.
	RateLimitInterval = 60 * time.Second
)

// Between is a random time from least to less than most.
func Between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)))
}

// Claims reports whether the sender of a packet uses an address.
func (p Packet) Claims(a netip.Addr) bool { return p.Sender == a }

// Probes reports whether the sender of a packet is about to use an address.
func (p Packet) Probes(a netip.Addr) bool {
	return p.Op == Request && p.Sender.IsUnspecified() && p.Target == a
}

// Config is the link that an address is probed on.
type Config struct {
	HType  uint16 // ARPHRD
	HWAddr ib.HWAddr
	// Leased is of an address that the DHCP client has probed, and gives back where another host
	// uses it.
	Leased bool
}

// Prober finds out whether another host uses an address: before the link has it, and while
// it has it. Tick and ARP give the packets to broadcast; the caller calls Tick at Deadline.
// now is a time that only grows and is never 0.
type Prober struct {
	cfg   Config
	about netip.Addr
	rnd   *rand.Rand

	carrier bool
	downs   uint32 // losses of carrier
	inUse   bool   // the link has the address
	state   link.ProbeState
	by      ib.HWAddr     // the host that uses the address, while the state is ProbeConflict
	probing bool          // probes are sent; also in ProbeConflict, to see it end
	sent    int           // probes of this round
	due     time.Duration // 0 for nothing
	defence time.Duration // when the address was defended last
	begun   bool          // the link had a carrier
	lost    bool          // a leased address is to be given back
}

// New makes a prober of an address. seed is of its random times.
func New(cfg Config, about netip.Addr, seed uint64) *Prober {
	return &Prober{cfg: cfg, about: about, rnd: rand.New(rand.NewPCG(seed, 0)), state: link.ProbeStopped}
}

// View is what the prober has found.
func (p *Prober) View() link.Probe {
	return link.Probe{Address: p.about, State: p.state, By: p.by, Lost: p.lost}
}

// Deadline is when Tick is to be called, 0 for never.
func (p *Prober) Deadline() time.Duration { return p.due }

// Readdress takes another hardware address of the link, as a bond has after a failover. Probes
// that are under way begin again.
func (p *Prober) Readdress(cfg Config) { p.cfg, p.sent = cfg, 0 }

// Link takes the state of the link: its carrier, how often it was lost, and whether the
// link has the address.
func (p *Prober) Link(now time.Duration, carrier bool, downs uint32, inUse bool) {
	again := carrier && (!p.carrier || downs != p.downs)
	known := p.cfg.Leased && !p.begun
	p.carrier, p.downs, p.inUse, p.begun = carrier, downs, inUse, p.begun || carrier
	switch {
	case !carrier:
		p.state, p.by, p.probing, p.due, p.lost = link.ProbeStopped, ib.HWAddr{}, false, 0, false
	case again && known:
		p.state = link.ProbeFree
	case again:
		p.state, p.by = link.ProbeProbing, ib.HWAddr{}
		p.startProbing(now + Between(p.rnd, 0, ProbeWait))
	}
}

// startProbing begins a round of probes at a time.
func (p *Prober) startProbing(at time.Duration) { p.probing, p.sent, p.due = true, 0, at }

// Tick does what is due.
func (p *Prober) Tick(now time.Duration) [][]byte {
	switch {
	case p.due == 0 || now < p.due:
		return nil
	case !p.probing: // in a conflict: has it ended?
		p.startProbing(now)
	case p.sent == ProbeNum:
		p.state, p.by, p.probing, p.due = link.ProbeFree, ib.HWAddr{}, false, 0
		return nil
	}
	p.sent++
	p.due = now + AnnounceWait
	if p.sent < ProbeNum {
		p.due = now + Between(p.rnd, ProbeMin, ProbeMax)
	}
	return p.cfg.request(netip.IPv4Unspecified(), p.about)
}

// ARP takes an ARP packet of the link. own are the hardware addresses of this host, whose
// other links may answer for any of its addresses (sysctl arp_ignore). An address that the
// link has is defended, and kept (RFC 5227, section 2.4, c): another host cannot take it away. One
// that is leased is defended once (b), and not where a probe of it was answered.
func (p *Prober) ARP(now time.Duration, b []byte, own []ib.HWAddr) [][]byte {
	a, ok := Parse(b, p.cfg.HWAddr.Len())
	if !ok || !p.carrier || slices.ContainsFunc(own, func(o ib.HWAddr) bool { return SameHost(a.From, o) }) {
		return nil
	}
	if !a.Claims(p.about) && (p.inUse || !p.probing || !a.Probes(p.about)) {
		return nil
	}
	if p.state != link.ProbeConflict {
		p.by = a.From // and not of every further packet, which may be forged
	}
	insists := p.defence != 0 && now < p.defence+DefendInterval
	p.lost = p.lost || p.cfg.Leased && (p.probing || insists)
	p.state, p.probing, p.due = link.ProbeConflict, false, now+RateLimitInterval
	if !p.inUse || p.lost || insists {
		return nil
	}
	p.defence = now
	return p.cfg.announcement(p.about)
}
