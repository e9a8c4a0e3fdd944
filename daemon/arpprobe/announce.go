package arpprobe

import (
	"ibnetworkd/daemon"
	"ibnetworkd/daemon/plan"
	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/link/arp"
)

// announced is an address that peers may know with another hardware address: of an IPoIB
// link, which has the queue pair number and changes with each restart of the driver.
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

// announces lists the IPv4 addresses of IPoIB links that a unit is applied to, without
// those that are probed, which their probers announce.
func announces(v daemon.View, probed map[place]wanted) map[place]announced {
	out := map[place]announced{}
	for i := range v.Snapshot.Links {
		l := &v.Snapshot.Links[i]
		if !l.IsInfiniBand() || l.Master != 0 && l.SlaveKind != link.KindVRF || plan.Served(v.Snapshot, v.Governing, l) == nil {
			continue
		}
		for _, a := range l.Addresses {
			at := place{l.Index, a.Prefix.Addr()}
			if _, ok := probed[at]; ok || !at.about.Is4() {
				continue
			}
			out[at] = announced{name: l.Name, cfg: arp.Config{HType: l.Type, HWAddr: l.HWAddr}, broadcast: l.AllHosts(),
				carrier: l.Up() && l.Carrier()}
		}
	}
	return out
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
