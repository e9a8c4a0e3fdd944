package roce

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// Indexes are the entries of a GID table that applications on a link should
// use; nil where there is none.
type Indexes struct {
	V4 *GID `json:"v4,omitempty"` // RoCE v2 over IPv4
	V6 *GID `json:"v6,omitempty"` // RoCE v2 over IPv6
	V1 *GID `json:"v1,omitempty"` // RoCE v1
}

// Preferred is the entry for an application that takes one: IPv4, else IPv6.
func (x Indexes) Preferred() *GID {
	switch {
	case x.V4 != nil:
		return x.V4
	case x.V6 != nil:
		return x.V6
	}
	return x.V1
}

// Select finds the entries for a link. The order of the table is the order in
// which addresses came, which means nothing; so the first address of the link
// that has an entry decides, those of the link's unit before what others
// have added, global before link-local, and of equal entries the one with
// the lower index.
func Select(table []GID, l *link.Link, ofUnit []units.Address) (x Indexes) {
	table = slices.Clone(table)
	slices.SortFunc(table, func(a, b GID) int { return a.Index - b.Index })
	addrs := slices.Clone(l.Addresses)
	slices.SortStableFunc(addrs, func(a, b link.Address) int {
		return rank(a, ofUnit) - rank(b, ofUnit)
	})
	find := func(version int, want netip.Addr) *GID {
		for i := range table {
			e := &table[i]
			if e.Version == version && (e.Netdev == "" || e.Netdev == l.Name) && netip.AddrFrom16(e.GID).Unmap() == want {
				return e
			}
		}
		return nil
	}
	for _, a := range addrs {
		ip := a.Prefix.Addr().WithZone("")
		if e := find(2, ip); e != nil {
			if ip.Is4() && x.V4 == nil {
				x.V4 = e
			}
			if ip.Is6() && x.V6 == nil {
				x.V6 = e
			}
		}
		if x.V1 == nil {
			x.V1 = find(1, ip)
		}
	}
	return x
}

// Settled reports whether a GID table agrees with the addresses of the link. The
// kernel changes the table some time after the addresses (roce_gid_mgmt.c queues
// it) and sends no event. The entry of the kernel's own link-local address exists
// whether the link has that address or not.
func Settled(table []GID, l *link.Link) bool {
	have := map[netip.Addr]bool{}
	for _, e := range table {
		if e.Netdev != "" && e.Netdev != l.Name {
			continue
		}
		ip := netip.AddrFrom16(e.GID).Unmap()
		have[ip] = true
		if !ip.IsLinkLocalUnicast() &&
			!slices.ContainsFunc(l.Addresses, func(a link.Address) bool { return a.Prefix.Addr().WithZone("") == ip }) {
			return false
		}
	}
	return !slices.ContainsFunc(l.Addresses, func(a link.Address) bool { return !have[a.Prefix.Addr().WithZone("")] })
}

// rank orders addresses: those of the unit first, in its order, then usable global
// ones, link-local ones last.
func rank(a link.Address, ofUnit []units.Address) int {
	at := slices.IndexFunc(ofUnit, func(x units.Address) bool { return x.Address.V == a.Prefix })
	n := 8
	if at >= 0 {
		n = 0
	}
	if a.Prefix.Addr().IsLinkLocalUnicast() {
		n += 4
	}
	if a.Flags&link.AddrDeprecated != 0 {
		n += 2
	}
	if a.Flags&link.AddrSecondary != 0 && a.Prefix.Addr().Is4() && at < 0 {
		n++
	}
	return n*len(ofUnit) + n + max(at, 0)
}

// Env is the text of a link's environment file, to be sourced by a shell or read
// by systemd's EnvironmentFile=: what NCCL and UCX want to know of it. dev and
// port name the RDMA port on the link; layer Ethernet has GID indexes, an
// InfiniBand port's index is 0 by nature and is not named.
func Env(l *link.Link, dev string, port int, x Indexes) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# RDMA port of the link %s; ibnetworkd rewrites this file when it changes.\n", l.Name)
	fmt.Fprintf(&b, "IBNET_LINK=%s\nIBNET_RDMA_DEVICE=%s\nIBNET_RDMA_PORT=%d\n", l.Name, dev, port)
	// The equals sign asks NCCL for exactly this name, not for names that begin
	// with it.
	fmt.Fprintf(&b, "NCCL_IB_HCA=\"=%s:%d\"\nUCX_NET_DEVICES=%s:%d\n", dev, port, dev, port)
	if e := x.Preferred(); e != nil {
		fmt.Fprintf(&b, "NCCL_IB_GID_INDEX=%d\nUCX_IB_GID_INDEX=%d\n", e.Index, e.Index)
	}
	for _, v := range []struct {
		name string
		e    *GID
	}{{"IPV4", x.V4}, {"IPV6", x.V6}, {"V1", x.V1}} {
		if v.e != nil {
			fmt.Fprintf(&b, "IBNET_GID_INDEX_%s=%d\nIBNET_GID_%s=%s\n", v.name, v.e.Index, v.name, v.e.GID)
		}
	}
	return b.String()
}

// gids notes the GID indexes of the link.
func (p *planner) gids() {
	if p.roce == nil || p.roce.Layer != ib.LinkLayerEthernet {
		return
	}
	p.shown()
	ofUnit, _ := p.b.Derivation.Addresses(p.b.Base, p.l, p.u)
	x := Select(p.st.Devices[p.roceOn.IBDevice].Ports[p.roceOn.Port].GIDs, p.l, ofUnit)
	note := func(name string, e *GID) {
		if e != nil {
			p.attr(link.Attribute{Name: name, Actual: fmt.Sprint(e.Index)})
		}
	}
	note("GIDIndexIPv4", x.V4)
	note("GIDIndexIPv6", x.V6)
}
