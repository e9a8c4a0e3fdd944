package link

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"ibnetworkd/units"
)

func TestSysctls(t *testing.T) {
	testPlans(t, []planCase{
		{name: "OK every key", unit: "[Network]\nLinkLocalAddressing=ipv6\nIPv4Forwarding=yes\nIPv6Forwarding=no\nIPv6AcceptRA=yes\n" +
			"IPv6PrivacyExtensions=prefer-public\nIPv6DuplicateAddressDetection=2\n" +
			"IPv6HopLimit=9\nIPv6MTUBytes=1400\nIPv4ReversePathFilter=loose\nIPv4AcceptLocal=yes\nIPv4RouteLocalnet=yes\n" +
			"IPv4ProxyARP=yes\nIPv4ProxyARPPrivateVLAN=no\nIPv6ProxyNDP=yes\n", want: "" +
			"sysctl -w net.ipv6.conf.ib0.addr_gen_mode=0\n" +
			"sysctl -w net.ipv4.conf.ib0.forwarding=1\n" +
			"sysctl -w net.ipv6.conf.ib0.forwarding=0\n" +
			"sysctl -w net.ipv6.conf.ib0.accept_ra=2\n" +
			"sysctl -w net.ipv6.conf.ib0.use_tempaddr=1\n" +
			"sysctl -w net.ipv6.conf.ib0.dad_transmits=2\n" +
			"sysctl -w net.ipv6.conf.ib0.hop_limit=9\n" +
			"sysctl -w net.ipv6.conf.ib0.mtu=1400\n" +
			"sysctl -w net.ipv4.conf.ib0.rp_filter=2\n" +
			"sysctl -w net.ipv4.conf.ib0.accept_local=1\n" +
			"sysctl -w net.ipv4.conf.ib0.route_localnet=1\n" +
			"sysctl -w net.ipv4.conf.ib0.proxy_arp=1\n" +
			"sysctl -w net.ipv4.conf.ib0.proxy_arp_pvlan=0\n" +
			"sysctl -w net.ipv6.conf.ib0.proxy_ndp=1\n"},
		{name: "OK several rails", unit: "[Network]\nMultiRail=yes\n", want: "sysctl -w net.ipv4.conf.ib0.arp_ignore=1\n" +
			"sysctl -w net.ipv4.conf.ib0.arp_announce=2\nsysctl -w net.ipv4.conf.ib0.rp_filter=2\n"},
		{name: "OK several rails, filtered strictly", unit: "[Network]\nMultiRail=yes\nIPv4ReversePathFilter=strict\n",
			want: "sysctl -w net.ipv4.conf.ib0.rp_filter=1\nsysctl -w net.ipv4.conf.ib0.arp_ignore=1\nsysctl -w net.ipv4.conf.ib0.arp_announce=2\n"},
		{name: "OK one rail", unit: "[Network]\nMultiRail=no\nIPv4ReversePathFilter=no\n", want: "sysctl -w net.ipv4.conf.ib0.rp_filter=0\n" +
			"sysctl -w net.ipv4.conf.ib0.arp_ignore=0\nsysctl -w net.ipv4.conf.ib0.arp_announce=0\n"},
		{name: "OK no link-local address", unit: "[Network]\nLinkLocalAddressing=no\n", want: "sysctl -w net.ipv6.conf.ib0.addr_gen_mode=1\n"},
		{name: "OK a mode of generation", unit: "[Network]\nIPv6LinkLocalAddressGenerationMode=stable-privacy\n", want: "sysctl -w " +
			"net.ipv6.conf.ib0.addr_gen_mode=2\n"},
		{name: "OK as it is", unit: "[Network]\nIPv6AcceptRA=no\nIPv4Forwarding=yes\n", sys: func(s *Snapshot, _ *Record) {
			s.Links[1].Sysctl = map[string]string{"ipv6/accept_ra": "0", "ipv4/forwarding": "1", "ipv6/forwarding": "0"}
		}},
		{name: "bad more than the link's MTU", unit: "[Network]\nIPv6MTUBytes=60000\n", want: "# blocked: ib0: IPv6MTUBytes=60000 " +
			"is more than the link's MTU 2044\n"},
		{name: "bad an MTU at which the link has no IPv6 settings", unit: "[Network]\nIPv6AcceptRA=yes\nIPv4Forwarding=yes\n",
			sys: func(s *Snapshot, _ *Record) { s.Links[1].MTU = 1000 }, want: "sysctl -w net.ipv4.conf.ib0.forwarding=1\n" +
				"# blocked: ib0: IPv6 needs an MTU of 1280, ib0 has 1000\n#   next: raise MTUBytes=\n"},
		{name: "bad no IPv6", unit: "[Network]\nIPv6AcceptRA=no\n", sys: func(s *Snapshot, _ *Record) { s.Host.NoIPv6 = true },
			want: "# blocked: ib0: this kernel has no IPv6\n"},
	})
}

