package link

import (
	"net/netip"
	"testing"

	"ibnetworkd/units"
)

// The file has what can be said there, of links that have a carrier, each once.
func TestResolvConf(t *testing.T) {
	texts := map[string]string{
		"ib0": "[Network]\nDHCP=ipv4\nDNS=10.0.0.53\nDomains=site.example ~routed.example\nDNS=10.0.0.54:5353 fe80::1\n",
		"ib1": "[Network]\nDNS=10.0.0.53:53 10.0.0.55%ib1#name 10.0.0.56 fe80::1%ib0\nDomains=site.example other.example\n",
		"ib2": "[Network]\nDNS=10.0.0.57\nDNSDefaultRoute=no\n",
		"ib3": "[Network]\nDNS=10.0.0.58\n",
	}
	s, of := &Snapshot{}, map[string]*units.Unit{}
	for i, name := range []string{"ib0", "ib1", "ib2", "ib3", "ib4"} {
		s.Links = append(s.Links, Link{Index: i + 1, Name: name, Type: ARPHRDInfiniBand, Flags: FlagUp | FlagLowerUp})
		if text := texts[name]; text != "" {
			u, problems := units.VerifyFile("10-x.ibnetwork", []byte("[Match]\nName="+name+"\n"+text))
			if u == nil || len(problems) > 0 {
				t.Fatal(problems)
			}
			of[name] = u
		}
	}
	s.Links[3].Flags = FlagUp // no carrier
	s.Links[0].DHCP = &DHCP{Lease: &Lease{DNS: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Domain: "lease.example"}}
	got := ResolvConf(s, func(l *Link) *units.Unit { return of[l.Name] })
	const first = "# Written by ibnetworkd, for hosts without systemd-resolved.\n"
	want := first + "nameserver 10.0.0.53\nnameserver fe80::1%ib0\nnameserver 10.0.0.1\n" +
		"# More name servers, which the C library does not use:\nnameserver 10.0.0.55\nnameserver 10.0.0.56\n" +
		"search site.example other.example\n"
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if got := ResolvConf(&Snapshot{}, func(*Link) *units.Unit { return nil }); got != first {
		t.Error(got)
	}
}
