package rtnl

import (
	"encoding/binary"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func advertMessage(index uint32, options ...byte) []byte {
	b := []byte{unix.AF_INET6, 0}
	b = binary.NativeEndian.AppendUint16(b, uint16(len(options)))
	b = binary.NativeEndian.AppendUint32(b, index)
	b = append(b, 134, 0, 0, 0, 0, 0, 0, 0)
	b = append(b, options...)
	return append(b, 20, 0, 1, 0, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1) // NDUSEROPT_SRCADDR
}

func rdnss(lifetime uint32, servers ...string) []byte {
	b := binary.BigEndian.AppendUint32([]byte{25, byte(1 + 2*len(servers)), 0, 0}, lifetime)
	for _, s := range servers {
		b = append(b, netip.MustParseAddr(s).AsSlice()...)
	}
	return b
}

func dnssl(lifetime uint32, names ...string) []byte {
	b := binary.BigEndian.AppendUint32([]byte{31, 0, 0, 0}, lifetime)
	for _, n := range names {
		for l := range strings.SplitSeq(n, ".") {
			b = append(append(b, byte(len(l))), l...)
		}
		b = append(b, 0)
	}
	for len(b)%8 != 0 {
		b = append(b, 0)
	}
	b[1] = byte(len(b) / 8)
	return b
}

func TestDecodeAdvert(t *testing.T) {
	addrs := func(s ...string) (out []netip.Addr) {
		for _, a := range s {
			out = append(out, netip.MustParseAddr(a))
		}
		return out
	}
	long := strings.Repeat("a", 63)
	for name, c := range map[string]struct {
		options []byte
		want    []Advert
	}{
		"OK servers": {rdnss(1800, "fd00::53", "fe80::1"), []Advert{{Index: 7, Lifetime: 1800, Servers: addrs("fd00::53", "fe80::1")}}},
		"OK no end":  {rdnss(Forever, "fd00::53"), []Advert{{Index: 7, Lifetime: Forever, Servers: addrs("fd00::53")}}},
		"OK both": {append(rdnss(0, "fd00::53"), dnssl(60, "Site.example", "a_b.example")...), []Advert{
			{Index: 7, Servers: addrs("fd00::53")}, {Index: 7, Lifetime: 60, Domains: []string{"site.example", "a_b.example"}}}},
		"OK longest name": {dnssl(1, long+"."+long+"."+long+"."+long[:61]), []Advert{
			{Index: 7, Lifetime: 1, Domains: []string{long + "." + long + "." + long + "." + long[:61]}}}},
		"bad addresses of no host": {rdnss(1, "::", "::1", "ff02::1", "::ffff:10.0.0.1"), nil},
		"bad name of no host": {dnssl(1, "site.example", "a b", "later.example"), []Advert{
			{Index: 7, Lifetime: 1, Domains: []string{"site.example"}}}},
		"bad localhost":           {dnssl(1, "localhost", "x.localhost"), nil},
		"bad name too long":       {dnssl(1, long+"."+long+"."+long+"."+long), nil},
		"bad compression":         {[]byte{31, 2, 0, 0, 0, 0, 0, 1, 0xc0, 4, 0, 0, 0, 0, 0, 0}, nil},
		"bad label past the end":  {[]byte{31, 2, 0, 0, 0, 0, 0, 1, 7, 'a', 'a', 'a', 'a', 'a', 'a', 'a'}, nil},
		"bad length zero":         {[]byte{25, 0, 0, 0, 0, 0, 0, 1}, nil},
		"bad length past the end": {[]byte{25, 3, 0, 0, 0, 0, 0, 1}, nil},
		"other option":            {[]byte{24, 1, 0, 0, 0, 0, 0, 1}, nil},
	} {
		var got []Advert
		decodeAdvert(unix.RTM_NEWNDUSEROPT, advertMessage(7, c.options...), func(a Advert) { got = append(got, a) })
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, not %+v", name, got, c.want)
		}
	}
}

func FuzzDecodeAdvert(f *testing.F) {
	f.Add(advertMessage(7, append(rdnss(60, "fd00::53"), dnssl(60, "site.example", "b.example")...)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		size := 0
		decodeAdvert(unix.RTM_NEWNDUSEROPT, b, func(a Advert) {
			size += 16 * len(a.Servers)
			if a.Index <= 0 || len(a.Servers)+len(a.Domains) == 0 {
				t.Errorf("%+v", a)
			}
			for _, s := range a.Servers {
				if !s.Is6() || s.IsMulticast() || s.IsLoopback() || s.IsUnspecified() {
					t.Errorf("server %s", s)
				}
			}
			for _, d := range a.Domains {
				size += len(d)
				if d == "" || len(d) > 253 || d != strings.ToLower(d) || strings.ContainsAny(d, " \x00~/\n") || strings.Contains(d, "..") ||
					d[0] == '.' || d[len(d)-1] == '.' {
					t.Errorf("domain %q", d)
				}
			}
		})
		if size > len(b) {
			t.Errorf("%d bytes out of %d", size, len(b))
		}
	})
}
