package mad

import "ibnetworkd/ib"

// Trap numbers of generic notices (IBTA 14.2.5.1, 15.2.5.1).
const (
	TrapGIDInService      uint16 = 64
	TrapGIDOutOfService   uint16 = 65
	TrapMcastGroupCreated uint16 = 66
	TrapMcastGroupDeleted uint16 = 67
	TrapLinkStateChange   uint16 = 128 // of a switch's port
	TrapLocalIntegrity    uint16 = 129
	TrapBufferOverrun     uint16 = 130
	TrapFlowWatchdog      uint16 = 131
	TrapCapMaskChange     uint16 = 144
	TrapSysImageGUID      uint16 = 145
	TrapBadMKey           uint16 = 256
	TrapBadPKey           uint16 = 257
	TrapBadQKey           uint16 = 258
	TrapSwitchBadPKey     uint16 = 259
)

// TrapAll subscribes to every trap number in an InformInfo.
const TrapAll uint16 = 0xffff

// NoticeType is the weight of a notice, 7 bits.
type NoticeType uint8

// The notice types.
const (
	NoticeUrgent   NoticeType = 1
	NoticeSecurity NoticeType = 2
	NoticeSubnMgmt NoticeType = 3
	NoticeInfo     NoticeType = 4
)

// NoticeLen and NoticeSMPLen are the wire lengths of Notice in a report of the
// SA (with the issuer's GID) and in an SMP (without).
const (
	NoticeLen    = 80
	NoticeSMPLen = 64
)

// ProducerClassMgr is the producer type of notices by the SA itself.
const ProducerClassMgr uint32 = 4

// Notice is an event (IBTA 13.4.8.2). For generic notices Producer is the node
// type and TrapNumber the trap; for a vendor's they are vendor and device.
type Notice struct {
	Generic    bool
	Type       NoticeType
	Producer   uint32 // 24 bits
	TrapNumber uint16
	IssuerLID  ib.LID
	Toggle     bool
	Count      uint16 // 15 bits
	Details    [54]byte
	IssuerGID  ib.GID
}

// AppendSMP appends the NoticeSMPLen bytes that fit an SMP.
func (n *Notice) AppendSMP(b []byte) []byte {
	b = append(b, bit(n.Generic, 7)|uint8(n.Type)&0x7f, uint8(n.Producer>>16), uint8(n.Producer>>8), uint8(n.Producer))
	b = be.AppendUint16(b, n.TrapNumber)
	b = be.AppendUint16(b, uint16(n.IssuerLID))
	c := n.Count & 0x7fff
	if n.Toggle {
		c |= 0x8000
	}
	b = be.AppendUint16(b, c)
	return append(b, n.Details[:]...)
}

func (n *Notice) Append(b []byte) []byte { return append(n.AppendSMP(b), n.IssuerGID[:]...) }

// Decode reads NoticeSMPLen bytes, and the issuer's GID where b has NoticeLen.
func (n *Notice) Decode(b []byte) error {
	if len(b) < NoticeSMPLen {
		return ErrShort
	}
	n.Generic, n.Type = b[0]&0x80 != 0, NoticeType(b[0]&0x7f)
	n.Producer = be.Uint32(b) & 0xffffff
	n.TrapNumber = be.Uint16(b[4:])
	n.IssuerLID = ib.LID(be.Uint16(b[6:]))
	c := be.Uint16(b[8:])
	n.Toggle, n.Count = c&0x8000 != 0, c&0x7fff
	n.Details = [54]byte(b[10:64])
	n.IssuerGID = ib.GID{}
	if len(b) >= NoticeLen {
		n.IssuerGID = ib.GID(b[64:80])
	}
	return nil
}

// DetailGID is the GID of traps 64 to 67: a port's or a multicast group's.
func (n *Notice) DetailGID() ib.GID { return ib.GID(n.Details[6:22]) }

// SetDetailGID fills the details of traps 64 to 67.
func (n *Notice) SetDetailGID(g ib.GID) {
	n.Details = [54]byte{}
	copy(n.Details[6:], g[:])
}

// DetailSwitchLID is the LID of trap 128's switch.
func (n *Notice) DetailSwitchLID() ib.LID { return ib.LID(be.Uint16(n.Details[:])) }

// SetDetailSwitchLID fills the details of trap 128.
func (n *Notice) SetDetailSwitchLID(l ib.LID) {
	n.Details = [54]byte{}
	be.PutUint16(n.Details[:], uint16(l))
}

// DetailPort is the LID and port number of traps 129 to 131.
func (n *Notice) DetailPort() (ib.LID, uint8) {
	return ib.LID(be.Uint16(n.Details[2:])), n.Details[4]
}

