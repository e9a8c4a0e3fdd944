package procsys

import (
	"errors"
	"io/fs"
	"testing"

	"ibnetworkd/internal/kernel/kerneltest"
)

func TestLoopback(t *testing.T) {
	kerneltest.Isolate(t)
	f := New("/")
	for _, tt := range []struct {
		fam        Family
		key, value string
	}{
		{IPv6, "accept_ra", "2"}, {IPv6, "disable_ipv6", "1"}, {IPv6, "addr_gen_mode", "1"}, {IPv6, "keep_addr_on_down", "1"},
		{IPv6, "use_tempaddr", "2"}, {IPv6, "forwarding", "1"},
		{IPv4, "rp_filter", "2"}, {IPv4, "forwarding", "1"}, {IPv4, "proxy_arp", "1"},
	} {
		if _, err := f.Get(tt.fam, "lo", tt.key); errors.Is(err, fs.ErrNotExist) {
			t.Logf("the kernel has no %s", tt.key)
			continue
		}
		if err := f.Set(tt.fam, "lo", tt.key, tt.value); err != nil {
			t.Error(err)
			continue
		}
		if got, err := f.Get(tt.fam, "lo", tt.key); got != tt.value || err != nil {
			t.Errorf("%s: %q, %v; want %q", tt.key, got, err, tt.value)
		}
	}
	if _, err := f.Get(IPv6, "ib9", "accept_ra"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent link: %v", err)
	}
}

func TestBadNames(t *testing.T) {
	f := New(t.TempDir())
	for _, n := range [][3]string{{"ipx", "lo", "accept_ra"}, {"ipv6", "../all", "accept_ra"}, {"ipv6", "..", "accept_ra"},
		{"ipv6", "lo", "a/b"}, {"ipv6", "", "accept_ra"}} {
		if _, err := f.Path(Family(n[0]), n[1], n[2]); err == nil {
			t.Errorf("bad %q: no error", n)
		}
	}
	if err := f.Set(IPv6, "lo", "accept_ra", "1\n2"); err == nil {
		t.Error("bad: two lines were written")
	}
	if p, err := f.Path(IPv6, "ib0.8001", "accept_ra"); err != nil || p == "" {
		t.Errorf("OK dot: %v", err)
	}
}
