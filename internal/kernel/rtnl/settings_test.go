package rtnl

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"ibnetworkd/internal/kernel/procsys"
)

// What comes with a link is what the files of its sysctls have.
func TestSettings(t *testing.T) {
	c := dial(t)
	a, _ := pair(t, c)
	proc := procsys.New("/")
	reported := 0
	for _, tt := range []struct{ key, value string }{
		{"ipv4/forwarding", "1"}, {"ipv4/proxy_arp", "1"}, {"ipv4/rp_filter", "2"}, {"ipv4/arp_announce", "2"}, {"ipv4/arp_ignore", "1"},
		{"ipv4/promote_secondaries", "1"}, {"ipv4/accept_local", "1"}, {"ipv4/proxy_arp_pvlan", "1"}, {"ipv4/route_localnet", "1"},
		{"ipv6/forwarding", "1"}, {"ipv6/hop_limit", "77"}, {"ipv6/mtu", "1400"}, {"ipv6/accept_ra", "2"}, {"ipv6/autoconf", "0"},
		{"ipv6/dad_transmits", "3"}, {"ipv6/use_tempaddr", "-1"}, {"ipv6/accept_ra_defrtr", "0"}, {"ipv6/proxy_ndp", "1"},
		{"ipv6/ndisc_notify", "1"}, {"ipv6/accept_ra_mtu", "0"}, {"ipv6/addr_gen_mode", "1"}, {"ipv6/ra_defrtr_metric", "4000000000"},
		{"ipv6/disable_ipv6", "1"},
	} {
		family, leaf, _ := strings.Cut(tt.key, "/")
		fam := procsys.Family(family)
		if err := proc.Set(fam, a.Name, leaf, tt.value); errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			continue // not in this kernel, or /proc/sys is read-only here
		} else if err != nil {
			t.Fatalf("%s: %v", tt.key, err)
		}
		l, err := c.LinkByIndex(a.Index, false)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := l.Settings.Get(tt.key); !ok || got != tt.value {
			t.Errorf("%s: %q, %v, want %q", tt.key, got, ok, tt.value)
		}
		reported++
	}
	if reported == 0 {
		t.Skip("no sysctl can be written here")
	}
	for _, key := range []string{"ipv6/router_solicitation_interval", "ipv4/none", "/ipv4/tcp_rto_min_us", ""} {
		if got, ok := a.Settings.Get(key); ok {
			t.Errorf("%q: %q", key, got)
		}
	}
	if got, ok := (Settings{Inet6: make([]byte, 12)}).Get("ipv6/accept_ra"); ok {
		t.Errorf("%q of an array that ends before it", got)
	}
}
