package dhcpclient

import (
	"net/netip"
	"strings"

	"ibnetworkd/internal/journal"
	"ibnetworkd/link"
	"ibnetworkd/link/dhcp"
	"ibnetworkd/units"
)

// msgLease is the MESSAGE_ID of leases, as ibnetworkd(8) lists it.
const msgLease = "8c6f0a5f2bb84b4a9e6c1f0e4d4f9b27"

// as adds a message's id to the arguments of a log record.
func as(id string, args ...any) []any { return append(args, journal.MessageID, id) }

// config is how the client of a link presents itself.
func config(s *link.Snapshot, l *link.Link, u *units.Unit) dhcp.Config {
	d := &u.DHCPv4
	c := dhcp.Config{
		HType: l.Type, HWAddr: l.HWAddr, Vendor: d.VendorClass.V, Broadcast: d.RequestBroadcast.V,
		Probe: d.SendDecline.V, Release: d.SendRelease.Or(true),
		ClientID: dhcp.ClientID(d.ClientIdentifier.V, l.Type, l.HWAddr, predictable(l), s.Host.Facts.MachineID, d.IAID),
	}
	if d.SendHostname.Or(true) {
		c.Hostname = d.Hostname.Or(hostname(s.Host.Facts.Hostname))
	}
	for _, o := range d.RequestOptions {
		c.Request = append(c.Request, o.V)
	}
	prefixes := func(vs []units.Value[netip.Prefix]) (out []netip.Prefix) {
		for _, v := range vs {
			out = append(out, v.V)
		}
		return out
	}
	c.Allow, c.Deny = prefixes(d.AllowList), prefixes(d.DenyList)
	return c
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
