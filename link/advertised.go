package link

import (
	"reflect"

	"ibnetworkd/units"
)

// Advertised is what router advertisements say about name resolution on a link
// (RDNSS and DNSSL, RFC 8106), in the order in which it was received first.
type Advertised struct {
	Servers []Lasting `json:"servers,omitempty"` // addresses
	Domains []Lasting `json:"domains,omitempty"`
}

// Lasting is a server or domain with its end in seconds since boot, 0 for none.
type Lasting struct {
	Name  string `json:"name"`
	Until uint64 `json:"until,omitempty"`
}

// UsesAdvertised reports whether a unit has name servers of router advertisements
// handed to systemd-resolved.
func UsesAdvertised(u *units.Unit) bool {
	return u != nil && u.ConfiguresIP() && u.Network.IPv6AcceptRA.V &&
		(u.IPv6AcceptRA.UseDNS.Or(true) || u.IPv6AcceptRA.UseDomains.V != units.UseDomainsNo)
}

// addAdvertised adds to a unit's servers and domains those of router
// advertisements on its link that it uses, and gives what it added.
func addAdvertised(op *SetDNS, u *units.Unit, l *Link) (added []string) {
	if !UsesAdvertised(u) || l.Advertised == nil {
		return nil
	}
	add := func(to *[]string, name string) { added = append(added, addNew(to, name)...) }
	if u.IPv6AcceptRA.UseDNS.Or(true) {
		for _, s := range l.Advertised.Servers {
			add(&op.Servers, s.Name)
		}
	}
	for _, d := range l.Advertised.Domains {
		switch u.IPv6AcceptRA.UseDomains.V {
		case units.UseDomainsYes:
			add(&op.Domains, d.Name)
		case units.UseDomainsRoute:
			add(&op.Domains, "~"+d.Name)
		}
	}
	return added
}

// NoteAdvertised notes what routers have advertised on links with something of ours: the
// kernel does not say it again after a restart. It reports whether anything
// changed.
func (r *Record) NoteAdvertised(s *Snapshot) (changed bool) {
	for _, e := range r.Links {
		if l, ok := s.Link(e.Ifindex); ok && !reflect.DeepEqual(e.Advertised, l.Advertised) {
			e.Advertised, changed = l.Advertised, true
		}
	}
	return changed
}
