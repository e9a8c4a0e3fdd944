package fabric

import (
	"encoding/binary"

	"ibnetworkd/ib"
)

// PortInfo is the PortInfo attribute (IBA vol 1, 14.2.5.6) as it travels on
// the wire: big-endian, bit fields packed from the most significant bit. It
// keeps reserved bits as the port sent them, so that what is set is what was
// read plus the intended change. Only its methods know where a field is.
type PortInfo struct{ b [PortInfoLen]byte }

// MKey is the management key of the port.
func (p *PortInfo) MKey() ib.MKey { return ib.MKey(binary.BigEndian.Uint64(p.b[0:])) }

// GIDPrefix is the subnet prefix, the upper 64 bits of the port's GIDs.
func (p *PortInfo) GIDPrefix() uint64 { return binary.BigEndian.Uint64(p.b[8:]) }

// LID is the port's base LID; 0 or 0xffff when none was assigned.
func (p *PortInfo) LID() ib.LID { return ib.LID(binary.BigEndian.Uint16(p.b[16:])) }

// MasterSMLID is the LID of the master subnet manager.
func (p *PortInfo) MasterSMLID() ib.LID { return ib.LID(binary.BigEndian.Uint16(p.b[18:])) }

// CapMask is the capability mask; see the Cap constants.
func (p *PortInfo) CapMask() uint32 { return binary.BigEndian.Uint32(p.b[20:]) }

// CapMask2 is the second capability mask; valid with CapMask2Supported.
func (p *PortInfo) CapMask2() uint16 { return binary.BigEndian.Uint16(p.b[60:]) }

// MKeyLease is the M_Key lease period in seconds; 0 never expires.
func (p *PortInfo) MKeyLease() uint16 { return binary.BigEndian.Uint16(p.b[26:]) }

// LocalPort is the number of the port that received the SMP.
func (p *PortInfo) LocalPort() uint8 { return p.b[28] }

// WidthActive is the active link width as one bit (1 1x, 2 4x, 4 8x, 8 12x, 16 2x).
func (p *PortInfo) WidthActive() uint8 { return p.b[31] }

// State is the logical port state.
func (p *PortInfo) State() ib.PortState { return ib.PortState(p.b[32] & 15) }

// PhysState is the physical port state.
func (p *PortInfo) PhysState() ib.PhysState { return ib.PhysState(p.b[33] >> 4) }

// LinkDownDefault is the state a port falls to when its link goes down.
func (p *PortInfo) LinkDownDefault() uint8 { return p.b[33] & 15 }

// MKeyProtect is the M_Key protection level, 0..3.
func (p *PortInfo) MKeyProtect() uint8 { return p.b[34] >> 6 }

// MKeyViolations counts the requests with a wrong M_Key that the port refused.
func (p *PortInfo) MKeyViolations() uint16 { return binary.BigEndian.Uint16(p.b[44:]) }

// LMC is the port's LID mask control, 0..7.
func (p *PortInfo) LMC() ib.LMC { return ib.LMC(p.b[34] & 7) }

// SpeedActive is the active link speed as one bit (1 SDR, 2 DDR, 4 QDR).
func (p *PortInfo) SpeedActive() uint8 { return p.b[35] >> 4 }

// NeighborMTU is the MTU code in use towards the peer.
func (p *PortInfo) NeighborMTU() ib.MTU { return ib.MTU(p.b[36] >> 4) }

// MasterSMSL is the SL to the master subnet manager.
func (p *PortInfo) MasterSMSL() ib.SL { return ib.SL(p.b[36] & 15) }

// VLCap is the code of the supported data VLs (1 VL0, 2 VL0-1, 3 VL0-3, 4 VL0-7, 5 VL0-14).
func (p *PortInfo) VLCap() uint8 { return p.b[37] >> 4 }

// VLHighLimit is the limit of high priority of the VL arbitration.
func (p *PortInfo) VLHighLimit() uint8 { return p.b[38] }

