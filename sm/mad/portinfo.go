package mad

import (
	"fmt"
	"ibnetworkd/ib"
)

// PortInfoLen is the wire length of PortInfo.
const PortInfoLen = 64

// PortInfo describes and sets up a port as it travels on the wire (IBTA 14.2.5.6, with the fields
// up to XDR of release 1.8; bit positions as libibmad's fields.c). It keeps reserved bits as the
// port sent them, so that what is set is what was read plus the intended change.
type PortInfo struct{ b [PortInfoLen]byte }

// Bits of CapMask (IBTA table 146).
const (
	CapIsSM              uint32 = 1 << 1
	CapTrap              uint32 = 1 << 3
	CapAutoMigration     uint32 = 1 << 5
	CapSLMapping         uint32 = 1 << 6
	CapSystemImageGUID   uint32 = 1 << 11
	CapExtendedSpeeds    uint32 = 1 << 14
	CapMask2Supported    uint32 = 1 << 15
	CapCapMaskNotice     uint32 = 1 << 22
	CapClientReregister  uint32 = 1 << 25
	CapOtherLocalChanges uint32 = 1 << 26
)

// Bits of CapMask2 (libibmad's iba_types.h).
const (
	Cap2SwitchPortState uint16 = 1 << 3 // a switch with a SwitchPortStateTable
	Cap2Width2x         uint16 = 1 << 4
	Cap2HDR             uint16 = 1 << 5
	Cap2ExtendedSpeeds2 uint16 = 1 << 11
)

// SpeedExtHDR is the bit of HDR in LinkSpeedExt*.
const SpeedExtHDR uint8 = 4

// MKey is the management key of the port.
func (p *PortInfo) MKey() ib.MKey { return ib.MKey(be.Uint64(p.b[0:])) }

// GIDPrefix is the subnet prefix, the upper 64 bits of the port's GIDs.
func (p *PortInfo) GIDPrefix() uint64 { return be.Uint64(p.b[8:]) }

// LID is the port's base LID; 0 or 0xffff when none was assigned.
func (p *PortInfo) LID() ib.LID { return ib.LID(be.Uint16(p.b[16:])) }

// MasterSMLID is the LID of the master subnet manager.
func (p *PortInfo) MasterSMLID() ib.LID { return ib.LID(be.Uint16(p.b[18:])) }

// CapMask is the capability mask; see the constants of that name.
func (p *PortInfo) CapMask() uint32 { return be.Uint32(p.b[20:]) }

// CapMask2 is the second capability mask; valid with CapMask2Supported.
func (p *PortInfo) CapMask2() uint16 { return be.Uint16(p.b[60:]) }

// MKeyLease is the M_Key lease period in seconds; 0 never expires.
func (p *PortInfo) MKeyLease() uint16 { return be.Uint16(p.b[26:]) }

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
func (p *PortInfo) MKeyViolations() uint16 { return be.Uint16(p.b[44:]) }

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

// HasPortStateTable reports, for port 0, whether the switch has a SwitchPortStateTable.
func (p *PortInfo) HasPortStateTable() bool {
	return p.CapMask()&CapMask2Supported != 0 && p.CapMask2()&Cap2SwitchPortState != 0
}

// Rate is the rate code of the link: width times speed as negotiated. A port
// without extended speed support reports it by SpeedActive alone.
func (p *PortInfo) Rate() ib.Rate {
	if r := ib.RateFromTenths(p.Lanes() * p.LaneTenths()); r != 0 {
		return r
	}
	return ib.RateFromTenths(25)
}

// lanes are the lanes of a width by its bit in LinkWidthActive.
var lanes = map[uint8]int{1: 1, 2: 4, 4: 8, 8: 12, 16: 2}

// Lanes is the number of lanes of the active width, 1 for an unknown one.
func (p *PortInfo) Lanes() int { return max(lanes[p.WidthActive()], 1) }

// LaneTenths is the signalling rate of one lane in tenths of Gb/s, in the
// rounding that the rate codes use (FDR 14 Gb/s a lane).
func (p *PortInfo) LaneTenths() int {
	if p.CapMask()&CapMask2Supported != 0 && p.CapMask2()&Cap2ExtendedSpeeds2 != 0 && p.b[56]>>5&1 != 0 {
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
	if n := lanes[p.WidthActive()]; n > 0 {
		return fmt.Sprintf("%dx", n)
	}
	return "?x"
}

var speeds = map[int]string{25: "SDR", 50: "DDR", 100: "QDR", 140: "FDR", 250: "EDR", 500: "HDR", 1000: "NDR", 2000: "XDR"}

// SpeedName is the active speed as ibnetdiscover prints it: SDR to XDR.
func (p *PortInfo) SpeedName() string { return speeds[p.LaneTenths()] }

// PKeyViolations counts the packets with a P_Key that the port does not have.
func (p *PortInfo) PKeyViolations() uint16 { return be.Uint16(p.b[46:]) }

// QKeyViolations counts the packets with a wrong Q_Key.
func (p *PortInfo) QKeyViolations() uint16 { return be.Uint16(p.b[48:]) }

// WidthEnabled are the widths that the link may use, as bits; 255 in a Set: as supported.
func (p *PortInfo) WidthEnabled() uint8 { return p.b[29] }

// WidthSupported are the widths that the port supports, as bits.
func (p *PortInfo) WidthSupported() uint8 { return p.b[30] }

// SpeedSupported are the speeds SDR to QDR that the port supports, as bits.
func (p *PortInfo) SpeedSupported() uint8 { return p.b[32] >> 4 }

// SpeedEnabled are those that the link may use; 15 in a Set: as supported.
func (p *PortInfo) SpeedEnabled() uint8 { return p.b[35] & 15 }

// SpeedExtSupported are the extended speeds that the port supports, as bits.
func (p *PortInfo) SpeedExtSupported() uint8 { return p.b[62] & 15 }

// SpeedExtEnabled are those that the link may use; in a Set 30: none, 31: as supported.
func (p *PortInfo) SpeedExtEnabled() uint8 { return p.b[63] & 31 }

// RawFilters returns which raw packets a switch port drops: bit 1 those that it

// receives, bit 0 those that it sends.
func (p *PortInfo) RawFilters() uint8 { return p.b[43] & 3 }

// McastPKeyTrapSuppr are the two bits that suppress traps of multicast packets with a

// wrong P_Key.
func (p *PortInfo) McastPKeyTrapSuppr() uint8 { return p.b[51] >> 5 & 3 }

// ErrorThresholds are from how many local physical errors and buffer overruns on a

// port reports them.
func (p *PortInfo) ErrorThresholds() (phys, overrun uint8) { return p.b[53] >> 4, p.b[53] & 15 }
