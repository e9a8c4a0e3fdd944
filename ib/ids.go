package ib

import (
	"fmt"
	"strconv"
	"strings"
)

// LID is a local identifier (IBTA 4.1.3): 0x0001-0xbfff unicast, 0xc000-0xfffe
// multicast, 0xffff permissive. 0 is "none".
type LID uint16

// Limits of the LID space.
const (
	LIDUnicastMin   LID = 0x0001
	LIDUnicastMax   LID = 0xbfff
	LIDMulticastMin LID = 0xc000
	LIDMulticastMax LID = 0xfffe
	LIDPermissive   LID = 0xffff
)

// IsUnicast reports whether l can be the address of one port.
func (l LID) IsUnicast() bool { return l >= LIDUnicastMin && l <= LIDUnicastMax }

// IsMulticast reports whether l is the address of a multicast group.
func (l LID) IsMulticast() bool { return l >= LIDMulticastMin && l <= LIDMulticastMax }

// String prints the LID as 0x and four digits.
func (l LID) String() string { return fmt.Sprintf("0x%04x", uint16(l)) }

// PKey is a partition key: 15 bits of partition and the membership bit 0x8000
// (IBTA 10.9). 0x0000 and 0x8000 are invalid.
type PKey uint16

// DefaultPKey is the default partition with full membership.
const DefaultPKey PKey = 0xffff

// ParsePKey reads a partition key, hexadecimal with 0x and decimal without, as
// systemd.netdev's PartitionKey= does. It accepts 0 to 0xffff; whether the key
// can name a partition is IsValid's answer.
func ParsePKey(s string) (PKey, error) {
	v, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		return 0, fmt.Errorf("P_Key %q is not a number (write 0x8001 or 32769)", Clip(s))
	}
	if v > 0xffff {
		return 0, fmt.Errorf("P_Key %q is larger than 0xffff", Clip(s))
	}
	return PKey(v), nil
}

// Base is the key without its membership bit.
func (k PKey) Base() PKey { return k &^ 0x8000 }

// Full reports full membership; a limited member reaches full members only.
func (k PKey) Full() bool { return k&0x8000 != 0 }

// AsFull is the key with full membership, the form in which ib_ipoib names its
// interfaces.
func (k PKey) AsFull() PKey { return k | 0x8000 }

// IsValid reports whether k names a partition (its base is not 0).
func (k PKey) IsValid() bool { return k.Base() != 0 }

// Matches reports whether packets with keys k and o are let through to each
// other: same partition and at least one full member (IBTA 10.9.3).
func (k PKey) Matches(o PKey) bool {
	return k.IsValid() && k.Base() == o.Base() && (k.Full() || o.Full())
}

// String prints the key as 0x and four digits.
func (k PKey) String() string { return fmt.Sprintf("0x%04x", uint16(k)) }

