package mad

import "ibnetworkd/ib"

// PortInfoLen is the wire length of PortInfo.
const PortInfoLen = 64

// PortInfo describes and sets up a port (IBTA 14.2.5.6, with the fields up to
// XDR of release 1.8; bit positions as libibmad's fields.c).
type PortInfo struct {
	MKey                 ib.MKey
	GIDPrefix            uint64
	LID                  ib.LID
	MasterSMLID          ib.LID
	CapMask              uint32
	DiagCode             uint16
	MKeyLease            uint16 // seconds, 0: never runs out
	LocalPortNum         uint8
	LinkWidthEnabled     uint8 // Width bits; 255: as supported
	LinkWidthSupported   uint8
	LinkWidthActive      uint8
	LinkSpeedSupported   uint8 // 4 bits: SDR 1, DDR 2, QDR 4
	State                ib.PortState
	PhysState            ib.PhysState
	LinkDownDefault      uint8 // 4 bits: 1 sleep, 2 polling
	MKeyProtect          uint8 // 2 bits
	LMC                  ib.LMC
	LinkSpeedActive      uint8 // 4 bits
	LinkSpeedEnabled     uint8 // 4 bits; 15: as supported
	NeighborMTU          ib.MTU
	MasterSMSL           ib.SL
	VLCap                uint8 // 4 bits: 1 VL0, 2 VL0-1, 3 VL0-3, 4 VL0-7, 5 VL0-14
	InitType             uint8 // 4 bits
	VLHighLimit          uint8
	VLArbHighCap         uint8
	VLArbLowCap          uint8
	InitTypeReply        uint8 // 4 bits
	MTUCap               ib.MTU
	VLStallCount         uint8 // 3 bits
	HOQLife              uint8 // 5 bits
	OperVLs              uint8 // 4 bits, coded as VLCap
	PartEnforceInbound   bool
	PartEnforceOutbound  bool
	FilterRawInbound     bool
	FilterRawOutbound    bool
	MKeyViolations       uint16
	PKeyViolations       uint16
	QKeyViolations       uint16
	GUIDCap              uint8 // entries in the GUIDInfo table
	ClientReregister     bool
	McastPKeyTrapSuppr   uint8 // 2 bits
	SubnetTimeout        uint8 // 5 bits: 4.096 us * 2^n
	RespTimeValue        uint8 // 5 bits
	LocalPhyErrors       uint8 // 4 bits
	OverrunErrors        uint8 // 4 bits
	MaxCreditHint        uint16
	LinkSpeedExt2Active  uint8  // 2 bits: XDR 1
	LinkSpeedExt2Supp    uint8  // 2 bits
	LinkSpeedExt2Enabled uint8  // 3 bits
	LinkRoundTripLatency uint32 // 24 bits
	CapMask2             uint16
	LinkSpeedExtActive   uint8 // 4 bits: FDR 1, EDR 2, HDR 4, NDR 8
	LinkSpeedExtSupp     uint8 // 4 bits
	LinkSpeedExtEnabled  uint8 // 5 bits; 30: off, 31: as supported
}

// Bits of CapMask (IBTA table 146).
const (
	CapIsSM              uint32 = 1 << 1
	CapTrap              uint32 = 1 << 3
	CapAutoMigration     uint32 = 1 << 5
	CapSLMapping         uint32 = 1 << 6
	CapSystemImageGUID   uint32 = 1 << 11
	CapExtendedSpeeds    uint32 = 1 << 14
	CapCapMaskNotice     uint32 = 1 << 22
	CapClientReregister  uint32 = 1 << 25
	CapOtherLocalChanges uint32 = 1 << 26
)

// Bits of CapMask2 (libibmad's iba_types.h).
const (
	Cap2SwitchPortState uint16 = 1 << 3
	Cap2ExtendedSpeeds2 uint16 = 1 << 11
)

// Link widths, as bits.
const (
	Width1x  uint8 = 1
	Width4x  uint8 = 2
	Width8x  uint8 = 4
	Width12x uint8 = 8
	Width2x  uint8 = 16
)