// VLArbHighCap is the number of entries of the high-priority VL arbitration table.
func (p *PortInfo) VLArbHighCap() uint8 { return p.b[39] }

// VLArbLowCap is the number of entries of the low-priority VL arbitration table.
func (p *PortInfo) VLArbLowCap() uint8 { return p.b[40] }

// MTUCap is the largest MTU code that the port supports.
func (p *PortInfo) MTUCap() ib.MTU { return ib.MTU(p.b[41] & 15) }

// VLStallCount is the number of head-of-queue drops that stall a VL, 0..7.
func (p *PortInfo) VLStallCount() uint8 { return p.b[42] >> 5 }

// HOQLife is the head-of-queue lifetime code, 0..31 (4.096 us * 2^n; above 19 infinite).
func (p *PortInfo) HOQLife() uint8 { return p.b[42] & 31 }

// OperVLs is the code of the operational data VLs, coded as VLCap.
func (p *PortInfo) OperVLs() uint8 { return p.b[43] >> 4 }

// GUIDCap is the number of GUIDInfo entries of the port.
func (p *PortInfo) GUIDCap() uint8 { return p.b[50] }

// SubnetTimeout is the code of the trap and response time limit, 0..31.
func (p *PortInfo) SubnetTimeout() uint8 { return p.b[51] & 31 }

// RespTime is the code of the time between request and response, 0..31.
func (p *PortInfo) RespTime() uint8 { return p.b[52] & 31 }

// SpeedExtActive is the active extended speed as one bit (1 FDR, 2 EDR, 4 HDR, 8 NDR).
func (p *PortInfo) SpeedExtActive() uint8 { return p.b[62] >> 4 }

// SpeedExtHDR is the bit of HDR among the extended speeds.
const SpeedExtHDR uint8 = 4

// Capability bits of PortInfo:CapabilityMask (IBA vol 1, 14.2.5.6).
const (
	CapIsSM             uint32 = 1 << 1
	CapTrap             uint32 = 1 << 3
	CapSLMapping        uint32 = 1 << 6
	CapExtendedSpeeds   uint32 = 1 << 14
	CapMask2Supported   uint32 = 1 << 15
	CapClientReregister uint32 = 1 << 25
)

// TablePorts is the number of ports in a block of SwitchPortStateTable, of four
// bits each, from port 0 on.
const TablePorts = 128

// HasPortStateTable reports, for port 0, whether the switch has a SwitchPortStateTable.
func (p *PortInfo) HasPortStateTable() bool {
	return p.CapMask()&CapMask2Supported != 0 && p.CapMask2()&Cap2SwitchPortState != 0
}

// StateInTable is the state of port p, counted from the first port of the given
// blocks of a SwitchPortStateTable.
func StateInTable(blocks []byte, p int) ib.PortState {
	return ib.PortState(blocks[p/2] >> (4 * (1 - p%2)) & 15)
}

// Bits of PortInfo:CapabilityMask2.
const (
	Cap2SwitchPortState uint16 = 1 << 3 // a switch with a SwitchPortStateTable
	Cap2Width2x         uint16 = 1 << 4
	Cap2HDR             uint16 = 1 << 5
	cap2ExtendedSpeeds2 uint16 = 1 << 11
)

// Rate is the rate code of the link: width times speed as negotiated. A port
// without extended speed support reports it by SpeedActive alone.
func (p *PortInfo) Rate() ib.Rate {
	if r := ib.RateFromTenths(p.lanes() * p.laneTenths()); r != 0 {
		return r
	}
	return ib.RateFromTenths(25)
}

func (p *PortInfo) lanes() int {
	switch p.WidthActive() {
	case 2:
		return 4
	case 4:
		return 8
	case 8:
		return 12
	case 16:
		return 2
	}
	return 1
}

