// Package arpprobe probes the IPv4 addresses of units that ask for it, and leased ones again, and announces
// these and those of IPoIB links: it owns the sockets and the timer. What is sent and found is decided by
// link/arp; what becomes of it by the planners.
package arpprobe

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"ibnetworkd/daemon"
	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/packet"
	"ibnetworkd/link"
	"ibnetworkd/link/arp"
)

// Probers are the probers of all links. Update and System.Observe belong to the loop.
type Probers struct {
	log    *slog.Logger
	opener packet.Opener
	wake   func(links map[int]bool)
	kick   chan struct{}
	events chan packet.Event
	since  time.Time

	mu        sync.Mutex // guards want to views
	want      map[place]wanted
	announced map[place]announced
	atStart   map[place]ib.HWAddr // nil before the first snapshot and once Run has it
	completed bool
	views     map[place]link.Probe

	// The rest belongs to Run.
	probers    map[place]*prober
	announcers map[place]*announcer
	known      map[place]ib.HWAddr // addresses that need no announcement
	sender     *packet.Sender
}

// place is an address on a link, not valid for the link-local one.
type place struct {
	index int
	about netip.Addr
}

// wanted is an address that is to be probed.
type wanted struct {
	name      string
	cfg       arp.Config
	broadcast []byte
	carrier   bool
	downs     uint32      // losses of it
	own       []ib.HWAddr // of the host's links
	addresses []link.Address
	linkLocal netip.Addr // that the link has
}

func (w wanted) has(a netip.Addr) bool {
	return slices.ContainsFunc(w.addresses, func(x link.Address) bool { return x.Prefix.Addr() == a })
}

type prober struct {
	wanted
	place
	m        *arp.Prober
	about    netip.Addr
	tries    int           // link-local addresses that were other hosts'
	since    time.Duration // when the last of them was chosen
	listener *packet.Listener
	trouble  string
}

// New makes probers with sockets by an opener. wake has links, by index, read again; it
// must not block.
func New(log *slog.Logger, opener packet.Opener, wake func(links map[int]bool)) *Probers {
	return &Probers{log: log, opener: opener, wake: wake, kick: make(chan struct{}, 1), events: make(chan packet.Event, 16),
		since: time.Now(), views: map[place]link.Probe{}, probers: map[place]*prober{}, announcers: map[place]*announcer{}}
}

// now is a time that is never 0.
func (p *Probers) now() time.Duration { return time.Since(p.since) + 1 }

// Update takes what the loop has observed. It never blocks.
func (p *Probers) Update(v daemon.View) {
	want := wants(v)
	announced := announces(v, want)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(want)+len(announced)+len(p.want)+len(p.announced) == 0 {
		return
	}
	p.want, p.announced = want, announced
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// wants lists the addresses that are to be probed.
func wants(v daemon.View) map[place]wanted {
	out := map[place]wanted{}
	derivation := link.NewDerivation(v.Units, v.Governing.UnitOf)
	var own []ib.HWAddr
	for i := range v.Snapshot.Links {
		own = append(own, v.Snapshot.Links[i].HWAddr)
	}
	for i := range v.Snapshot.Links {
		l := &v.Snapshot.Links[i]
		u := v.Served(l)
		addrs := derivation.Probed(v.Snapshot, l, u)
		if link.WantsLinkLocal(l, u) {
			addrs = append(addrs, netip.Addr{})
		}
		w := wanted{name: l.Name, cfg: arp.Config{HType: l.Type, HWAddr: l.HWAddr}, broadcast: l.AllHosts(),
			carrier: l.Up() && l.Carrier(), downs: l.CarrierDowns, own: own, addresses: l.Addresses, linkLocal: l.LinkLocal()}
		for _, a := range addrs {
			out[place{l.Index, a}] = w
		}
		if a := link.ProbedLease(l, u); a.IsValid() && !slices.Contains(addrs, a) {
			w.cfg.Leased = true
			out[place{l.Index, a}] = w
		}
	}
	return out
}

// byLink is what is known of the addresses of links, by index.
func (p *Probers) byLink() map[int][]link.Probe {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[int][]link.Probe{}
	for at, v := range p.views {
		out[at.index] = append(out[at.index], v)
	}
	for _, vs := range out {
		slices.SortFunc(vs, func(a, b link.Probe) int { return a.Address.Compare(b.Address) })
	}
	return out
}

// Run probes until ctx ends.
func (p *Probers) Run(ctx context.Context) error {
	defer p.close()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if first := p.first(); first != 0 {
			timer.Reset(max(first-p.now(), 0))
		} else {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.kick:
			p.reconcile()
		case <-timer.C:
			for _, x := range p.probers {
				p.after(x, x.m.Tick(p.now()))
			}
			for at, x := range p.announcers {
				p.announce(at.index, x)
			}
		case e := <-p.events:
			p.receive(e)
		}
	}
}

// first is the first deadline, 0 for none.
func (p *Probers) first() (first time.Duration) {
	soonest := func(d time.Duration) {
		if d != 0 && (first == 0 || d < first) {
			first = d
		}
	}
	for _, x := range p.probers {
		soonest(x.m.Deadline())
	}
	for _, x := range p.announcers {
		soonest(x.m.Deadline())
	}
	return first
}

