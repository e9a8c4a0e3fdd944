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
		{IPv6, AcceptRA, "2"}, {IPv6, DisableIPv6, "1"}, {IPv6, AddrGenMode, "1"}, {IPv6, KeepAddrOnDown, "1"}, {IPv6, UseTempAddr, "2"}, {IPv6, Forwarding, "1"},
		{IPv4, RPFilter, "2"}, {IPv4, Forwarding, "1"}, {IPv4, ProxyARP, "1"},
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
	if _, err := f.Get(IPv6, "ib9", AcceptRA); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent link: %v", err)
	}
}

func TestBadNames(t *testing.T) {
	f := New(t.TempDir())
	for _, n := range [][3]string{{"ipx", "lo", AcceptRA}, {"ipv6", "../all", AcceptRA}, {"ipv6", "..", AcceptRA}, {"ipv6", "lo", "a/b"}, {"ipv6", "", AcceptRA}} {
		if _, err := f.Path(Family(n[0]), n[1], n[2]); err == nil {
			t.Errorf("bad %q: no error", n)
		}
	}
	if err := f.Set(IPv6, "lo", AcceptRA, "1\n2"); err == nil {
		t.Error("bad: two lines were written")
	}
	if p, err := f.Path(IPv6, "ib0.8001", AcceptRA); err != nil || p == "" {
		t.Errorf("OK dot: %v", err)
	}
}