// laneTenths is the signalling rate of one lane in tenths of Gb/s, in the
// rounding that the rate codes use (FDR 14 Gb/s a lane).
func (p *PortInfo) laneTenths() int {
	if p.CapMask()&CapMask2Supported != 0 && p.CapMask2()&cap2ExtendedSpeeds2 != 0 && p.b[56]>>5&1 != 0 {
		return 2000
	}
	// External ports of a switch have no mask of their own: port 0's counts,
	// and a port without extended speeds leaves the field at zero.
	if m := p.CapMask(); m == 0 || m&CapExtendedSpeeds != 0 {
		switch p.SpeedExtActive() {
		case 1:
			return 140
		case 2:
			return 250
		case 4:
			return 500
		case 8:
			return 1000
		}
	}
	switch p.SpeedActive() {
	case 2:
		return 50
	case 4:
		return 100
	}
	return 25
}

// WidthName is the active width as ibnetdiscover prints it: 1x, 2x, 4x, 8x, 12x.
func (p *PortInfo) WidthName() string {
	switch p.WidthActive() {
	case 1:
		return "1x"
	case 2:
		return "4x"
	case 4:
		return "8x"
	case 8:
		return "12x"
	case 16:
		return "2x"
	}
	return "?x"
}

// SpeedName is the active speed as ibnetdiscover prints it: SDR to XDR.
func (p *PortInfo) SpeedName() string {
	switch p.laneTenths() {
	case 50:
		return "DDR"
	case 100:
		return "QDR"
	case 140:
		return "FDR"
	case 250:
		return "EDR"
	case 500:
		return "HDR"
	case 1000:
		return "NDR"
	case 2000:
		return "XDR"
	}
	return "SDR"
}

// SwitchInfo is the SwitchInfo attribute (IBA vol 1, 14.2.5.4) in wire form.
type SwitchInfo struct{ b [SwitchInfoLen]byte }

// LinearFDBCap is the number of entries of the linear forwarding table.
func (s *SwitchInfo) LinearFDBCap() uint16 { return binary.BigEndian.Uint16(s.b[0:]) }

// RandomFDBCap is the number of entries of the random forwarding table.
func (s *SwitchInfo) RandomFDBCap() uint16 { return binary.BigEndian.Uint16(s.b[2:]) }

// MulticastFDBCap is the number of entries of the multicast forwarding table.
func (s *SwitchInfo) MulticastFDBCap() uint16 { return binary.BigEndian.Uint16(s.b[4:]) }

// LinearFDBTop is the highest LID that the linear forwarding table serves.
func (s *SwitchInfo) LinearFDBTop() uint16 { return binary.BigEndian.Uint16(s.b[6:]) }

// LifeTime is the packet lifetime code in the switch, 0..31.
func (s *SwitchInfo) LifeTime() uint8 { return s.b[11] >> 3 }

// PortStateChange reports whether a port of the switch changed state since the bit was cleared.
func (s *SwitchInfo) PortStateChange() bool { return s.b[11]&4 != 0 }

// SetPortStateChange sets that bit: a Set of SwitchInfo with it clears it in the
// switch, one without leaves it (IBA vol 1, 14.2.5.4).
func (s *SwitchInfo) SetPortStateChange() { s.b[11] |= 4 }

// ClearPortStateChange takes that bit away.
func (s *SwitchInfo) ClearPortStateChange() { s.b[11] &^= 4 }

// PartitionEnforcementCap is the number of P_Key table entries per external port.
func (s *SwitchInfo) PartitionEnforcementCap() uint16 { return binary.BigEndian.Uint16(s.b[14:]) }

// EnforcesPartitions reports whether external ports can check the P_Key of what
// they receive and of what they send.
func (s *SwitchInfo) EnforcesPartitions() (in, out bool) { return s.b[16]&0x80 != 0, s.b[16]&0x40 != 0 }

// EnhancedPort0 reports whether port 0 is an enhanced one, with LMC, P_Keys and GUIDs as a CA port.
func (s *SwitchInfo) EnhancedPort0() bool { return s.b[16]&8 != 0 }

// MulticastFDBTop is the highest multicast LID that the switch forwards.
func (s *SwitchInfo) MulticastFDBTop() uint16 { return binary.BigEndian.Uint16(s.b[18:]) }
