package mad

// SwitchInfoLen is the wire length of SwitchInfo.
const SwitchInfoLen = 20

// SwitchInfo describes and sets up a switch (IBTA 14.2.5.4), as it travels on the wire:
// see PortInfo.
type SwitchInfo struct{ b [SwitchInfoLen]byte }

// LinearFDBCap is the number of entries of the linear forwarding table.
func (s *SwitchInfo) LinearFDBCap() uint16 { return be.Uint16(s.b[0:]) }

// RandomFDBCap is the number of entries of the random forwarding table.
func (s *SwitchInfo) RandomFDBCap() uint16 { return be.Uint16(s.b[2:]) }

// MulticastFDBCap is the number of entries of the multicast forwarding table.
func (s *SwitchInfo) MulticastFDBCap() uint16 { return be.Uint16(s.b[4:]) }

// LinearFDBTop is the highest LID that the linear forwarding table serves.
func (s *SwitchInfo) LinearFDBTop() uint16 { return be.Uint16(s.b[6:]) }

// LifeTime is the packet lifetime code in the switch, 0..31.
func (s *SwitchInfo) LifeTime() uint8 { return s.b[11] >> 3 }

// PortStateChange reports whether a port of the switch changed state since the bit was cleared.
func (s *SwitchInfo) PortStateChange() bool { return s.b[11]&4 != 0 }

// SetPortStateChange sets that bit or clears it: a Set of SwitchInfo with it clears it in the
// switch, one without leaves it (IBA vol 1, 14.2.5.4).
func (s *SwitchInfo) SetPortStateChange(on bool) { s.b[11] = s.b[11]&^4 | bit(on, 2) }

// PartitionEnforcementCap is the number of P_Key table entries per external port.
func (s *SwitchInfo) PartitionEnforcementCap() uint16 { return be.Uint16(s.b[14:]) }

// EnforcesPartitions reports whether external ports can check the P_Key of what
// they receive and of what they send.
func (s *SwitchInfo) EnforcesPartitions() (in, out bool) { return s.b[16]&0x80 != 0, s.b[16]&0x40 != 0 }

// EnhancedPort0 reports whether port 0 is an enhanced one, with LMC, P_Keys and GUIDs as a CA port.
func (s *SwitchInfo) EnhancedPort0() bool { return s.b[16]&8 != 0 }

// MulticastFDBTop is the highest multicast LID that the switch forwards.
func (s *SwitchInfo) MulticastFDBTop() uint16 { return be.Uint16(s.b[18:]) }

// SwitchInfoOf is the SwitchInfo in the data of an SMP.
func SwitchInfoOf(data *[64]byte) SwitchInfo { return SwitchInfo{[SwitchInfoLen]byte(data[:])} }

// Wire is the attribute as the data of an SMP.
func (s *SwitchInfo) Wire() (data [64]byte) {
	copy(data[:], s.b[:])
	return data
}

func (s *SwitchInfo) Decode(b []byte) error {
	if len(b) < SwitchInfoLen {
		return ErrShort
	}
	copy(s.b[:], b)
	return nil
}

func (s *SwitchInfo) Append(b []byte) []byte { return append(b, s.b[:]...) }

func (s *SwitchInfo) put16(at int, v uint16) { be.PutUint16(s.b[at:], v) }

// SetCaps sets the numbers of entries of the linear and of the multicast
// forwarding table, and of the P_Key table of each external port.
func (s *SwitchInfo) SetCaps(linear, multicast, pkeys uint16) {
	s.put16(0, linear)
	s.put16(4, multicast)
	s.put16(14, pkeys)
}

// SetLinearFDBTop sets the highest LID that the linear forwarding table serves.
func (s *SwitchInfo) SetLinearFDBTop(top uint16) { s.put16(6, top) }

// SetLifeTime sets the packet lifetime code, 0..31.
func (s *SwitchInfo) SetLifeTime(code uint8) { s.b[11] = s.b[11]&7 | code<<3 }

// SetMulticastFDBTop sets the highest multicast LID that the switch forwards.
func (s *SwitchInfo) SetMulticastFDBTop(top uint16) { s.put16(18, top) }

// SetEnforcementCap sets whether external ports can check P_Keys of what they
// receive and of what they send.
func (s *SwitchInfo) SetEnforcementCap(e Enforcement) { s.b[16] = s.b[16]&0x3f | uint8(e)<<4 }

// SetEnhancedPort0 marks port 0 as an enhanced one.
func (s *SwitchInfo) SetEnhancedPort0() { s.b[16] |= 8 }

// SetLinearFDBCap sets the number of entries of the linear forwarding table.
func (s *SwitchInfo) SetLinearFDBCap(n uint16) { s.put16(0, n) }

// SetMulticastFDBCap sets the number of entries of the multicast forwarding table.
func (s *SwitchInfo) SetMulticastFDBCap(n uint16) { s.put16(4, n) }

// DefaultPorts are the ports of packets whose table has no entry: of random
// forwarding, and for groups above MulticastFDBTop the primary one and, for packets
// that come from it, the other.
func (s *SwitchInfo) DefaultPorts() [3]uint8 { return [3]uint8(s.b[8:11]) }

// SetDefaultPorts sets them.
func (s *SwitchInfo) SetDefaultPorts(p [3]uint8) { copy(s.b[8:11], p[:]) }

// OptimizedSLtoVL are the two bits that say which ports share an SL-to-VL table.
func (s *SwitchInfo) OptimizedSLtoVL() uint8 { return s.b[11] & 3 }

// SetOptimizedSLtoVL sets them.
func (s *SwitchInfo) SetOptimizedSLtoVL(v uint8) { s.b[11] = s.b[11]&^3 | v&3 }
