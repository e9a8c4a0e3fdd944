package link

import "testing"

// The name of a lease is used with UseHostname=yes alone; what the host has instead is a reason.
func TestLeaseHostname(t *testing.T) {
	s := host(t)
	leased(func(l *Lease) { l.Hostname = "node7" })(s, nil)
	for _, tc := range []struct {
		unit, actual, trouble string
		name                  string
		code                  Code
	}{
		{"", "x", "", "", ""},
		{"UseHostname=no\n", "x", "", "", ""},
		{"UseHostname=yes\n", "node7", "", "node7", ""},
		{"UseHostname=yes\n", "", "", "node7", ""},
		{"UseHostname=yes\n", "x", "", "node7", CodeHostname},
		{"UseHostname=yes\n", "x", "no bus", "node7", CodeHostname},
	} {
		u := unit(t, "[Network]\nDHCP=ipv4\n[DHCPv4]\n"+tc.unit)
		s.Host.LeaseHostname, s.Host.HostnameTrouble = tc.actual, tc.trouble
		if name, index := LeaseHostname(s, unitOf(u)); name != tc.name || name != "" && index != 4 {
			t.Errorf("%q: %q of link %d", tc.unit, name, index)
		}
		var a Attribute
		for _, x := range planIB0(s, u, &Record{}, nil).Attributes(4) {
			if x.Name == "UseHostname" {
				a = x
			}
		}
		if a.Wanted != tc.name || a.Why.Code != tc.code || tc.name != "" && a.Actual != tc.actual {
			t.Errorf("%q, the host is %q: %+v", tc.unit, tc.actual, a)
		}
	}
}