// SetDetailPort fills the details of traps 129 to 131.
func (n *Notice) SetDetailPort(l ib.LID, port uint8) {
	n.Details = [54]byte{}
	be.PutUint16(n.Details[2:], uint16(l))
	n.Details[4] = port
}

// Flags of trap 144's local changes.
const (
	ChangeNodeDescription uint16 = 1 << 0
	ChangeSMPriority      uint16 = 1 << 3
)

// CapChange is the details of trap 144.
type CapChange struct {
	LID          ib.LID
	LocalChanges bool // Flags mean something
	CapMask      uint32
	Flags        uint16
	CapMask2     uint16
}

// DetailCapChange reads the details of trap 144.
func (n *Notice) DetailCapChange() CapChange {
	d := &n.Details
	return CapChange{ib.LID(be.Uint16(d[2:])), d[5]&1 != 0, be.Uint32(d[6:]), be.Uint16(d[10:]), be.Uint16(d[12:])}
}

// SetDetailCapChange fills the details of trap 144.
func (n *Notice) SetDetailCapChange(c CapChange) {
	n.Details = [54]byte{}
	d := &n.Details
	be.PutUint16(d[2:], uint16(c.LID))
	d[5] = bit(c.LocalChanges, 0)
	be.PutUint32(d[6:], c.CapMask)
	be.PutUint16(d[10:], c.Flags)
	be.PutUint16(d[12:], c.CapMask2)
}

// DetailSysImageGUID is the LID and the new GUID of trap 145.
func (n *Notice) DetailSysImageGUID() (ib.LID, ib.GUID) {
	return ib.LID(be.Uint16(n.Details[2:])), ib.GUID(be.Uint64(n.Details[6:]))
}

// SetDetailSysImageGUID fills the details of trap 145.
func (n *Notice) SetDetailSysImageGUID(l ib.LID, g ib.GUID) {
	n.Details = [54]byte{}
	be.PutUint16(n.Details[2:], uint16(l))
	be.PutUint64(n.Details[6:], uint64(g))
}

// MKeyViolation is the details of trap 256.
type MKeyViolation struct {
	LID           ib.LID
	DrSLID        ib.LID
	Method        Method
	Attr          AttrID
	Mod           uint32
	MKey          ib.MKey // that of the offending request
	DR            bool    // the request came by directed route
	PathTruncated bool
	HopCount      uint8 // 6 bits
	ReturnPath    [30]byte
}

// DetailMKeyViolation reads the details of trap 256.
func (n *Notice) DetailMKeyViolation() MKeyViolation {
	d := &n.Details
	return MKeyViolation{
		LID: ib.LID(be.Uint16(d[2:])), DrSLID: ib.LID(be.Uint16(d[4:])), Method: Method(d[6]),
		Attr: AttrID(be.Uint16(d[8:])), Mod: be.Uint32(d[10:]), MKey: ib.MKey(be.Uint64(d[14:])),
		DR: d[23]&0x80 != 0, PathTruncated: d[23]&0x40 != 0, HopCount: d[23] & 0x3f,
		ReturnPath: [30]byte(d[24:54]),
	}
}

// SetDetailMKeyViolation fills the details of trap 256.
func (n *Notice) SetDetailMKeyViolation(v MKeyViolation) {
	n.Details = [54]byte{}
	d := &n.Details
	be.PutUint16(d[2:], uint16(v.LID))
	be.PutUint16(d[4:], uint16(v.DrSLID))
	d[6] = uint8(v.Method)
	be.PutUint16(d[8:], uint16(v.Attr))
	be.PutUint32(d[10:], v.Mod)
	be.PutUint64(d[14:], uint64(v.MKey))
	d[23] = bit(v.DR, 7) | bit(v.PathTruncated, 6) | v.HopCount&0x3f
	copy(d[24:], v.ReturnPath[:])
}

// KeyViolation is the details of traps 257 (P_Key), 258 (Q_Key) and 259 (P_Key
// at a switch).
type KeyViolation struct {
	LID1, LID2 ib.LID
	Key        uint32 // a P_Key in the low 16 bits, or a Q_Key
	SL         ib.SL
	QP1, QP2   uint32 // 24 bits
	GID1, GID2 ib.GID
	// Trap 259 only.
	DataValid uint16
	SwitchLID ib.LID
	Port      uint8
}

