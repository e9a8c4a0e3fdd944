package link

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"ibnetworkd/units"
)

// ResolvConfFile has the name servers and search domains of all links, for hosts without systemd-resolved:
// /etc/resolv.conf can be a symbolic link to it.
const ResolvConfFile = "/run/ibnetworkd/resolv.conf"

// ResolvConf is the text of resolv.conf(5) with what units, leases and routers say of the links that have a carrier.
func ResolvConf(s *Snapshot, unit func(*Link) *units.Unit) string {
	var servers, search []string
	for i := range s.Links {
		l := &s.Links[i]
		u := unit(l)
		if u == nil || !l.Up() || !l.Carrier() {
			continue
		}
		op, _ := wantedDNS(u)
		op.On.Link = l.Name
		addLeased(&op, u, l)
		addAdvertised(&op, u, l)
		a, b, _ := op.inFile()
		addNew(&servers, a...)
		addNew(&search, b...)
	}
	out := "# Written by ibnetworkd, for hosts without systemd-resolved.\n"
	const most = 3 // MAXNS of resolv.h
	for i, a := range servers {
		if i == most {
			out += "# More name servers, which the C library does not use:\n"
		}
		out += "nameserver " + a + "\n"
	}
	if len(search) > 0 {
		out += "search " + strings.Join(search, " ") + "\n"
	}
	return out
}

// addNew adds the names that a list does not have yet, and gives them.
func addNew(list *[]string, names ...string) (added []string) {
	for _, name := range names {
		if !slices.Contains(*list, name) {
			*list = append(*list, name)
			added = append(added, name)
		}
	}
	return added
}

// inFile is what resolv.conf(5) can have of the settings; whole says that this is everything.
func (o SetDNS) inFile() (servers, search []string, whole bool) {
	whole = o.Default == Unset && len(o.Words()) == 0
	for _, s := range o.Servers {
		s, name, _ := strings.Cut(s, "#")
		s, dev, _ := strings.Cut(s, "%")
		a, err := netip.ParseAddr(s)
		if p, e := netip.ParseAddrPort(s); e == nil && p.Port() == 53 {
			a, err = p.Addr(), nil
		}
		if whole = whole && err == nil && name == ""; err != nil || o.Default == No {
			continue
		}
		if a.IsLinkLocalUnicast() && a.Is6() {
			a = a.WithZone(cmp.Or(dev, o.On.Link))
		}
		servers = append(servers, a.String())
	}
	for _, d := range o.Domains {
		switch {
		case d == "~.": // as without
		case strings.HasPrefix(d, "~"):
			whole = false // the file routes nothing
		default:
			search = append(search, d)
		}
	}
	return servers, search, whole
}

// noResolved is why settings for systemd-resolved have no effect, or not all, where it does not run; linked says that
// /etc/resolv.conf is ResolvConfFile. The link is configured all the same, as under systemd-networkd.
func noResolved(linked bool) Reason {
	if linked {
		return Reason{Code: CodeNoResolved,
			Text: "systemd-resolved does not run: only name servers and search domains have an effect, by " + ResolvConfFile,
			Next: "systemctl enable --now systemd-resolved; or remove routing domains, ports, names of servers, and the keys that belong to DNS="}
	}
	return Reason{Code: CodeNoResolved, Text: "systemd-resolved does not run: DNS=, Domains= and the keys that belong to them have no effect",
		Next: useResolvConf}
}

const useResolvConf = "ln -sf " + ResolvConfFile + " /etc/resolv.conf; or systemctl enable --now systemd-resolved"

// noResolvedForOthers is the same for what others than the unit say: routers, or also
// (leased) a DHCP server.
func noResolvedForOthers(what []string, leased, linked bool) Reason {
	const most = 3
	list := strings.Join(what[:min(len(what), most)], ", ")
	if n := len(what) - most; n > 0 {
		list += fmt.Sprintf(" and %d more", n)
	}
	r := noResolved(linked)
	switch {
	case linked:
	case leased:
		r.Text = "systemd-resolved does not run: the name servers and domains of the lease (" + list + ") have no effect"
		r.Next += "; or write UseDNS=no in [DHCPv4] or [DHCPv6]"
	default:
		r.Text = "systemd-resolved does not run: what routers advertise for name resolution (" + list + ") has no effect"
		r.Next += "; or write UseDNS=no in [IPv6AcceptRA]"
	}
	return r
}
