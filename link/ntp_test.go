package link

import (
	"net/netip"
	"slices"
	"testing"

	"ibnetworkd/units"
)

// The time servers of leases count unless UseNTP=no, in the order of the links; that
// systemd-timesyncd or chronyd has them is shown, and that neither runs where the unit asks for it.
func TestTimeServers(t *testing.T) {
	const text = "[Network]\nDHCP=yes\n"
	s := host(t)
	leased(func(l *Lease) { l.NTP = []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")} })(s, nil)
	leased6(func(d *DHCP) {
		d.Lease.NTP = []netip.Addr{netip.MustParseAddr("fe80::7"), netip.MustParseAddr("10.0.0.1")}
	})(s, nil)
	all := []string{"10.0.0.1", "10.0.0.2", "fe80::7%ib0"}
	for _, tc := range []struct {
		unit           string
		running        bool
		chrony         bool
		given          []string
		servers        []string
		wanted, actual string
		code           Code
	}{
		{"", true, false, all, all, "10.0.0.1 10.0.0.2 fe80::7%ib0", "10.0.0.1 10.0.0.2 fe80::7%ib0", ""},
		{"", true, false, nil, all, "10.0.0.1 10.0.0.2 fe80::7%ib0", "", CodeNoTimesync},
		{"", false, false, nil, all, "", "", ""},
		{"[DHCPv4]\nUseNTP=yes\n", false, false, nil, all, "10.0.0.1 10.0.0.2 fe80::7%ib0", "", CodeNoTimesync},
		{"", false, true, all[:2], all, "10.0.0.1 10.0.0.2 fe80::7%ib0", "10.0.0.1 10.0.0.2", ""},
		{"[DHCPv6]\nUseNTP=yes\n", false, true, all[:2], all, "10.0.0.1 10.0.0.2 fe80::7%ib0", "10.0.0.1 10.0.0.2", CodeNoTimesync},
		{"[DHCPv6]\nUseNTP=no\n", true, false, all, all[:2], "10.0.0.1 10.0.0.2", "10.0.0.1 10.0.0.2", ""},
		{"[DHCPv4]\nUseNTP=no\n[DHCPv6]\nUseNTP=no\n", true, false, nil, nil, "", "", ""},
	} {
		u := unit(t, text+tc.unit)
		if got := TimeServers(s, unitOf(u)); !slices.Equal(got, tc.servers) {
			t.Errorf("%q: %q, want %q", tc.unit, got, tc.servers)
		}
		s.Host.Timesync, s.Host.Chrony, s.Host.TimeServers = tc.running, tc.chrony, tc.given
		var a Attribute
		for _, x := range planIB0(s, u, &Record{}, nil).Attributes(4) {
			if x.Name == "NTP" {
				a = x
			}
		}
		if a.Wanted != tc.wanted || a.Actual != tc.actual || a.Why.Code != tc.code {
			t.Errorf("%q, running %v, given %q: %+v", tc.unit, tc.running, tc.given, a)
		}
	}
}

// unitOf is the unit of ib0 alone.
func unitOf(u *units.Unit) func(*Link) *units.Unit {
	return func(l *Link) *units.Unit {
		if l.Name == "ib0" {
			return u
		}
		return nil
	}
}