// DetailKeyViolation reads the details of traps 257 to 259.
func (n *Notice) DetailKeyViolation() (v KeyViolation) {
	d := &n.Details
	v.LID1, v.LID2 = ib.LID(be.Uint16(d[2:])), ib.LID(be.Uint16(d[4:]))
	o := 6
	if n.TrapNumber == TrapSwitchBadPKey {
		v.DataValid = be.Uint16(d[:])
		v.Key = uint32(be.Uint16(d[o:]))
		o += 2
	} else {
		v.Key = be.Uint32(d[o:])
		o += 4
	}
	v.SL, v.QP1, v.QP2 = ib.SL(d[o]>>4), be.Uint32(d[o:])&0xffffff, be.Uint32(d[o+4:])&0xffffff
	v.GID1, v.GID2 = ib.GID(d[o+8:o+24]), ib.GID(d[o+24:o+40])
	if n.TrapNumber == TrapSwitchBadPKey {
		v.SwitchLID, v.Port = ib.LID(be.Uint16(d[48:])), d[50]
	}
	return v
}

// SetDetailKeyViolation fills the details of traps 257 to 259, by TrapNumber.
func (n *Notice) SetDetailKeyViolation(v KeyViolation) {
	n.Details = [54]byte{}
	d := &n.Details
	be.PutUint16(d[2:], uint16(v.LID1))
	be.PutUint16(d[4:], uint16(v.LID2))
	o := 6
	if n.TrapNumber == TrapSwitchBadPKey {
		be.PutUint16(d[:], v.DataValid)
		be.PutUint16(d[o:], uint16(v.Key))
		o += 2
	} else {
		be.PutUint32(d[o:], v.Key)
		o += 4
	}
	be.PutUint32(d[o:], uint32(v.SL)<<28|v.QP1&0xffffff)
	be.PutUint32(d[o+4:], v.QP2&0xffffff)
	copy(d[o+8:], v.GID1[:])
	copy(d[o+24:], v.GID2[:])
	if n.TrapNumber == TrapSwitchBadPKey {
		be.PutUint16(d[48:], uint16(v.SwitchLID))
		d[50] = v.Port
	}
}

// InformInfoLen is the wire length of InformInfo.
const InformInfoLen = 36

// InformInfo subscribes to notices (IBTA 13.4.8.3).
type InformInfo struct {
	GID           ib.GID
	LIDRangeBegin ib.LID // 0xffff: all LIDs
	LIDRangeEnd   ib.LID
	Generic       bool
	Subscribe     bool
	Type          uint16 // NoticeType, 0xffff: all
	TrapNumber    uint16 // or a device, TrapAll: all
	QPN           uint32 // 24 bits
	RespTimeValue uint8  // 5 bits
	Producer      uint32 // 24 bits, node type or vendor; 0xffffff: all
}

func (i *InformInfo) Append(b []byte) []byte {
	b = append(b, i.GID[:]...)
	b = be.AppendUint16(b, uint16(i.LIDRangeBegin))
	b = be.AppendUint16(b, uint16(i.LIDRangeEnd))
	b = append(b, 0, 0, bit(i.Generic, 0), bit(i.Subscribe, 0))
	b = be.AppendUint16(b, i.Type)
	b = be.AppendUint16(b, i.TrapNumber)
	b = be.AppendUint32(b, i.QPN<<8|uint32(i.RespTimeValue&0x1f))
	return be.AppendUint32(b, i.Producer&0xffffff)
}

// Decode reads InformInfoLen bytes. Generic and Subscribe are true for exactly
// 1; other values are reserved.
func (i *InformInfo) Decode(b []byte) error {
	if len(b) < InformInfoLen {
		return ErrShort
	}
	i.GID = ib.GID(b[:16])
	i.LIDRangeBegin, i.LIDRangeEnd = ib.LID(be.Uint16(b[16:])), ib.LID(be.Uint16(b[18:]))
	i.Generic, i.Subscribe = b[22] == 1, b[23] == 1
	i.Type, i.TrapNumber = be.Uint16(b[24:]), be.Uint16(b[26:])
	q := be.Uint32(b[28:])
	i.QPN, i.RespTimeValue = q>>8, uint8(q&0x1f)
	i.Producer = be.Uint32(b[32:]) & 0xffffff
	return nil
}

// InformInfoReserved reports whether IsGeneric or Subscribe of a whole InformInfo has a
// value that is reserved.
func InformInfoReserved(b []byte) bool { return b[22] > 1 || b[23] > 1 }

// ClassPortInfoLen is the wire length of ClassPortInfo.
const ClassPortInfoLen = 72

