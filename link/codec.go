package link

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"ibnetworkd/ib"
)

// maxSnapshot bounds what DecodeSnapshot accepts, in bytes.
const maxSnapshot = 256 << 20

// EncodeSnapshot is the capture file of a snapshot: indented JSON, the same
// bytes for equal snapshots.
func EncodeSnapshot(s *Snapshot) ([]byte, error) {
	c := *s
	c.Schema = SnapshotSchema
	b, err := json.MarshalIndent(&c, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the snapshot: %w", err)
	}
	return append(b, '\n'), nil
}

// DecodeSnapshot reads a capture file, whatever the order of its parts.
func DecodeSnapshot(b []byte) (*Snapshot, error) {
	if len(b) > maxSnapshot {
		return nil, fmt.Errorf("snapshot has %d bytes, more than %d", len(b), maxSnapshot)
	}
	s := &Snapshot{}
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	if s.Schema != SnapshotSchema {
		return nil, fmt.Errorf("snapshot has schema %d, this version reads %d", s.Schema, SnapshotSchema)
	}
	s.Sort()
	for i := range s.Links {
		l := &s.Links[i]
		if i > 0 && s.Links[i-1].Index == l.Index || l.Index <= 0 {
			return nil, fmt.Errorf("snapshot: link index %d is not positive or stands twice", l.Index)
		}
		for _, a := range l.Addresses {
			if !a.Prefix.IsValid() {
				return nil, fmt.Errorf("snapshot: link %s has an address without a prefix", l.Name)
			}
		}
		for _, r := range l.Routes {
			if !r.Dst.IsValid() {
				return nil, fmt.Errorf("snapshot: link %s has a route without a destination", l.Name)
			}
		}
	}
	return s, nil
}

// Sort puts the parts of a snapshot in order.
func (s *Snapshot) Sort() {
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
	h := hider{nets: map[netip.Prefix]int{}, hosts: map[netip.Addr]int{}, guids: map[ib.GUID]ib.GUID{}}
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
	nets  map[netip.Prefix]int
	hosts map[netip.Addr]int
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

// addr keeps the kind of an address and gives it a number of its own.
func (h *hider) addr(a netip.Addr) netip.Addr {
	if !a.IsValid() || a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() {
		return a
	}
	n, ok := h.hosts[a]
	if !ok {
		n = len(h.hosts) + 1
		h.hosts[a] = n
	}
	if a.Is4() {
		// 198.18.0.0/15 is for tests (RFC 2544).
		return netip.AddrFrom4([4]byte{198, 18 + byte(n>>16&1), byte(n >> 8), byte(n)})
	}
	out := netip.MustParseAddr("2001:db8::").As16()
	if a.IsLinkLocalUnicast() {
		out = netip.MustParseAddr("fe80::").As16()
	}
	out[13], out[14], out[15] = byte(n>>16), byte(n>>8), byte(n)
	return netip.AddrFrom16(out)
}

func (h *hider) prefix(p netip.Prefix) netip.Prefix {
	if !p.IsValid() || p.Bits() == 0 {
		return p
	}
	n, ok := h.nets[p.Masked()]
	if !ok {
		n = len(h.nets) + 1
		h.nets[p.Masked()] = n
	}
	a := h.addr(p.Addr())
	if p.Masked().Addr() == p.Addr() {
		return netip.PrefixFrom(a, p.Bits()).Masked()
	}
	return netip.PrefixFrom(a, p.Bits())
}
