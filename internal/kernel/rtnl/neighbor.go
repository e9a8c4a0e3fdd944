package rtnl

import (
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/nl"
)

// Neighbor is an entry of the neighbour table.
type Neighbor struct {
	Index   int
	IP      netip.Addr
	Address ib.HWAddr
	State   uint16 // NUD_*
}

// sizeNdMsg is that of struct ndmsg: family, two of padding, index, state, flags, type.
const sizeNdMsg = 12

// Neighbors dumps the permanent entries of a link.
func (c *Conn) Neighbors(index int) ([]Neighbor, error) {
	w := nl.Build(make([]byte, sizeNdMsg)...).Uint32(unix.NDA_IFINDEX, uint32(index))
	r := nl.NewRequest(fmt.Sprintf("list neighbours of link %d", index), unix.RTM_GETNEIGH, 0, w)
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Neighbor
	err := c.Dump(r, func() { out = nil }, func(typ uint16, data []byte) error {
		// The kernel has no filter by state, and one host may have thousands of entries.
		if typ != unix.RTM_NEWNEIGH || len(data) < sizeNdMsg || ne.Uint16(data[8:])&unix.NUD_PERMANENT == 0 {
			return nil
		}
		n, err := decodeNeighbor(data)
		if err == nil && n.Index == index && n.IP.IsValid() && n.Address.IsValid() && !n.IP.IsMulticast() {
			out = append(out, n)
		}
		return err
	})
	return out, err
}

// decodeNeighbor leaves out what is not an IP address or not 6 or 20 bytes.
func decodeNeighbor(b []byte) (n Neighbor, err error) {
	if len(b) < sizeNdMsg {
		return n, errShort
	}
	n.Index, n.State = int(int32(ne.Uint32(b[4:]))), ne.Uint16(b[8:])
	a := nl.ParseAttrs(b[sizeNdMsg:])
	for a.Next() {
		switch a.Type() {
		case unix.NDA_DST:
			n.IP, _ = netip.AddrFromSlice(a.Bytes())
		case unix.NDA_LLADDR:
			n.Address, _ = ib.HWAddrFrom(a.Bytes())
		}
	}
	return n, a.Err()
}

// SetNeighbor adds a permanent entry, or makes one that exists permanent, with this
// link-layer address.
func SetNeighbor(n Neighbor) Request {
	n.State = unix.NUD_PERMANENT
	return neighbor("set", unix.RTM_NEWNEIGH, netlink.Create|netlink.Replace, n)
}

// DelNeighbor removes an entry; ENOENT if there is none.
func DelNeighbor(n Neighbor) Request {
	n.Address = ib.HWAddr{}
	return neighbor("remove", unix.RTM_DELNEIGH, 0, n)
}

func neighbor(verb string, typ uint16, flags netlink.HeaderFlags, n Neighbor) Request {
	what := fmt.Sprintf("%s neighbour %s of link %d", verb, n.IP, n.Index)
	if !n.IP.IsValid() {
		return Request{What: what, Err: fmt.Errorf("the neighbour has no address")}
	}
	h := make([]byte, sizeNdMsg)
	h[0] = family(n.IP)
	ne.PutUint32(h[4:], uint32(n.Index))
	ne.PutUint16(h[8:], n.State)
	w := nl.Build(h...).Raw(unix.NDA_DST, n.IP.AsSlice())
	if n.Address.IsValid() {
		w.Raw(unix.NDA_LLADDR, n.Address.Bytes())
	}
	return nl.NewRequest(what, typ, flags, w)
}
