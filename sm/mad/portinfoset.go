package mad

import "ibnetworkd/ib"

// PortInfoOf is the PortInfo in the data of an SMP.
func PortInfoOf(data *[64]byte) PortInfo { return PortInfo{*data} }

// Wire is the attribute as the data of an SMP.
func (p *PortInfo) Wire() [64]byte { return p.b }

func (p *PortInfo) Decode(b []byte) error {
	if len(b) < PortInfoLen {
		return ErrShort
	}
	copy(p.b[:], b)
	return nil
}

func (p *PortInfo) Append(b []byte) []byte { return append(b, p.b[:]...) }

func (p *PortInfo) put16(at int, v uint16) { be.PutUint16(p.b[at:], v) }
func (p *PortInfo) high(at int, v uint8)   { p.b[at] = p.b[at]&0x0f | v<<4 }
func (p *PortInfo) low(at int, v uint8)    { p.b[at] = p.b[at]&0xf0 | v&0x0f }

// bits replaces the bits of mask in a byte.
func (p *PortInfo) bits(at int, mask, v uint8) { p.b[at] = p.b[at]&^mask | v&mask }

// SetMKey sets the management key.
func (p *PortInfo) SetMKey(k ib.MKey) { be.PutUint64(p.b[0:], uint64(k)) }

// SetGIDPrefix sets the subnet prefix.
func (p *PortInfo) SetGIDPrefix(v uint64) { be.PutUint64(p.b[8:], v) }

// SetLID sets the base LID, 0 for none.
func (p *PortInfo) SetLID(l ib.LID) { p.put16(16, uint16(l)) }

// SetMasterSMLID sets the LID of the master subnet manager.
func (p *PortInfo) SetMasterSMLID(l ib.LID) { p.put16(18, uint16(l)) }

// SetCapMask sets the capability mask; see the constants of that name.
func (p *PortInfo) SetCapMask(v uint32) { be.PutUint32(p.b[20:], v) }

// SetCapMask2 sets the second capability mask.
func (p *PortInfo) SetCapMask2(v uint16) { p.put16(60, v) }

// SetMKeyLease sets the M_Key lease period in seconds.
func (p *PortInfo) SetMKeyLease(v uint16) { p.put16(26, v) }

// SetLocalPort sets the number of the port that received the SMP.
func (p *PortInfo) SetLocalPort(n uint8) { p.b[28] = n }

// SetWidths sets the link widths as bits (see WidthActive): those that the port
// has enabled, those that it supports, and the active one.
func (p *PortInfo) SetWidths(enabled, supported, active uint8) {
	p.b[29], p.b[30], p.b[31] = enabled, supported, active
}

// SetWidthActive sets the active link width.
func (p *PortInfo) SetWidthActive(v uint8) { p.b[31] = v }

// SetSpeeds sets the link speeds SDR to QDR as bits (see SpeedActive).
func (p *PortInfo) SetSpeeds(enabled, supported, active uint8) {
	p.high(32, supported)
	p.b[35] = active<<4 | enabled&15
}

// SetSpeedsExt sets the extended link speeds as bits (see SpeedExtActive).
func (p *PortInfo) SetSpeedsExt(enabled, supported, active uint8) {
	p.b[62], p.b[63] = active<<4|supported&15, enabled
}

// SetSpeedExtActive sets the active extended speed.
func (p *PortInfo) SetSpeedExtActive(v uint8) { p.high(62, v) }

// SetXDR sets the XDR speed as enabled, supported and active.
func (p *PortInfo) SetXDR() { p.b[56] |= 1<<5 | 1<<3 | 1 }

// SetState sets the logical state; 0 in a Set is no change.
func (p *PortInfo) SetState(s ib.PortState) { p.low(32, uint8(s)) }

// SetPhysState sets the physical state; 0 in a Set is no change.
func (p *PortInfo) SetPhysState(s ib.PhysState) { p.high(33, uint8(s)) }

// SetLinkDownDefault sets the state a port falls to when its link goes down; 0 in
// a Set is no change.
func (p *PortInfo) SetLinkDownDefault(v uint8) { p.low(33, v) }

// SetMKeyProtect sets the M_Key protection level, 0..3.
func (p *PortInfo) SetMKeyProtect(v uint8) { p.bits(34, 0xc0, v<<6) }

// SetLMC sets the LID mask control, 0..7.
func (p *PortInfo) SetLMC(m ib.LMC) { p.bits(34, 7, uint8(m)) }

// SetNeighborMTU sets the MTU code in use towards the peer.
func (p *PortInfo) SetNeighborMTU(m ib.MTU) { p.high(36, uint8(m)) }