// Link speeds as bits of LinkSpeed*, LinkSpeedExt* and LinkSpeedExt2*.
const (
	SpeedSDR     uint8 = 1
	SpeedDDR     uint8 = 2
	SpeedQDR     uint8 = 4
	SpeedExtFDR  uint8 = 1
	SpeedExtEDR  uint8 = 2
	SpeedExtHDR  uint8 = 4
	SpeedExtNDR  uint8 = 8
	SpeedExt2XDR uint8 = 1
)

// Append appends PortInfoLen bytes.
func (p *PortInfo) Append(b []byte) []byte {
	b = be.AppendUint64(b, uint64(p.MKey))
	b = be.AppendUint64(b, p.GIDPrefix)
	b = be.AppendUint16(b, uint16(p.LID))
	b = be.AppendUint16(b, uint16(p.MasterSMLID))
	b = be.AppendUint32(b, p.CapMask)
	b = be.AppendUint16(b, p.DiagCode)
	b = be.AppendUint16(b, p.MKeyLease)
	b = append(b,
		p.LocalPortNum, p.LinkWidthEnabled, p.LinkWidthSupported, p.LinkWidthActive,
		p.LinkSpeedSupported<<4|uint8(p.State)&0xf,
		uint8(p.PhysState)<<4|p.LinkDownDefault&0xf,
		p.MKeyProtect<<6|uint8(p.LMC)&7,
		p.LinkSpeedActive<<4|p.LinkSpeedEnabled&0xf,
		uint8(p.NeighborMTU)<<4|uint8(p.MasterSMSL)&0xf,
		p.VLCap<<4|p.InitType&0xf,
		p.VLHighLimit, p.VLArbHighCap, p.VLArbLowCap,
		p.InitTypeReply<<4|uint8(p.MTUCap)&0xf,
		p.VLStallCount<<5|p.HOQLife&0x1f,
		p.OperVLs<<4|bit(p.PartEnforceInbound, 3)|bit(p.PartEnforceOutbound, 2)|
			bit(p.FilterRawInbound, 1)|bit(p.FilterRawOutbound, 0))
	b = be.AppendUint16(b, p.MKeyViolations)
	b = be.AppendUint16(b, p.PKeyViolations)
	b = be.AppendUint16(b, p.QKeyViolations)
	b = append(b, p.GUIDCap,
		bit(p.ClientReregister, 7)|p.McastPKeyTrapSuppr&3<<5|p.SubnetTimeout&0x1f,
		p.RespTimeValue&0x1f, p.LocalPhyErrors<<4|p.OverrunErrors&0xf)
	b = be.AppendUint16(b, p.MaxCreditHint)
	b = be.AppendUint32(b, uint32(p.LinkSpeedExt2Active&3)<<29|uint32(p.LinkSpeedExt2Supp&3)<<27|
		uint32(p.LinkSpeedExt2Enabled&7)<<24|p.LinkRoundTripLatency&0xffffff)
	b = be.AppendUint16(b, p.CapMask2)
	return append(b, p.LinkSpeedExtActive<<4|p.LinkSpeedExtSupp&0xf, p.LinkSpeedExtEnabled&0x1f)
}

