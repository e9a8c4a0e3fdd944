package main

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/maphash"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"ibnetworkd/link"
)

var hideWords = []string{"addresses", "guids", "names"}

// hideIn replaces in the text of a capture what the user asks to hide. It works
// on the text as a whole, so that snapshot and unit files stay in agreement.
func hideIn(text []byte, what []string, snap *link.Snapshot) ([]byte, error) {
	hide, err := newHiding(what, snap.Host.Facts.Hostname, snap.Host.Facts.MachineID)
	if err != nil {
		return nil, err
	}
	return []byte(hide(string(text))), nil
}

// newHiding makes a function that replaces what is to be hidden, the same by the
// same in every text.
func newHiding(what []string, host, machine string) (func(string) string, error) {
	for _, w := range what {
		if w != "all" && !slices.Contains(hideWords, w) {
			return nil, fail(exitUsage, "--hide %s: not one of addresses, guids, names, all", w)
		}
	}
	has := func(w string) bool { return slices.Contains(what, w) || slices.Contains(what, "all") }
	h := newHider()
	type replacement struct {
		old *regexp.Regexp
		new string
	}
	var names []replacement
	if has("names") {
		// The short name is a word of its own: in node descriptions, for example.
		short, _, _ := strings.Cut(host, ".")
		for _, x := range [][2]string{{host, "host.example"}, {short, "host"}, {machine, strings.Repeat("0", 31) + "1"}} {
			if x[0] == short {
				x[1] = "host"
			}
			if len(x[0]) > 1 && x[0] != "localhost" {
				names = append(names, replacement{regexp.MustCompile(`(^|[^\w-])` + regexp.QuoteMeta(x[0]) + `($|[^\w-])`), "${1}" + x[1] + "${2}"})
			}
		}
	}
	return func(s string) string {
		if has("guids") {
			// Before addresses: a hardware address looks like an IPv6 address.
			s = h.guids(s)
		}
		if has("addresses") {
			s = h.addresses(s)
		}
		for _, n := range names {
			// Twice: of two that share a separator the first time misses one.
			s = n.old.ReplaceAllString(n.old.ReplaceAllString(s, n.new), n.new)
		}
		return s
	}, nil
}

type hider struct{ key uint64 }

func newHider() hider {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return hider{binary.LittleEndian.Uint64(b[:])}
}

// bit is a random function of a bit string.
func (h hider) bit(prefix []byte, n int) byte {
	var b [32]byte
	binary.LittleEndian.PutUint64(b[:], h.key)
	copy(b[8:], prefix)
	b[31] = byte(n)
	return byte(maphash.Bytes(hideSeed, b[:]) & 1)
}

var hideSeed = maphash.MakeSeed()

// flip changes bits from to to of b, each as a function of all bits before it,
// so that two values with a common prefix keep one of the same length
// (prefix-preserving anonymisation; Xu and others, 2002).
func (h hider) flip(b []byte, from, to int) {
	orig := slices.Clone(b)
	for i := from; i < to; i++ {
		head := make([]byte, len(orig))
		copy(head, orig[:i/8])
		if i%8 != 0 {
			head[i/8] = orig[i/8] &^ (0xff >> (i % 8))
		}
		b[i/8] ^= h.bit(head, i) << (7 - i%8)
	}
}

var (
	guidPattern = regexp.MustCompile(`0x[0-9a-fA-F]{16}\b|\b(?:[0-9a-fA-F]{4}:){3}[0-9a-fA-F]{4}\b|\b(?:[0-9a-fA-F]{2}[:-]){5,19}[0-9a-fA-F]{2}\b`)
	addrPattern = regexp.MustCompile(`[0-9a-fA-F:.]*(?:\.[0-9]+){3}|[0-9a-fA-F]*:[0-9a-fA-F:]+[0-9a-fA-F.:]*`)
)

// guids replaces the lower five bytes of each GUID, which tell one card from
// another; the vendor's part stays, because drivers and bugs go by it.
func (h hider) guids(s string) string {
	return guidPattern.ReplaceAllStringFunc(s, func(m string) string {
		digits := strings.NewReplacer("0x", "", ":", "", "-", "").Replace(m)
		b, err := hex.DecodeString(digits)
		if err != nil || len(b) < 6 || allZero(b) {
			return m
		}
		tail := b[len(b)-min(8, len(b)):]
		if binary.BigEndian.Uint16(tail) == 0xfe80 {
			return m // a subnet prefix
		}
		// The same GUID must come out the same in all spellings: the key
		// is its last eight bytes.
		h.flip(tail, 24, 8*len(tail))
		var out strings.Builder
		k := 0
		for i := 0; i < len(m); i++ {
			if c := m[i]; c == ':' || c == '-' || i == 1 && c == 'x' || i == 0 && strings.HasPrefix(m, "0x") {
				out.WriteByte(c)
				continue
			}
			fmt.Fprintf(&out, "%x", b[k/2]>>(4*(1-k%2))&0xf)
			k++
		}
		return out.String()
	})
}

func allZero(b []byte) bool {
	return !slices.ContainsFunc(b, func(x byte) bool { return x != 0 })
}

// addresses replaces each unicast IP address. Prefix lengths up to 64 keep
// their meaning; loopback, link-local, multicast and unspecified ones stay.
func (h hider) addresses(s string) string {
	return addrPattern.ReplaceAllStringFunc(s, func(m string) string {
		trimmed := strings.TrimRight(m, ".:")
		if strings.HasSuffix(m, "::") {
			trimmed = m
		}
		a, err := netip.ParseAddr(trimmed)
		if err != nil || a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
			return m
		}
		if a.IsLinkLocalUnicast() {
			return m
		}
		b := a.AsSlice()
		if a.Is4() {
			if b[0] == 255 { // a netmask
				return m
			}
			// The last byte stays: an address of a host must not become
			// that of its network, or its broadcast address.
			h.flip(b, 8, 24)
		} else {
			h.flip(b, 8, 64)
		}
		n, _ := netip.AddrFromSlice(b)
		return n.String() + m[len(trimmed):]
	})
}