// SetMasterSMSL sets the SL to the master subnet manager.
func (p *PortInfo) SetMasterSMSL(sl ib.SL) { p.low(36, uint8(sl)) }

// SetVLCap sets the code of the supported data VLs.
func (p *PortInfo) SetVLCap(code uint8) { p.high(37, code) }

// SetVLHighLimit sets the limit of high priority of the VL arbitration.
func (p *PortInfo) SetVLHighLimit(v uint8) { p.b[38] = v }

// SetVLArbCaps sets the numbers of entries of the VL arbitration tables.
func (p *PortInfo) SetVLArbCaps(high, low uint8) { p.b[39], p.b[40] = high, low }

// SetMTUCap sets the largest MTU code that the port supports.
func (p *PortInfo) SetMTUCap(m ib.MTU) { p.low(41, uint8(m)) }

// SetVLStallCount sets the number of head-of-queue drops that stall a VL, 0..7.
func (p *PortInfo) SetVLStallCount(v uint8) { p.bits(42, 0xe0, v<<5) }

// SetHOQLife sets the head-of-queue lifetime code, 0..31.
func (p *PortInfo) SetHOQLife(code uint8) { p.bits(42, 31, code) }

// SetOperVLs sets the code of the operational data VLs.
func (p *PortInfo) SetOperVLs(code uint8) { p.high(43, code) }

// Enforcement is the set of directions in which a switch port checks P_Keys. The
// values are those of PortInfo:PartitionEnforcementInbound and -Outbound.
type Enforcement uint8

// The directions, seen from the switch.
const (
	EnforceInbound  Enforcement = 8
	EnforceOutbound Enforcement = 4
)

// Enforcement is the partition enforcement of a switch port.
func (p *PortInfo) Enforcement() Enforcement { return Enforcement(p.b[43] & 0x0c) }

// SetEnforcement sets the partition enforcement of a switch port.
func (p *PortInfo) SetEnforcement(e Enforcement) { p.bits(43, 0x0c, uint8(e)) }

// SetGUIDCap sets the number of GUIDInfo entries of the port.
func (p *PortInfo) SetGUIDCap(n uint8) { p.b[50] = n }

// ClientReregister is the bit of a Set that asks the clients of a port to
// register again.
func (p *PortInfo) ClientReregister() bool { return p.b[51]&0x80 != 0 }

// SetClientReregister sets that bit.
func (p *PortInfo) SetClientReregister(on bool) {
	p.b[51] &^= 0x80
	if on {
		p.b[51] |= 0x80
	}
}

// SetSubnetTimeout sets the code of the trap and response time limit, 0..31.
func (p *PortInfo) SetSubnetTimeout(code uint8) { p.bits(51, 31, code) }

// SetErrorThresholds sets from how many local physical errors and buffer
// overruns on a port reports them, 0..15.
func (p *PortInfo) SetErrorThresholds(phys, overrun uint8) { p.b[53] = phys<<4 | overrun&15 }

// SetMKeyViolations sets the count of requests with a wrong M_Key.
func (p *PortInfo) SetMKeyViolations(n uint16) { p.put16(44, n) }

// SetPKeyViolations sets the count of packets with a P_Key that the port does not have.
func (p *PortInfo) SetPKeyViolations(n uint16) { p.put16(46, n) }

// SetQKeyViolations sets the count of packets with a wrong Q_Key.
func (p *PortInfo) SetQKeyViolations(n uint16) { p.put16(48, n) }

// SetWidthEnabled sets the widths that the link may use.
func (p *PortInfo) SetWidthEnabled(v uint8) { p.b[29] = v }

// SetSpeedEnabled sets the speeds SDR to QDR that the link may use.
func (p *PortInfo) SetSpeedEnabled(v uint8) { p.low(35, v) }

// SetSpeedActive sets the active speed SDR to QDR.
func (p *PortInfo) SetSpeedActive(v uint8) { p.high(35, v) }

// SetSpeedExtEnabled sets the extended speeds that the link may use.
func (p *PortInfo) SetSpeedExtEnabled(v uint8) { p.bits(63, 31, v) }

// SetRawFilters sets whether a switch port drops raw packets.
func (p *PortInfo) SetRawFilters(v uint8) { p.bits(43, 3, v) }

// SetMcastPKeyTrapSuppr sets them.
func (p *PortInfo) SetMcastPKeyTrapSuppr(v uint8) { p.bits(51, 0x60, v<<5) }

// SetRespTime sets the code of the time between request and response, 0..31.
func (p *PortInfo) SetRespTime(code uint8) { p.bits(52, 31, code) }
