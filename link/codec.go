package link

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"ibnetworkd/ib"
)

// Check puts a snapshot that was read from a file in order, and refuses one that no
// observer makes: the order and what is compared with are part of its meaning.
func (s *Snapshot) Check() error {
	if s.Schema != SnapshotSchema {
		return fmt.Errorf("snapshot has schema %d, this version reads %d", s.Schema, SnapshotSchema)
	}
	s.sort()
	for i := range s.Links {
		l := &s.Links[i]
		if i > 0 && s.Links[i-1].Index == l.Index || l.Index <= 0 {
			return fmt.Errorf("snapshot: link index %d is not positive or stands twice", l.Index)
		}
		for _, a := range l.Addresses {
			if !a.Prefix.IsValid() {
				return fmt.Errorf("snapshot: link %s has an address without a prefix", l.Name)
			}
		}
		for _, r := range l.Routes {
			if !r.Dst.IsValid() {
				return fmt.Errorf("snapshot: link %s has a route without a destination", l.Name)
			}
		}
	}
	return nil
}

func (s *Snapshot) sort() {
	slices.SortStableFunc(s.Links, func(a, b Link) int { return a.Index - b.Index })
	slices.SortStableFunc(s.Devices, func(a, b Device) int { return strings.Compare(a.Name, b.Name) })
	for i := range s.Devices {
		slices.SortStableFunc(s.Devices[i].Ports, func(a, b Port) int { return a.Num - b.Num })
	}
	for i := range s.Links {
		l := &s.Links[i]
		slices.SortStableFunc(l.Addresses, func(a, b Address) int {
			if c := a.Prefix.Addr().Compare(b.Prefix.Addr()); c != 0 {
				return c
			}
			return a.Prefix.Bits() - b.Prefix.Bits()
		})
	}
}

// Hide replaces what identifies a site: addresses keep their families, prefix
// lengths and which of them share a subnet, GUIDs keep which are equal. The
// result plans alike with units that do not name what was hidden.
func (s *Snapshot) Hide() *Snapshot {
	h := hider{guids: map[ib.GUID]ib.GUID{}}
	// The key is of the whole snapshot: the same snapshot hides alike, and who
	// has not got it cannot try addresses out.
	if b, err := json.Marshal(s); err == nil {
		h.key = sha256.Sum256(b)
	}
	c := *s
	c.Card = nil // GID tables are made of addresses
	c.Host.Facts.Hostname, c.Host.Facts.MachineID = "host", ""
	c.Host.Facts.KernelCommandLine, c.Host.Facts.SMBIOSFields, c.Host.Facts.Credentials = "", nil, nil
	c.Links, c.Devices, c.Rules = slices.Clone(s.Links), slices.Clone(s.Devices), slices.Clone(s.Rules)
	for i := range c.Devices {
		d := &c.Devices[i]
		d.NodeGUID, d.SysGUID, d.NodeDesc = h.guid(d.NodeGUID), h.guid(d.SysGUID), ""
		d.Ports = slices.Clone(d.Ports)
		for k := range d.Ports {
			d.Ports[k].GUID = h.guid(d.Ports[k].GUID)
		}
	}
	for i := range c.Links {
		l := &c.Links[i]
		l.HWAddr, l.PermAddr = h.hw(l.HWAddr), h.hw(l.PermAddr)
		l.Udev.Properties = nil
		l.Addresses, l.Routes = slices.Clone(l.Addresses), slices.Clone(l.Routes)
		for k := range l.Addresses {
			a := &l.Addresses[k]
			a.Prefix, a.Peer, a.Broadcast, a.Label = h.prefix(a.Prefix), h.prefix(a.Peer), h.addr(a.Broadcast), ""
		}
		for k := range l.Routes {
			r := &l.Routes[k]
			r.Dst, r.Src, r.Gateway, r.PrefSrc = h.prefix(r.Dst), h.prefix(r.Src), h.addr(r.Gateway), h.addr(r.PrefSrc)
			r.NextHops = slices.Clone(r.NextHops)
			for n := range r.NextHops {
				r.NextHops[n].Gateway = h.addr(r.NextHops[n].Gateway)
			}
		}
	}
	for i := range c.Rules {
		c.Rules[i].From, c.Rules[i].To = h.prefix(c.Rules[i].From), h.prefix(c.Rules[i].To)
	}
	return &c
}

type hider struct {
	key   [sha256.Size]byte
	guids map[ib.GUID]ib.GUID
}

func (h *hider) guid(g ib.GUID) ib.GUID {
	if g == 0 {
		return 0
	}
	if x, ok := h.guids[g]; ok {
		return x
	}
	x := ib.GUID(0x0002c90000000000 + uint64(len(h.guids)+1))
	h.guids[g] = x
	return x
}

func (h *hider) hw(a ib.HWAddr) ib.HWAddr {
	b := a.Bytes()
	if len(b) < 6 {
		return a
	}
	if len(b) >= 8 {
		g := h.guid(a.GUID()).Bytes()
		copy(b[len(b)-8:], g[:])
	} else {
		n := uint64(0)
		for _, x := range b {
			n = n<<8 | uint64(x)
		}
		g := h.guid(ib.GUID(n)).Bytes()
		copy(b, []byte{2, g[3], g[4], g[5], g[6], g[7]})
	}
	out, err := ib.HWAddrFrom(b)
	if err != nil {
		return ib.HWAddr{}
	}
	return out
}

// addr replaces an address so that two addresses have as many leading bits in
// common afterwards as before: bit n is flipped or not by what stands before it
// (the method of Crypto-PAn). What says only what kind of address it is stays:
// the first byte of IPv4, the first two of IPv6, the prefix fe80::/64.
func (h *hider) addr(a netip.Addr) netip.Addr {
	if !a.IsValid() || a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() {
		return a
	}
	in := a.AsSlice()
	out := slices.Clone(in)
	keep := 8
	switch {
	case a.Is6() && a.IsLinkLocalUnicast():
		keep = 64
	case a.Is6():
		keep = 16
	case a.IsLinkLocalUnicast():
		keep = 16
	}
	for n := keep; n < 8*len(in); n++ {
		// All bits before n, and n itself.
		seen := slices.Clone(in[:n/8+1])
		seen[n/8] &= ^byte(0xff >> (n % 8))
		sum := sha256.Sum256(slices.Concat(h.key[:], []byte{byte(len(in)), byte(n)}, seen))
		out[n/8] ^= (sum[0] & 1) << (7 - n%8)
	}
	b, ok := netip.AddrFromSlice(out)
	if !ok {
		return a
	}
	return b
}

// prefix replaces the address and, for a network, keeps the host bits zero.
func (h *hider) prefix(p netip.Prefix) netip.Prefix {
	if !p.IsValid() || p.Bits() == 0 {
		return p
	}
	a := netip.PrefixFrom(h.addr(p.Addr()), p.Bits())
	if p.Masked().Addr() == p.Addr() {
		return a.Masked()
	}
	return a
}
