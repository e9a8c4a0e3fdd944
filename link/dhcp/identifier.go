package dhcp

import (
	"encoding/binary"
	"encoding/hex"
	"math/bits"

	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// ClientID is option 61 of a link as a unit asks for it. name is udev's predictable name
// of the interface, empty for none; machine is the machine ID as text.
func ClientID(id units.ClientIdentifier, htype uint16, mac ib.HWAddr, name, machine string, iaid units.Value[uint32]) []byte {
	b := mac.Bytes()
	last := b[max(0, len(b)-8):]
	switch id.Kind {
	case units.ClientIDRaw:
		return id.Raw
	case units.ClientIDMAC:
		return append([]byte{byte(htype)}, last...)
	case units.ClientIDFlexBoot:
		if htype == link.ARPHRDInfiniBand {
			// What FlexBoot sends for InfiniBand ports: IAID 0, and a DUID of Mellanox
			// (enterprise 713) with the port GUID.
			return append([]byte{0xff, 0, 0, 0, 0, 0, 2, 0, 0, 0x02, 0xc9, 0}, last...)
		}
		return append([]byte{byte(htype)}, last...)
	case units.ClientIDDUIDOnly:
		return append([]byte{0xff}, DUID(machine, b, htype)...)
	}
	// RFC 4361.
	n, ok := iaid.Get()
	if !ok {
		n = InterfaceID(name, b)
	}
	return append(binary.BigEndian.AppendUint32([]byte{0xff}, n), DUID(machine, b, htype)...)
}

// systemdKey is the key with which systemd makes identifiers of a machine and of its
// interfaces, so that a host has one identifier under either program.
const systemdKey = "\x80\x11\x8c\xc2\xfe\x4a\x03\xee\x3e\xd6\x0c\x6f\x36\x39\x14\x09"

// DUID is systemd's vendor DUID (RFC 8415, section 11.3, enterprise 43793), or one of
// the hardware address on a host without a machine ID.
func DUID(machine string, mac []byte, htype uint16) []byte {
	id, err := hex.DecodeString(machine)
	if err != nil || len(id) != 16 {
		return append(binary.BigEndian.AppendUint16([]byte{0, 3}, htype), mac[max(0, len(mac)-8):]...)
	}
	return binary.LittleEndian.AppendUint64([]byte{0, 2, 0, 0, 0xab, 0x11}, siphash(systemdKey, id))
}

// InterfaceID is the IAID that systemd-networkd gives an interface with that name; without
// one it is of what does not change of the hardware address.
func InterfaceID(name string, mac []byte) uint32 {
	b := []byte(name)
	if name == "" {
		b = mac[max(0, len(mac)-8):]
	}
	h := siphash(systemdKey, b)
	return uint32(h) ^ uint32(h>>32)
}

// siphash is SipHash-2-4 of Aumasson and Bernstein with a key of 16 bytes.
func siphash(key string, b []byte) uint64 {
	k0, k1 := binary.LittleEndian.Uint64([]byte(key)), binary.LittleEndian.Uint64([]byte(key)[8:])
	v := [4]uint64{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
	rounds := func(n int) {
		for range n {
			v[0] += v[1]
			v[2] += v[3]
			v[1] = bits.RotateLeft64(v[1], 13) ^ v[0]
			v[3] = bits.RotateLeft64(v[3], 16) ^ v[2]
			v[0] = bits.RotateLeft64(v[0], 32)
			v[2] += v[1]
			v[0] += v[3]
			v[1] = bits.RotateLeft64(v[1], 17) ^ v[2]
			v[3] = bits.RotateLeft64(v[3], 21) ^ v[0]
			v[2] = bits.RotateLeft64(v[2], 32)
		}
	}
	word := func(m uint64) {
		v[3] ^= m
		rounds(2)
		v[0] ^= m
	}
	tail := uint64(len(b)) << 56
	for ; len(b) >= 8; b = b[8:] {
		word(binary.LittleEndian.Uint64(b))
	}
	for i, c := range b {
		tail |= uint64(c) << (8 * i)
	}
	word(tail)
	v[2] ^= 0xff
	rounds(4)
	return v[0] ^ v[1] ^ v[2] ^ v[3]
}
