package mad

import "testing"

// portField is a field of PortInfo with its highest value.
type portField struct {
	name string
	set  func(*PortInfo, uint64)
	get  func(*PortInfo) uint64
	most uint64
}

func field[T ~uint8 | ~uint16 | ~uint32 | ~uint64](name string, set func(*PortInfo, T), get func(*PortInfo) T, most uint64) portField {
	return portField{name, func(p *PortInfo, v uint64) { set(p, T(v)) }, func(p *PortInfo) uint64 { return uint64(get(p)) }, most}
}

// Each setter changes the bits of its field alone, which its getter gives, and no two
// fields share a bit.
func TestPortInfoFields(t *testing.T) {
	var used [PortInfoLen]byte
	for _, f := range []portField{
		field("MKey", (*PortInfo).SetMKey, (*PortInfo).MKey, 1<<64-1),
		field("GIDPrefix", (*PortInfo).SetGIDPrefix, (*PortInfo).GIDPrefix, 1<<64-1),
		field("LID", (*PortInfo).SetLID, (*PortInfo).LID, 1<<16-1),
		field("MasterSMLID", (*PortInfo).SetMasterSMLID, (*PortInfo).MasterSMLID, 1<<16-1),
		field("CapMask", (*PortInfo).SetCapMask, (*PortInfo).CapMask, 1<<32-1),
		field("CapMask2", (*PortInfo).SetCapMask2, (*PortInfo).CapMask2, 1<<16-1),
		field("MKeyLease", (*PortInfo).SetMKeyLease, (*PortInfo).MKeyLease, 1<<16-1),
		field("LocalPort", (*PortInfo).SetLocalPort, (*PortInfo).LocalPort, 255),
		field("WidthEnabled", (*PortInfo).SetWidthEnabled, (*PortInfo).WidthEnabled, 255),
		field("WidthActive", (*PortInfo).SetWidthActive, (*PortInfo).WidthActive, 255),
		field("State", (*PortInfo).SetState, (*PortInfo).State, 15),
		field("SpeedEnabled", (*PortInfo).SetSpeedEnabled, (*PortInfo).SpeedEnabled, 15),
		field("SpeedActive", (*PortInfo).SetSpeedActive, (*PortInfo).SpeedActive, 15),
		field("SpeedExtActive", (*PortInfo).SetSpeedExtActive, (*PortInfo).SpeedExtActive, 15),
		field("SpeedExtEnabled", (*PortInfo).SetSpeedExtEnabled, (*PortInfo).SpeedExtEnabled, 31),
		field("PhysState", (*PortInfo).SetPhysState, (*PortInfo).PhysState, 15),
		field("LinkDownDefault", (*PortInfo).SetLinkDownDefault, (*PortInfo).LinkDownDefault, 15),
		field("MKeyProtect", (*PortInfo).SetMKeyProtect, (*PortInfo).MKeyProtect, 3),
		field("LMC", (*PortInfo).SetLMC, (*PortInfo).LMC, 7),
		field("NeighborMTU", (*PortInfo).SetNeighborMTU, (*PortInfo).NeighborMTU, 15),
		field("MasterSMSL", (*PortInfo).SetMasterSMSL, (*PortInfo).MasterSMSL, 15),
		field("VLCap", (*PortInfo).SetVLCap, (*PortInfo).VLCap, 15),
		field("VLHighLimit", (*PortInfo).SetVLHighLimit, (*PortInfo).VLHighLimit, 255),
		field("MTUCap", (*PortInfo).SetMTUCap, (*PortInfo).MTUCap, 15),
		field("VLStallCount", (*PortInfo).SetVLStallCount, (*PortInfo).VLStallCount, 7),
		field("HOQLife", (*PortInfo).SetHOQLife, (*PortInfo).HOQLife, 31),
		field("OperVLs", (*PortInfo).SetOperVLs, (*PortInfo).OperVLs, 15),
		field("Enforcement", (*PortInfo).SetEnforcement, (*PortInfo).Enforcement, 12),
		field("RawFilters", (*PortInfo).SetRawFilters, (*PortInfo).RawFilters, 3),
		field("MKeyViolations", (*PortInfo).SetMKeyViolations, (*PortInfo).MKeyViolations, 1<<16-1),
		field("PKeyViolations", (*PortInfo).SetPKeyViolations, (*PortInfo).PKeyViolations, 1<<16-1),
		field("QKeyViolations", (*PortInfo).SetQKeyViolations, (*PortInfo).QKeyViolations, 1<<16-1),
		field("GUIDCap", (*PortInfo).SetGUIDCap, (*PortInfo).GUIDCap, 255),
		field("McastPKeyTrapSuppr", (*PortInfo).SetMcastPKeyTrapSuppr, (*PortInfo).McastPKeyTrapSuppr, 3),
		field("SubnetTimeout", (*PortInfo).SetSubnetTimeout, (*PortInfo).SubnetTimeout, 31),
		field("RespTime", (*PortInfo).SetRespTime, (*PortInfo).RespTime, 31),
	} {
		var p, q PortInfo
		for i := range q.b {
			q.b[i] = 0xff
		}
		f.set(&p, f.most)
		f.set(&q, 0)
		if p == (PortInfo{}) || f.get(&p) != f.most || f.get(&q) != 0 {
			t.Errorf("%s: %x set gives %x, 0 gives %x", f.name, f.most, f.get(&p), f.get(&q))
		}
		for i := range used {
			if p.b[i]&used[i] != 0 || p.b[i]^q.b[i] != 0xff {
				t.Errorf("%s: byte %d is %02x, of ones %02x, others use %02x", f.name, i, p.b[i], q.b[i], used[i])
			}
			used[i] |= p.b[i]
		}
	}
}
