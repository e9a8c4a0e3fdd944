package link

import (
	"slices"
	"strings"

	"ibnetworkd/units"
)

// maxTimeServers bounds the time servers of a link.
const maxTimeServers = 8

// TimeServers are the time servers of the leases that units use, in the order of the links.
func TimeServers(s *Snapshot, unit func(*Link) *units.Unit) (out []string) {
	for i := range s.Links {
		addNew(&out, s.Links[i].timeServers(unit(&s.Links[i]))...)
	}
	return out
}

func (l *Link) timeServers(u *units.Unit) (out []string) {
	use := func(x *Lease, use bool) {
		if x == nil || !use {
			return
		}
		for _, a := range x.NTP[:min(len(x.NTP), maxTimeServers)] {
			if a.Is6() && a.IsLinkLocalUnicast() {
				a = a.WithZone(l.Name)
			}
			addNew(&out, a.String())
		}
	}
	if u != nil {
		use(l.leaseFor(u), u.DHCPv4.Get().UseNTP.Or(true))
		use(l.lease6For(u), u.DHCPv6.Get().UseNTP.Or(true))
	}
	return out
}

// planTimeServers shows which time servers of the leases systemd-timesyncd or chronyd has. Where
// neither runs that is a reason only if the unit asks for it.
func planTimeServers(b *Builder, index int, u *units.Unit) {
	l := b.Link(index)
	want := l.timeServers(u)
	if len(want) == 0 {
		return
	}
	a := Attribute{Name: "NTP", Wanted: strings.Join(want, " ")}
	have := slices.DeleteFunc(slices.Clone(want), func(s string) bool { return !slices.Contains(b.Base.Host.TimeServers, s) })
	a.Actual = strings.Join(have, " ")
	switch {
	case b.Base.Host.Timesync:
		if a.Actual != a.Wanted {
			a.Why = Reason{Code: CodeNoTimesync, Text: "systemd-timesyncd has not accepted the time servers of the lease",
				Next: "journalctl -u ibnetworkd"}
		}
	case b.Base.Host.Chrony:
		if a.Actual != a.Wanted && (u.DHCPv4.Get().UseNTP.V || u.DHCPv6.Get().UseNTP.V) {
			a.Why = Reason{Code: CodeNoTimesync, Text: "chronyd has not received all time servers of the lease: it accepts no link-local address",
				Next: "configure other addresses on the DHCP server; journalctl -u ibnetworkd"}
		}
	case u.DHCPv4.Get().UseNTP.V || u.DHCPv6.Get().UseNTP.V:
		a.Why = Reason{Code: CodeNoTimesync,
			Text: "neither systemd-timesyncd nor chronyd uses the time servers of the lease",
			Next: "systemctl enable --now systemd-timesyncd, or chrony with the line sourcedir /run/chrony-dhcp; or UseNTP=no"}
	default:
		return // the line DHCP has them
	}
	b.Attr(index, a)
}