// A status has values in the words of the unit.
func TestSysctlAttributes(t *testing.T) {
	s := host(t)
	s.Links[1].Sysctl = map[string]string{"ipv6/accept_ra": "1", "ipv4/forwarding": "1", "ipv6/forwarding": "0", "ipv6/hop_limit": "64"}
	s.Links[1].Sysctl["ipv6/addr_gen_mode"], s.Links[1].Sysctl["ipv6/ra_defrtr_metric"] = "1", "1024"
	u := unit(t, "[Network]\nLinkLocalAddressing=ipv6\nIPv6AcceptRA=yes\nIPv4Forwarding=no\nIPv6HopLimit=9\n[IPv6AcceptRA]\nRouteMetric=512\n")
	got := map[string]Attribute{}
	for _, a := range planIB0(s, u, nil, nil).Attributes(4) {
		got[a.Name] = a
	}
	for name, want := range map[string][2]string{
		"LinkLocalAddressing": {"IPv6 (eui64)", "no IPv6"},
		"RouteMetric":         {"512", "1024"},
		"IPv6AcceptRA":        {"yes", "yes (accept_ra=1, forwarding=0)"},
		"IPv4Forwarding":      {"no", "yes"},
		"IPv6HopLimit":        {"ipv6/hop_limit=9", "ipv6/hop_limit=64"},
	} {
		if a := got[name]; a.Wanted != want[0] || a.Actual != want[1] {
			t.Errorf("%s: wanted %q, actual %q", name, a.Wanted, a.Actual)
		}
	}
	if keys := Sysctls(u); len(keys) == 0 {
		t.Error("nothing is read")
	}
}

// Whether IPv6 is disabled is read where a unit needs it: the kernel refuses it else.
func TestDisabledIPv6IsRead(t *testing.T) {
	for text, want := range map[string]bool{
		"[Network]\nAddress=10.0.0.1/24\n":                          false,
		"[Network]\nAddress=fd00::1/64\n":                           true,
		"[Network]\nDHCP=yes\n":                                     true,
		"[Network]\nGateway=fd00::1\n":                              true,
		"[Network]\nAddress=10.0.0.1/24\n[NextHop]\nId=7\n":         false,
		"[NextHop]\nId=7\nGateway=fd00::2\n":                        true,
		"[Network]\nAddress=fd00::{host}/64\n":                      true,
		"[IPoIB]\nMode=datagram\n[Link]\nMTUBytes=2044\n":           false,
		"[Network]\nAddress=10.0.0.1/24\nIPv6AcceptRA=yes\nDHCP=no": false,
	} {
		if got := slices.Contains(Sysctls(unit(t, text)), disableIPv6); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// What the kernel uses of router advertisements is set where they are accepted.
func TestRouterSettings(t *testing.T) {
	const keys = "[IPv6AcceptRA]\nUseGateway=no\nUseMTU=no\nRouteMetric=512\n"
	for text, want := range map[string]map[string]string{
		"[Network]\nIPv6AcceptRA=yes\n": {},
		"[Network]\nIPv6AcceptRA=yes\n" + keys: {"ipv6/accept_ra_defrtr": "0", "ipv6/accept_ra_mtu": "0",
			"ipv6/ra_defrtr_metric": "512"},
		"[Network]\nIPv6AcceptRA=no\n" + keys: {},
	} {
		got := map[string]string{}
		u, _ := units.VerifyFile("10-ib0.ibnetwork", []byte("[Match]\nName=ib0\n"+text))
		for _, s := range wantedSysctls(u, true) {
			if strings.Contains(s.key, "_ra_") || strings.Contains(s.key, "ra_defrtr") {
				got[s.key] = s.value
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%q: %v", text, got)
		}
	}
}
