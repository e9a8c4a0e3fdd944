package dhcp6

import (
	"encoding/binary"

	"ibnetworkd/link/dhcp"
	"ibnetworkd/units"
)

// ClientID is the DUID that a unit asks for. machine is the machine ID as text; mac is
// the link's hardware address.
func ClientID(d *units.DHCPv6, machine string, mac []byte, htype uint16) []byte {
	kind := d.DUIDType.Or(units.DUIDVendor)
	if raw, ok := d.DUIDRawData.Get(); ok {
		return append(binary.BigEndian.AppendUint16(nil, uint16(kind)), raw...)
	}
	if kind == units.DUIDLinkLayer {
		machine = ""
	}
	return dhcp.DUID(machine, mac, htype)
}