// MarshalText implements encoding.TextMarshaler with String's form.
func (k PKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler with ParsePKey.
func (k *PKey) UnmarshalText(b []byte) (err error) {
	*k, err = ParsePKey(string(b))
	return err
}

// QKey is a queue key (IBTA 10.2.4). The high bit marks a privileged key.
type QKey uint32

// String prints the key as 0x and eight digits.
func (k QKey) String() string { return fmt.Sprintf("0x%08x", uint32(k)) }

// QKeyGSI is the well-known key of QP1 (IBTA 13.6.1.4).
const QKeyGSI QKey = 0x80010000

// MKey is a management key (IBTA 14.2.4); 0 protects nothing.
type MKey uint64

// SL is a service level, 0 to 15 (IBTA 7.6.5).
type SL uint8

// VL is a virtual lane, 0 to 15; 15 carries subnet management (IBTA 7.6.2).
type VL uint8

// LMC is a LID mask count, 0 to 7: a port answers to 1<<LMC LIDs (IBTA 7.11.1).
type LMC uint8

// Count is the number of LIDs that a port with this mask count has.
func (m LMC) Count() int { return 1 << (m & 7) }

// MTU is the code of an InfiniBand MTU as MADs carry it: 1 to 5 for 256 to 4096
// bytes (IBTA table 145, PortInfo:NeighborMTU). It is not a netdev MTU: see
// MTU.IPoIBDatagram.
type MTU uint8

// The codes that the architecture defines.
const (
	MTU256  MTU = 1
	MTU512  MTU = 2
	MTU1024 MTU = 3
	MTU2048 MTU = 4
	MTU4096 MTU = 5
)

// IsValid reports whether m is one of the five codes.
func (m MTU) IsValid() bool { return m >= MTU256 && m <= MTU4096 }

// Bytes is the payload size, 0 for an invalid code.
func (m MTU) Bytes() int {
	if !m.IsValid() {
		return 0
	}
	return 128 << m
}

// IPoIBEncap is the size in bytes of the encapsulation header that IPoIB puts
// into each datagram (RFC 4391 section 6).
const IPoIBEncap = 4

// ConnectedMTU is the largest netdev MTU in bytes of connected mode on Linux
// (IPOIB_CM_MTU, 0x10000 - 0x10, drivers/infiniband/ulp/ipoib/ipoib.h).
const ConnectedMTU = 65520

// IPoIBDatagram is the netdev MTU in bytes of datagram mode on a group with this
// MTU: 4 less than the payload, 2044 or 4092 in practice (RFC 4391 section 7).
func (m MTU) IPoIBDatagram() int {
	if !m.IsValid() {
		return 0
	}
	return m.Bytes() - IPoIBEncap
}

// MTUFromBytes is the code for exactly n bytes, 0 if there is none.
func MTUFromBytes(n int) MTU {
	for m := MTU256; m <= MTU4096; m++ {
		if m.Bytes() == n {
			return m
		}
	}
	return 0
}

// String prints the size in bytes.
func (m MTU) String() string {
	if !m.IsValid() {
		return fmt.Sprintf("invalid MTU code %d", uint8(m))
	}
	return strconv.Itoa(m.Bytes())
}

// Rate is the code of a static rate as SA records carry it (IBTA table 210,
// PathRecord:Rate, with the codes up to XDR of release 1.7).
type Rate uint8

// Rate codes by their speed in Gb/s.
const (
	Rate25  Rate = 15
	Rate28  Rate = 19
	Rate40  Rate = 7
	Rate50  Rate = 20
	Rate300 Rate = 18
	Rate400 Rate = 21
)

// rateTenths maps a rate code to tenths of Gb/s. The codes are not in order of
// speed, so comparing codes compares nothing. (Linux enum ib_rate,
// include/rdma/ib_verbs.h.)
var rateTenths = [...]int{
	2: 25, 3: 100, 4: 300, 5: 50, 6: 200, 7: 400, 8: 600, 9: 800, 10: 1200,
	11: 140, 12: 560, 13: 1120, 14: 1680, 15: 250, 16: 1000, 17: 2000, 18: 3000,
	19: 280, 20: 500, 21: 4000, 22: 6000, 23: 8000,
}

// IsValid reports whether r is a code with a speed.
func (r Rate) IsValid() bool { return int(r) < len(rateTenths) && rateTenths[r] != 0 }

// Tenths is the speed in tenths of Gb/s, 0 for an unknown code.
func (r Rate) Tenths() int {
	if int(r) >= len(rateTenths) {
		return 0
	}
	return rateTenths[r]
}

// Less orders rates by speed.
func (r Rate) Less(o Rate) bool { return r.Tenths() < o.Tenths() }

// String prints the speed as 2.5 or 100 with its unit.
func (r Rate) String() string {
	if !r.IsValid() {
		return fmt.Sprintf("invalid rate code %d", uint8(r))
	}
	return strings.TrimSuffix(fmt.Sprintf("%d.%d", r.Tenths()/10, r.Tenths()%10), ".0") + " Gb/s"
}

// RateFromTenths is the code whose speed is exactly n tenths of Gb/s, 0 if there
// is none.
func RateFromTenths(n int) Rate {
	if n <= 0 {
		return 0
	}
	for c, t := range rateTenths {
		if t == n {
			return Rate(c)
		}
	}
	return 0
}

// RateAtMost is the fastest code that does not exceed n tenths of Gb/s, 0 if all
// do.
func RateAtMost(n int) (best Rate) {
	for c, t := range rateTenths {
		if t != 0 && t <= n && t > best.Tenths() {
			best = Rate(c)
		}
	}
	return best
}