// ClassPortInfo is what a class's manager or agent can do (IBTA 13.4.8.1).
type ClassPortInfo struct {
	BaseVersion   uint8
	ClassVersion  uint8
	CapMask       uint16
	CapMask2      uint32 // 27 bits
	RespTimeValue uint8  // 5 bits
	RedirectGID   ib.GID
	RedirectTC    uint8
	RedirectSL    ib.SL
	RedirectFlow  uint32 // 20 bits
	RedirectLID   ib.LID
	RedirectPKey  ib.PKey
	RedirectQP    uint32 // 24 bits
	RedirectQKey  ib.QKey
	TrapGID       ib.GID
	TrapTC        uint8
	TrapSL        ib.SL
	TrapFlow      uint32
	TrapLID       ib.LID
	TrapPKey      ib.PKey
	TrapHopLimit  uint8
	TrapQP        uint32 // 24 bits
	TrapQKey      ib.QKey
}

// Capability bits of the SA's ClassPortInfo (rdma-core's umad_sa.h, the
// kernel's rdma/ib_sa.h).
const (
	SACapGetSetSupported     uint16 = 1 << 1
	SACapOptionalRecords     uint16 = 1 << 8
	SACapUDMulticast         uint16 = 1 << 9
	SACapMultiPath           uint16 = 1 << 10
	SACapPortInfoCapMask     uint16 = 1 << 13 // CapMask matching in PortInfoRecord queries
	SACap2AliasGUID          uint32 = 1 << 5
	SACap2FullPortInfo       uint32 = 1 << 6
	SACap2ExtendedSpeeds     uint32 = 1 << 7
	SACap2SendOnlyFullMember uint32 = 1 << 12 // the kernel's IB_SA_CAP_MASK2_SENDONLY_FULL_MEM_SUPPORT
)

func (c *ClassPortInfo) Append(b []byte) []byte {
	b = append(b, c.BaseVersion, c.ClassVersion)
	b = be.AppendUint16(b, c.CapMask)
	b = be.AppendUint32(b, c.CapMask2<<5|uint32(c.RespTimeValue&0x1f))
	b = append(b, c.RedirectGID[:]...)
	b = be.AppendUint32(b, uint32(c.RedirectTC)<<24|uint32(c.RedirectSL&0xf)<<20|c.RedirectFlow&0xfffff)
	b = be.AppendUint16(b, uint16(c.RedirectLID))
	b = be.AppendUint16(b, uint16(c.RedirectPKey))
	b = be.AppendUint32(b, c.RedirectQP&0xffffff)
	b = be.AppendUint32(b, uint32(c.RedirectQKey))
	b = append(b, c.TrapGID[:]...)
	b = be.AppendUint32(b, uint32(c.TrapTC)<<24|uint32(c.TrapSL&0xf)<<20|c.TrapFlow&0xfffff)
	b = be.AppendUint16(b, uint16(c.TrapLID))
	b = be.AppendUint16(b, uint16(c.TrapPKey))
	b = be.AppendUint32(b, uint32(c.TrapHopLimit)<<24|c.TrapQP&0xffffff)
	return be.AppendUint32(b, uint32(c.TrapQKey))
}

func (c *ClassPortInfo) Decode(b []byte) error {
	if len(b) < ClassPortInfoLen {
		return ErrShort
	}
	c.BaseVersion, c.ClassVersion, c.CapMask = b[0], b[1], be.Uint16(b[2:])
	v := be.Uint32(b[4:])
	c.CapMask2, c.RespTimeValue = v>>5, uint8(v&0x1f)
	c.RedirectGID = ib.GID(b[8:24])
	v = be.Uint32(b[24:])
	c.RedirectTC, c.RedirectSL, c.RedirectFlow = uint8(v>>24), ib.SL(v>>20&0xf), v&0xfffff
	c.RedirectLID, c.RedirectPKey = ib.LID(be.Uint16(b[28:])), ib.PKey(be.Uint16(b[30:]))
	c.RedirectQP, c.RedirectQKey = be.Uint32(b[32:])&0xffffff, ib.QKey(be.Uint32(b[36:]))
	c.TrapGID = ib.GID(b[40:56])
	v = be.Uint32(b[56:])
	c.TrapTC, c.TrapSL, c.TrapFlow = uint8(v>>24), ib.SL(v>>20&0xf), v&0xfffff
	c.TrapLID, c.TrapPKey = ib.LID(be.Uint16(b[60:])), ib.PKey(be.Uint16(b[62:]))
	v = be.Uint32(b[64:])
	c.TrapHopLimit, c.TrapQP = uint8(v>>24), v&0xffffff
	c.TrapQKey = ib.QKey(be.Uint32(b[68:]))
	return nil
}