func (p *Probers) close() {
	for _, x := range p.probers {
		x.listener.Close()
	}
	if p.sender != nil {
		_ = p.sender.Close()
	}
}

// reconcile begins and ends probers, and hands them the state of their links.
func (p *Probers) reconcile() {
	p.mu.Lock()
	want, announced := maps.Clone(p.want), p.announced // Update makes others
	if p.atStart != nil {
		p.known, p.atStart = p.atStart, nil
	}
	p.mu.Unlock()
	p.reconcileAnnouncers(announced)
	for at, x := range p.probers {
		w, ok := want[at]
		if ok && w.cfg == x.cfg {
			continue
		}
		x.listener = x.listener.Close()
		if ok && w.cfg.Leased && x.cfg.Leased { // a new prober would take it for checked
			x.m.Readdress(w.cfg)
			continue
		}
		delete(p.probers, at)
		p.mu.Lock()
		delete(p.views, at)
		p.mu.Unlock()
	}
	for at, w := range want {
		x := p.probers[at]
		if x == nil {
			x = &prober{place: at, about: at.about}
			if !at.about.IsValid() {
				if x.about = w.linkLocal; !x.about.IsValid() {
					x.about = arp.LinkLocal(w.cfg.HWAddr, 0)
				}
			}
			x.m = arp.New(w.cfg, x.about, rand.Uint64())
			p.probers[at] = x
		}
		x.wanted = w
		p.begin(x)
	}
}

// begin hands a prober the state of its link.
func (p *Probers) begin(x *prober) {
	x.trouble = ""
	ready := x.carrier && p.open(x) // otherwise a probe is not sent, or its answer not received
	x.m.Link(p.now(), ready, x.downs, x.has(x.about))
	p.after(x, nil)
}

// open opens the sockets of a prober that are not open.
func (p *Probers) open(x *prober) bool {
	err := p.openSender()
	if err != nil {
		x.trouble = err.Error()
		return false
	}
	if x.listener == nil {
		r := packet.Request{Kind: packet.ForARP, Index: x.index, About: x.about, HWLen: x.cfg.HWAddr.Len()}
		if x.listener, err = packet.Listen(p.opener, r, p.events); err != nil {
			x.trouble = err.Error()
			return false
		}
	}
	return true
}

func (p *Probers) openSender() (err error) {
	if p.sender == nil {
		p.sender, err = p.opener.Sender()
	}
	return err
}

// another chooses another link-local address, when another host uses the last one.
func (p *Probers) another(x *prober) {
	x.tries++
	x.since = p.now()
	x.about = arp.LinkLocal(x.cfg.HWAddr, x.tries)
	x.m = arp.New(x.cfg, x.about, rand.Uint64())
	x.listener = x.listener.Close()
	p.begin(x)
}

// after does what a step of a prober asks for: packets, and the view.
func (p *Probers) after(x *prober, packets [][]byte) {
	for _, b := range packets {
		p.send(x.index, x.name, x.broadcast, b)
	}
	v := x.m.View()
	if v.LinkLocal = !x.place.about.IsValid(); v.LinkLocal && v.State == link.ProbeConflict &&
		(x.tries < arp.MaxConflicts || p.now() > x.since+arp.RateLimitInterval) {
		p.log.Info("another host uses the link-local address: another one is tried", "link", x.name, "address", x.about.String(),
			"by", v.By.String())
		p.another(x)
		return
	}
	v.Trouble = x.trouble
	p.mu.Lock()
	old, known := p.views[x.place]
	p.views[x.place] = v
	p.mu.Unlock()
	if known && old == v {
		return
	}
	if v.State == link.ProbeConflict && (old.State != v.State || old.By != v.By) {
		p.log.Warn("another host uses an address", "link", x.name, "address", x.about.String(), "by", v.By.String(), "set", x.has(x.about))
	}
	p.wake(map[int]bool{x.index: true})
}

func (p *Probers) send(index int, name string, broadcast, b []byte) {
	// A link that goes down, and a queue that is full, are as a lost packet.
	if err := p.sender.Send(index, arp.EtherType, broadcast, b); err != nil {
		p.log.Debug("an ARP packet was not sent", "link", name, "error", err)
	}
}

func (p *Probers) receive(e packet.Event) {
	for _, x := range p.probers {
		if x.listener != e.From {
			continue
		}
		switch {
		case errors.Is(e.Err, packet.ErrOversized):
		case e.Err != nil: // the link went down: what the loop observes next opens the socket again
			x.listener = x.listener.Close()
			x.m.Link(p.now(), false, x.downs, x.has(x.about))
			p.after(x, nil)
		default:
			p.after(x, x.m.ARP(p.now(), e.Data, x.own))
		}
		return
	}
}

// Complete adds what the probers have found to a snapshot.
func (p *Probers) Complete(snap *link.Snapshot) {
	p.mu.Lock()
	if !p.completed {
		p.completed, p.atStart = true, known(snap)
	}
	p.mu.Unlock()
	known := p.byLink()
	link.SetEach(snap, func(l *link.Link) *[]link.Probe { return &l.Probes },
		func(l *link.Link) []link.Probe { return known[l.Index] }, slices.Equal)
}
