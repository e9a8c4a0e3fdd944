package mad

// PerfDataOffset is where the data of a performance MAD begins (IBTA 16.1.1).
const PerfDataOffset = 64

// PortSelect is the port whose counters a performance MAD is about.
func PortSelect(m *Buf) uint8 { return m[PerfDataOffset+1] }

// SetPortSelect sets it.
func SetPortSelect(m *Buf, port uint8) { m[PerfDataOffset+1] = port }

// Capability bits of the performance class's ClassPortInfo.
const (
	PerfCapExtWidth uint16 = 1 << 9 // PortCountersExtended
	PerfCapXmitWait uint16 = 1 << 12
)

// PortCountersLen is the wire length of PortCounters.
const PortCountersLen = 44

// PortCounters are the counters of a port that stop at their maximum (IBTA
// 16.1.3.5).
type PortCounters struct {
	PortSelect         uint8
	CounterSelect      uint16 // a Set clears the counters of these bits
	SymbolErrors       uint16
	LinkErrorRecovery  uint8
	LinkDowned         uint8
	RcvErrors          uint16
	RcvRemotePhysErr   uint16
	RcvSwitchRelayErr  uint16
	XmitDiscards       uint16
	XmitConstraintErr  uint8
	RcvConstraintErr   uint8
	CounterSelect2     uint8
	LocalLinkIntegrity uint8 // 4 bits
	BufferOverruns     uint8 // 4 bits
	QP1Dropped         uint16
	VL15Dropped        uint16
	XmitData           uint32 // units of 4 bytes
	RcvData            uint32
	XmitPkts           uint32
	RcvPkts            uint32
	XmitWait           uint32
}

func (c *PortCounters) Append(b []byte) []byte {
	b = append(b, 0, c.PortSelect)
	b = be.AppendUint16(b, c.CounterSelect)
	b = be.AppendUint16(b, c.SymbolErrors)
	b = append(b, c.LinkErrorRecovery, c.LinkDowned)
	b = be.AppendUint16(b, c.RcvErrors)
	b = be.AppendUint16(b, c.RcvRemotePhysErr)
	b = be.AppendUint16(b, c.RcvSwitchRelayErr)
	b = be.AppendUint16(b, c.XmitDiscards)
	b = append(b, c.XmitConstraintErr, c.RcvConstraintErr, c.CounterSelect2,
		c.LocalLinkIntegrity<<4|c.BufferOverruns&0xf)
	b = be.AppendUint16(b, c.QP1Dropped)
	b = be.AppendUint16(b, c.VL15Dropped)
	b = be.AppendUint32(b, c.XmitData)
	b = be.AppendUint32(b, c.RcvData)
	b = be.AppendUint32(b, c.XmitPkts)
	b = be.AppendUint32(b, c.RcvPkts)
	return be.AppendUint32(b, c.XmitWait)
}

func (c *PortCounters) Decode(b []byte) error {
	if len(b) < PortCountersLen {
		return ErrShort
	}
	c.PortSelect, c.CounterSelect = b[1], be.Uint16(b[2:])
	c.SymbolErrors, c.LinkErrorRecovery, c.LinkDowned = be.Uint16(b[4:]), b[6], b[7]
	c.RcvErrors, c.RcvRemotePhysErr = be.Uint16(b[8:]), be.Uint16(b[10:])
	c.RcvSwitchRelayErr, c.XmitDiscards = be.Uint16(b[12:]), be.Uint16(b[14:])
	c.XmitConstraintErr, c.RcvConstraintErr, c.CounterSelect2 = b[16], b[17], b[18]
	c.LocalLinkIntegrity, c.BufferOverruns = b[19]>>4, b[19]&0xf
	c.QP1Dropped, c.VL15Dropped = be.Uint16(b[20:]), be.Uint16(b[22:])
	c.XmitData, c.RcvData = be.Uint32(b[24:]), be.Uint32(b[28:])
	c.XmitPkts, c.RcvPkts, c.XmitWait = be.Uint32(b[32:]), be.Uint32(b[36:]), be.Uint32(b[40:])
	return nil
}

// SetSelected copies the counters of errors that in selects, as a Set does (IBTA
// 16.1.3.5, table 221: bit 0 is SymbolErrors, and so on in the order of the fields).
func (c *PortCounters) SetSelected(in *PortCounters) {
	on := func(bit int) bool { return in.CounterSelect&(1<<bit) != 0 }
	for i, f := range [...][2]*uint16{0: {&c.SymbolErrors, &in.SymbolErrors}, 3: {&c.RcvErrors, &in.RcvErrors},
		4: {&c.RcvRemotePhysErr, &in.RcvRemotePhysErr}, 5: {&c.RcvSwitchRelayErr, &in.RcvSwitchRelayErr},
		6: {&c.XmitDiscards, &in.XmitDiscards}, 11: {&c.VL15Dropped, &in.VL15Dropped}} {
		if f[0] != nil && on(i) {
			*f[0] = *f[1]
		}
	}
	for i, f := range [...][2]*uint8{1: {&c.LinkErrorRecovery, &in.LinkErrorRecovery}, 2: {&c.LinkDowned, &in.LinkDowned},
		7: {&c.XmitConstraintErr, &in.XmitConstraintErr}, 8: {&c.RcvConstraintErr, &in.RcvConstraintErr},
		9: {&c.LocalLinkIntegrity, &in.LocalLinkIntegrity}, 10: {&c.BufferOverruns, &in.BufferOverruns}} {
		if f[0] != nil && on(i) {
			*f[0] = *f[1]
		}
	}
}

// PortCountersExtLen is the wire length of PortCountersExt.
const PortCountersExtLen = 72

// PortCountersExt are the 64-bit counters of a port (IBTA 16.1.4.11).
type PortCountersExt struct {
	PortSelect    uint8
	CounterSelect uint16
	XmitData      uint64 // units of 4 bytes
	RcvData       uint64
	XmitPkts      uint64
	RcvPkts       uint64
	UcastXmitPkts uint64
	UcastRcvPkts  uint64
	McastXmitPkts uint64
	McastRcvPkts  uint64
}

func (c *PortCountersExt) Append(b []byte) []byte {
	b = be.AppendUint32(b, uint32(c.PortSelect)<<16|uint32(c.CounterSelect))
	b = be.AppendUint32(b, 0)
	for _, v := range [...]uint64{c.XmitData, c.RcvData, c.XmitPkts, c.RcvPkts,
		c.UcastXmitPkts, c.UcastRcvPkts, c.McastXmitPkts, c.McastRcvPkts} {
		b = be.AppendUint64(b, v)
	}
	return b
}

func (c *PortCountersExt) Decode(b []byte) error {
	if len(b) < PortCountersExtLen {
		return ErrShort
	}
	c.PortSelect, c.CounterSelect = b[1], be.Uint16(b[2:])
	for i, p := range [...]*uint64{&c.XmitData, &c.RcvData, &c.XmitPkts, &c.RcvPkts,
		&c.UcastXmitPkts, &c.UcastRcvPkts, &c.McastXmitPkts, &c.McastRcvPkts} {
		*p = be.Uint64(b[8+8*i:])
	}
	return nil
}