// Decode reads PortInfoLen bytes.
func (p *PortInfo) Decode(b []byte) error {
	if len(b) < PortInfoLen {
		return ErrShort
	}
	b = b[:PortInfoLen]
	p.MKey = ib.MKey(be.Uint64(b))
	p.GIDPrefix = be.Uint64(b[8:])
	p.LID = ib.LID(be.Uint16(b[16:]))
	p.MasterSMLID = ib.LID(be.Uint16(b[18:]))
	p.CapMask = be.Uint32(b[20:])
	p.DiagCode = be.Uint16(b[24:])
	p.MKeyLease = be.Uint16(b[26:])
	p.LocalPortNum, p.LinkWidthEnabled, p.LinkWidthSupported, p.LinkWidthActive = b[28], b[29], b[30], b[31]
	p.LinkSpeedSupported, p.State = b[32]>>4, ib.PortState(b[32]&0xf)
	p.PhysState, p.LinkDownDefault = ib.PhysState(b[33]>>4), b[33]&0xf
	p.MKeyProtect, p.LMC = b[34]>>6, ib.LMC(b[34]&7)
	p.LinkSpeedActive, p.LinkSpeedEnabled = b[35]>>4, b[35]&0xf
	p.NeighborMTU, p.MasterSMSL = ib.MTU(b[36]>>4), ib.SL(b[36]&0xf)
	p.VLCap, p.InitType = b[37]>>4, b[37]&0xf
	p.VLHighLimit, p.VLArbHighCap, p.VLArbLowCap = b[38], b[39], b[40]
	p.InitTypeReply, p.MTUCap = b[41]>>4, ib.MTU(b[41]&0xf)
	p.VLStallCount, p.HOQLife = b[42]>>5, b[42]&0x1f
	p.OperVLs = b[43] >> 4
	p.PartEnforceInbound, p.PartEnforceOutbound = b[43]&8 != 0, b[43]&4 != 0
	p.FilterRawInbound, p.FilterRawOutbound = b[43]&2 != 0, b[43]&1 != 0
	p.MKeyViolations = be.Uint16(b[44:])
	p.PKeyViolations = be.Uint16(b[46:])
	p.QKeyViolations = be.Uint16(b[48:])
	p.GUIDCap = b[50]
	p.ClientReregister, p.McastPKeyTrapSuppr, p.SubnetTimeout = b[51]&0x80 != 0, b[51]>>5&3, b[51]&0x1f
	p.RespTimeValue = b[52] & 0x1f
	p.LocalPhyErrors, p.OverrunErrors = b[53]>>4, b[53]&0xf
	p.MaxCreditHint = be.Uint16(b[54:])
	l := be.Uint32(b[56:])
	p.LinkSpeedExt2Active, p.LinkSpeedExt2Supp, p.LinkSpeedExt2Enabled = uint8(l>>29&3), uint8(l>>27&3), uint8(l>>24&7)
	p.LinkRoundTripLatency = l & 0xffffff
	p.CapMask2 = be.Uint16(b[60:])
	p.LinkSpeedExtActive, p.LinkSpeedExtSupp = b[62]>>4, b[62]&0xf
	p.LinkSpeedExtEnabled = b[63] & 0x1f
	return nil
}

// Lanes is the number of lanes of an active width, 0 for an unknown one.
func Lanes(width uint8) int {
	switch width {
	case Width1x:
		return 1
	case Width2x:
		return 2
	case Width4x:
		return 4
	case Width8x:
		return 8
	case Width12x:
		return 12
	}
	return 0
}

// SpeedName is the generation at which the link runs: SDR to XDR, "" when it
// does not say.
func (p *PortInfo) SpeedName() string {
	switch {
	case p.LinkSpeedExt2Active&SpeedExt2XDR != 0 && p.CapMask2&Cap2ExtendedSpeeds2 != 0:
		return "XDR"
	case p.extended() && p.LinkSpeedExtActive != 0:
		switch p.LinkSpeedExtActive {
		case SpeedExtFDR:
			return "FDR"
		case SpeedExtEDR:
			return "EDR"
		case SpeedExtHDR:
			return "HDR"
		case SpeedExtNDR:
			return "NDR"
		}
		return ""
	}
	switch p.LinkSpeedActive {
	case SpeedSDR:
		return "SDR"
	case SpeedDDR:
		return "DDR"
	case SpeedQDR:
		return "QDR"
	}
	return ""
}

// extended: the extended speeds mean something only on a port that announces
// them. Switch ports other than 0 show a CapMask of 0 on some hardware, and
// there a non-zero active speed speaks for itself.
func (p *PortInfo) extended() bool { return p.CapMask == 0 || p.CapMask&CapExtendedSpeeds != 0 }

var laneTenths = map[string]int{"SDR": 25, "DDR": 50, "QDR": 100, "FDR": 140, "EDR": 250, "HDR": 500, "NDR": 1000, "XDR": 2000}

// Rate is the static rate of the link at its active width and speed as SA
// records code it, 0 when the port does not say.
func (p *PortInfo) Rate() ib.Rate {
	return ib.RateFromTenths(laneTenths[p.SpeedName()] * Lanes(p.LinkWidthActive))
}
