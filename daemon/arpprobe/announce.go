package arpprobe

import (
	"net/netip"

	"ibnetworkd/daemon"
	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/link/arp"
)

// announced is an address that peers may know with another hardware address: another
// host's, or that of an IPoIB link before a restart of the driver gave it another queue pair.
type announced struct {
	name      string
	cfg       arp.Config
	broadcast []byte
	carrier   bool
}

type announcer struct {
	announced
	m *arp.Announcer
}

// announces lists the IPv4 addresses to announce of links that a unit is applied to: all of
// an IPoIB link, those that were probed (RFC 5227, section 2.3) of an Ethernet link.
func announces(v daemon.View, probed map[place]wanted) map[place]announced {
	out := map[place]announced{}
	for i := range v.Snapshot.Links {
		l := &v.Snapshot.Links[i]
		if l.Master != 0 && l.SlaveKind != link.KindVRF || v.Served(l) == nil {
			continue
		}
		for _, a := range l.Addresses {
			at := place{l.Index, a.Prefix.Addr()}
			if !at.about.Is4() || !l.IsInfiniBand() && !leased(l, at.about) && !probes(probed, at) {
				continue
			}
			out[at] = announced{name: l.Name, cfg: arp.Config{HType: l.Type, HWAddr: l.HWAddr}, broadcast: l.AllHosts(),
				carrier: l.Up() && l.Carrier()}
		}
	}
	return out
}

// probes reports whether a prober is to be of an address, or of the link-local one that it is.
func probes(probed map[place]wanted, at place) bool {
	_, ok := probed[at]
	return ok || at.about == probed[place{index: at.index}].linkLocal
}

// leased reports whether the daemon's DHCP client has the address, which it has probed.
func leased(l *link.Link, a netip.Addr) bool {
	return l.DHCP != nil && l.DHCP.Lease != nil && l.DHCP.Lease.Address.Addr() == a
}

// known are the addresses that links had when the daemon began, with their hardware
// addresses: peers know these.
func known(s *link.Snapshot) map[place]ib.HWAddr {
	out := map[place]ib.HWAddr{}
	for i := range s.Links {
		for _, a := range s.Links[i].Addresses {
			out[place{s.Links[i].Index, a.Prefix.Addr()}] = s.Links[i].HWAddr
		}
	}
	return out
}

// reconcileAnnouncers begins and ends announcers, and hands them the state of their links.
func (p *Probers) reconcileAnnouncers(want map[place]announced) {
	for at, x := range p.announcers {
		if w, ok := want[at]; !ok || w.cfg != x.cfg {
			delete(p.announcers, at)
			delete(p.known, at)
		}
	}
	for at, w := range want {
		x := p.announcers[at]
		if x == nil {
			x = &announcer{m: arp.NewAnnouncer(w.cfg, at.about, p.known[at] == w.cfg.HWAddr)}
			p.announcers[at] = x
		}
		x.announced = w
		x.m.Link(p.now(), x.carrier)
		p.announce(at.index, x)
	}
}

// announce sends what is due of an announcer.
func (p *Probers) announce(index int, x *announcer) {
	for _, b := range x.m.Tick(p.now()) {
		if err := p.openSender(); err != nil {
			p.log.Debug("an address is not announced", "link", x.name, "error", err)
			return
		}
		p.send(index, x.name, x.broadcast, b)
	}
}
