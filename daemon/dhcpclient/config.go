package dhcpclient

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"

	"ibnetworkd/internal/journal"
	"ibnetworkd/link"
	"ibnetworkd/link/dhcp"
	"ibnetworkd/link/dhcp6"
	"ibnetworkd/units"
)

// msgLease is the MESSAGE_ID of leases, as ibnetworkd(8) lists it.
const msgLease = "8c6f0a5f2bb84b4a9e6c1f0e4d4f9b27"

// as adds a message's id to the arguments of a log record.
func as(id string, args ...any) []any { return append(args, journal.MessageID, id) }

// wanted4 is the client of IPv4 of a link.
func wanted4(s *link.Snapshot, l *link.Link, u *units.Unit, who identity) wanted {
	cfg := config4(s, l, u, who)
	return wanted{cfg: cfg, id: cfg.ClientID, who: who,
		make: func(seed uint64, kept *link.Lease, inUse bool) machine { return dhcp.New(cfg, seed, kept, inUse) }}
}

// wanted6 is the client of IPv6 of a link, which is to begin in a way.
func wanted6(s *link.Snapshot, l *link.Link, u *units.Unit, who identity, start units.DHCPv6Start, byRouter bool) wanted {
	cfg := config6(s, l, u, who)
	cfg.Information = start == units.DHCPv6Information
	return wanted{cfg: cfg, id: binary.BigEndian.AppendUint32(slices.Clip(cfg.ClientID), cfg.IAID), who: who,
		byRouter: byRouter, noAddress: !u.DHCPv6.Get().UseAddress.Or(true),
		make: func(seed uint64, kept *link.Lease, inUse bool) machine { return dhcp6.New(cfg, seed, kept, inUse) }}
}

// start6 is how the DHCPv6 client of a link is to begin, and whether by router advertisements.
// One that a router has begun for an address goes on: the next advertisement may be of a router that knows of no DHCPv6.
func start6(l *link.Link, u *units.Unit, began units.DHCPv6Start) (start units.DHCPv6Start, byRouter bool) {
	start, byRouter = link.DHCPv6Start(l, u)
	if byRouter {
		start = max(start, began)
	}
	return start, byRouter
}

// config4 is how the client of IPv4 presents itself.
func config4(s *link.Snapshot, l *link.Link, u *units.Unit, who identity) dhcp.Config {
	d := u.DHCPv4.Get()
	c := dhcp.Config{
		HType: l.Type, HWAddr: l.HWAddr, Vendor: d.VendorClass.V, Broadcast: d.RequestBroadcast.V,
		Probe: d.SendDecline.V, Release: d.SendRelease.Or(true),
		ClientID: dhcp.ClientID(d.ClientIdentifier.V, l.Type, who.hwaddr, who.name, s.Host.Facts.MachineID, d.IAID),
		Hostname: sentName(s, d.SendHostname, d.Hostname), Request: valuesOf(d.RequestOptions),
	}
	if d.UseHostname.V && !slices.Contains(c.Request, dhcp.OptionHostname) {
		c.Request = append(c.Request, dhcp.OptionHostname)
	}
	c.Allow, c.Deny = valuesOf(d.AllowList), valuesOf(d.DenyList)
	return c
}

// config6 is how the client of IPv6 presents itself.
func config6(s *link.Snapshot, l *link.Link, u *units.Unit, who identity) dhcp6.Config {
	d := u.DHCPv6.Get()
	mac := who.hwaddr.Bytes()
	iaid, ok := d.IAID.Get()
	if !ok {
		iaid = dhcp.InterfaceID(who.name, mac)
	}
	return dhcp6.Config{
		ClientID: dhcp6.ClientID(d, s.Host.Facts.MachineID, mac, l.Type), IAID: iaid, HWServers: dhcp6.HWServers(l.Type, l.Broadcast),
		Hostname: sentName(s, d.SendHostname, d.Hostname), Request: valuesOf(d.RequestOptions),
		RapidCommit: d.RapidCommit.Or(true), Release: d.SendRelease.Or(true),
	}
}

func valuesOf[T any](vs []units.Value[T]) (out []T) {
	for _, v := range vs {
		out = append(out, v.V)
	}
	return out
}

// sentName is the name that servers get, "" for none.
func sentName(s *link.Snapshot, send units.Value[bool], name units.Value[string]) string {
	if !send.Or(true) {
		return ""
	}
	return name.Or(hostname(s.Host.Facts.Hostname))
}

// linkLocal is the address from which DHCPv6 is sent, invalid for none that may be used yet.
func linkLocal(addrs []link.Address) netip.Addr {
	for _, a := range addrs {
		if ip := a.Prefix.Addr(); ip.Is6() && ip.IsLinkLocalUnicast() && a.Flags&(link.AddrTentative|link.AddrDADFailed) == 0 {
			return ip
		}
	}
	return netip.Addr{}
}

// observed hands a client what is known of its link.
func (x *client) observed(resumed bool) (out []dhcp.Send) {
	if m, ok := x.m.(*dhcp6.Client); ok {
		out = m.Addresses(now(), linkLocal(x.addrs), failed(x.addrs))
	}
	out = append(out, x.m.Carrier(now(), x.carrier, x.downs, resumed)...)
	if m, ok := x.m.(*dhcp.Client); ok {
		out = append(out, m.Conflict(now(), x.lost)...)
	}
	return out
}

// lostAddress is the leased address that another host uses, invalid for none.
func lostAddress(l *link.Link) netip.Addr {
	for _, p := range l.Probes {
		if p.Lost {
			return p.Address
		}
	}
	return netip.Addr{}
}

// failed are the addresses that another host uses.
func failed(addrs []link.Address) (out []netip.Addr) {
	for _, a := range addrs {
		if a.Flags&link.AddrDADFailed != 0 {
			out = append(out, a.Prefix.Addr())
		}
	}
	return out
}

// hostname is the host's name as a server may have it: none for one that is not set.
func hostname(name string) string {
	if name == "localhost" || strings.HasPrefix(name, "localhost.") || name == "(none)" {
		return ""
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 {
			return ""
		}
	}
	return name
}

// predictable is the name that udev's rules made for a link, in systemd's order; "" for
// none.
func predictable(l *link.Link) string {
	for _, key := range []string{"ID_NET_NAME_ONBOARD", "ID_NET_NAME_SLOT", "ID_NET_NAME_PATH", "ID_NET_NAME_MAC"} {
		if n := l.Udev.Properties[key]; n != "" {
			return n
		}
	}
	return ""
}
