package link

import (
	"fmt"

	"ibnetworkd/units"
)

// LeaseHostname is the host name of the first lease that has one and whose unit uses it, with
// the index of its link; "" for none.
func LeaseHostname(s *Snapshot, unit func(*Link) *units.Unit) (name string, index int) {
	for i := range s.Links {
		l := &s.Links[i]
		if u := unit(l); u != nil && u.DHCPv4.Get().UseHostname.V {
			if x := l.leaseFor(u); x != nil && x.Hostname != "" {
				return x.Hostname, l.Index
			}
		}
	}
	return "", 0
}

// planHostname shows the name of the lease, and why it is not the host's.
func planHostname(b *Builder, index int, u *units.Unit) {
	if u == nil || !u.DHCPv4.Get().UseHostname.V {
		return
	}
	x := b.Link(index).leaseFor(u)
	if x == nil || x.Hostname == "" {
		return
	}
	h := b.Base.Host
	a := Attribute{Name: "UseHostname", Wanted: x.Hostname, Actual: h.LeaseHostname}
	switch {
	case h.HostnameTrouble == "" && (a.Actual == "" || a.Actual == a.Wanted):
	case h.HostnameTrouble != "":
		a.Why = Reason{Code: CodeHostname, Text: "the host does not get the name of the lease: " + h.HostnameTrouble,
			Next: "install systemd-hostnamed and polkit; or hostname " + x.Hostname + ", and remove UseHostname=yes"}
	default:
		a.Why = Reason{Code: CodeHostname, Text: fmt.Sprintf("the host is %q and not %q: a static name or another link's lease has precedence",
			a.Actual, a.Wanted), Next: "hostnamectl set-hostname --static ''; or remove UseHostname=yes"}
	}
	b.Attr(index, a)
}
