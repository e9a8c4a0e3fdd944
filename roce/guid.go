package roce

import "ibnetworkd/ib"

// NodeGUIDFor and PortGUIDFor are the GUIDs of a virtual function that a unit
// asks for with "auto": made from the port GUID of the physical function and the
// function's index, so that they are the same after each start and on each
// host's next installation, and different for all functions of all cards.
//
// A vendor's GUID has its OUI in the first three bytes, a serial number in the
// last three, and between them two bytes that are 03:00 or ff:fe on the cards
// that are made. Those two are replaced by the index plus one and, in the highest
// bit, whether it is the port's; and the bit that says "assigned locally"
// (bit 57, RFC 4291 appendix A has it as u) is set, so that no vendor's GUID can
// be met.
func NodeGUIDFor(pf ib.GUID, vf int) ib.GUID { return vfGUID(pf, vf, 0) }

// PortGUIDFor is the port's twin of NodeGUIDFor.
func PortGUIDFor(pf ib.GUID, vf int) ib.GUID { return vfGUID(pf, vf, 0x8000) }

func vfGUID(pf ib.GUID, vf int, kind uint64) ib.GUID {
	const local, middle = 1 << 57, 0xffff << 24
	n := uint64(vf+1)&0x7fff | kind
	return pf&^middle | ib.GUID(n<<24) | local
}
