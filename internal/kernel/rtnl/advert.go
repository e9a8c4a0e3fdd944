package rtnl

import (
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/nl"
)

// Advert is an option of a router advertisement about name resolution: RDNSS or
// DNSSL of RFC 8106.
type Advert struct {
	Index    int    // of the link that received it
	Lifetime uint32 // seconds; 0 withdraws, Forever has no end
	Servers  []netip.Addr
	Domains  []string // lower case, without the last dot
}

// Adverts is a source of such options. The kernel hands on those of each
// advertisement, which routers repeat: one that is lost comes again.
type Adverts = nl.Events[Advert]

// advertBuffer bounds what a flood of advertisements holds of the kernel's memory.
const advertBuffer = 256 << 10

// ListenAdverts opens a source in the calling thread's network namespace.
func ListenAdverts() (*Adverts, error) {
	return nl.OpenEvents(unix.NETLINK_ROUTE, []uint32{unix.RTNLGRP_ND_USEROPT}, advertBuffer, decodeAdvert)
}

// sizeNDUserOpt is the size of struct nduseroptmsg (linux/rtnetlink.h).
const sizeNDUserOpt = 16

const (
	icmp6RouterAdvertisement = 134
	ndOptRDNSS               = 25
	ndOptDNSSL               = 31
	// ndOptHead is type, length, two reserved bytes and the lifetime of both.
	ndOptHead = 8
)

func decodeAdvert(typ uint16, b []byte, put func(Advert)) {
	if typ != unix.RTM_NEWNDUSEROPT || len(b) < sizeNDUserOpt || b[0] != unix.AF_INET6 || b[8] != icmp6RouterAdvertisement || b[9] != 0 {
		return
	}
	index := int(int32(ne.Uint32(b[4:])))
	opts := b[sizeNDUserOpt:]
	opts = opts[:min(int(ne.Uint16(b[2:])), len(opts))]
	for len(opts) >= ndOptHead {
		n := int(opts[1]) * 8
		if n == 0 || n > len(opts) {
			return
		}
		if a, ok := decodeOption(opts[:n]); ok && index > 0 {
			a.Index = index
			put(a)
		}
		opts = opts[n:]
	}
}

// decodeOption decodes one option in network byte order, whole and of its own length.
// Unusable servers and domains are left out.
func decodeOption(b []byte) (a Advert, ok bool) {
	a.Lifetime = uint32(b[4])<<24 | uint32(b[5])<<16 | uint32(b[6])<<8 | uint32(b[7])
	body := b[ndOptHead:]
	switch b[0] {
	case ndOptRDNSS:
		for ; len(body) >= 16; body = body[16:] {
			s := netip.AddrFrom16([16]byte(body))
			if !s.IsUnspecified() && !s.IsLoopback() && !s.IsMulticast() && !s.Is4In6() {
				a.Servers = append(a.Servers, s)
			}
		}
	case ndOptDNSSL:
		for len(body) > 0 && body[0] != 0 {
			var name string
			if name, body, ok = domain(body); !ok {
				break
			}
			if name != "localhost" && !strings.HasSuffix(name, ".localhost") {
				a.Domains = append(a.Domains, name)
			}
		}
	}
	return a, len(a.Servers)+len(a.Domains) > 0
}

// domain takes one name of labels (RFC 1035, without compression) that is a host's
// or a service's: letters, digits, hyphens and underscores.
func domain(b []byte) (name string, rest []byte, ok bool) {
	var labels []string
	size := 0
	for {
		if len(b) == 0 {
			return "", nil, false
		}
		n := int(b[0])
		b = b[1:]
		if n == 0 {
			return strings.Join(labels, "."), b, true
		}
		if size += n + 1; n > 63 || n > len(b) || size > 254 || !hostLabel(b[:n]) {
			return "", nil, false
		}
		labels = append(labels, strings.ToLower(string(b[:n])))
		b = b[n:]
	}
}

func hostLabel(b []byte) bool {
	for _, c := range b {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return b[0] != '-' && b[len(b)-1] != '-'
}
