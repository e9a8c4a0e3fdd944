package rdmanl

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/nl"
)

// numbers of include/uapi/rdma/rdma_netlink.h
const (
	cmdResQP   = 10
	cmdResCMID = 11

	attrResQP        = 19
	attrResQPEntry   = 20
	attrResLQPN      = 21
	attrResType      = 26
	attrResState     = 27
	attrResPID       = 28
	attrResKernName  = 29
	attrResCMID      = 30
	attrResCMIDEntry = 31
	attrResSrcAddr   = 33
)

// Types of queue pairs that every port has for its management datagrams (enum
// ib_qp_type).
const (
	qpSMI = 0
	qpGSI = 1
)

// Holder is what may refer to an entry of a GID table: a queue pair, or an
// identifier of RDMA-CM that is bound to an address.
type Holder struct {
	QueuePair uint32 // number; 0 for an identifier without one
	Type      uint8  // enum ib_qp_type
	State     uint8  // enum ib_qp_state, or rdma_cm_state
	PID       int    // 0 for the kernel, and for a process of another PID namespace
	Kernel    string // module that the kernel's own belong to
	// Address is the local address of an identifier; not valid for queue pairs.
	Address netip.Addr
}

// Holders lists the queue pairs of a device, without those for management
// datagrams, and the identifiers of RDMA-CM that are bound to an address and have
// no queue pair.
func (c *Conn) Holders(index uint32) ([]Holder, error) {
	qps, err := c.resources(index, cmdResQP, attrResQP, attrResQPEntry)
	if err != nil {
		return nil, err
	}
	ids, err := c.resources(index, cmdResCMID, attrResCMID, attrResCMIDEntry)
	if err != nil {
		return nil, err
	}
	var out []Holder
	for _, h := range qps {
		if h.Type != qpSMI && h.Type != qpGSI {
			out = append(out, h)
		}
	}
	for _, h := range ids {
		if h.QueuePair == 0 && h.Address.IsValid() && !h.Address.IsUnspecified() {
			out = append(out, h)
		}
	}
	return out, nil
}

func (c *Conn) resources(index uint32, cmd, table, entry uint16) ([]Holder, error) {
	var out []Holder
	r := nl.NewRequest(fmt.Sprintf("list the resources of RDMA device %d", index), msgType(cmd), 0, nl.Build().Uint32(attrDevIndex, index))
	err := c.Dump(r, func() { out = out[:0] }, func(typ uint16, data []byte) error {
		if typ != msgType(cmd) {
			return nil
		}
		hs, err := decodeHolders(data, table, entry)
		out = append(out, hs...)
		return err
	})
	return out, noRDMA(err)
}

func decodeHolders(b []byte, table, entry uint16) (out []Holder, err error) {
	a := nl.ParseAttrs(b)
	for a.Next() {
		if a.Type() != table {
			continue
		}
		n := a.Nested()
		for n.Next() {
			if n.Type() != entry {
				continue
			}
			h, err := decodeHolder(n.Nested())
			if err != nil {
				return out, err
			}
			out = append(out, h)
		}
		if n.Err() != nil {
			return out, n.Err()
		}
	}
	return out, a.Err()
}

func decodeHolder(a nl.Attrs) (h Holder, err error) {
	for a.Next() {
		switch a.Type() {
		case attrResLQPN:
			h.QueuePair = a.Uint32()
		case attrResType:
			h.Type = a.Uint8()
		case attrResState:
			h.State = a.Uint8()
		case attrResPID:
			h.PID = a.Index()
		case attrResKernName:
			h.Kernel = a.String()
		case attrResSrcAddr:
			h.Address = socketAddress(a.Bytes())
		}
	}
	return h, a.Err()
}

// socketAddress is the address of a struct sockaddr_storage, not valid for other
// families than IPv4 and IPv6.
func socketAddress(b []byte) netip.Addr {
	if len(b) < 24 {
		return netip.Addr{}
	}
	switch binary.NativeEndian.Uint16(b) {
	case unix.AF_INET:
		return netip.AddrFrom4([4]byte(b[4:8]))
	case unix.AF_INET6:
		return netip.AddrFrom16([16]byte(b[8:24])).Unmap()
	}
	return netip.Addr{}
}
