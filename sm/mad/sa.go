package mad

import "ibnetworkd/ib"

// SADataOffset is where the data of an SA MAD begins, SADataLen how much one
// MAD holds (IBTA 15.2.1).
const (
	SADataOffset = 56
	SADataLen    = Size - SADataOffset
)

// CompMask says which components of a record a request means.
type CompMask uint64

// SAHeader is the header of an SA MAD: common header, RMPP header and SA's own
// (IBTA 15.2.1.1).
type SAHeader struct {
	Header
	RMPP       RMPPHeader
	SMKey      uint64
	AttrOffset uint16 // distance of two records in units of 8 bytes
	CompMask   CompMask
}

// Decode reads the first SADataOffset bytes of an SA message of any length.
func (h *SAHeader) Decode(b []byte) error {
	if len(b) < SADataOffset {
		return ErrShort
	}
	var m Buf
	copy(m[:SADataOffset], b)
	h.Header.Decode(&m)
	h.RMPP.decode(&m)
	h.SMKey = be.Uint64(m[36:])
	h.AttrOffset = be.Uint16(m[44:])
	h.CompMask = CompMask(be.Uint64(m[48:]))
	return nil
}

// Append appends SADataOffset bytes.
func (h *SAHeader) Append(b []byte) []byte {
	var m Buf
	h.Header.Put(&m)
	h.RMPP.Put(&m)
	be.PutUint64(m[36:], h.SMKey)
	be.PutUint16(m[44:], h.AttrOffset)
	be.PutUint64(m[48:], uint64(h.CompMask))
	return append(b, m[:SADataOffset]...)
}

// Put writes the header into the first SADataOffset bytes of b.
func (h *SAHeader) Put(b *Buf) { h.Append(b[:0]) }

// NewSA is the header of an SA request.
func NewSA(m Method, a AttrID, tid uint32, mask CompMask) SAHeader {
	return SAHeader{Header: Header{
		BaseVersion: BaseVer, Class: ClassSA, ClassVersion: SAClassV, Method: m, Attr: a, TID: uint64(tid),
	}, CompMask: mask}
}

// Response turns a request's header into that of its answer.
func (h *SAHeader) Response(status Status) SAHeader {
	r := *h
	r.Method |= MethodRespBit
	if h.Method == MethodSet {
		r.Method = MethodGetResp
	}
	r.Status = status
	r.RMPP = RMPPHeader{}
	return r
}

// Wire lengths of the records as they stand in a table, rounded up to units of
// eight bytes. A single record's layout can be shorter.
const (
	NodeRecordLen       = 112
	PortInfoRecordLen   = 72
	SLtoVLRecordLen     = 16
	SwitchInfoRecordLen = 24
	LFTRecordLen        = 72
	MFTRecordLen        = 72
	SMInfoRecordLen     = 32
	LinkRecordLen       = 8
	GUIDInfoRecordLen   = 72
	ServiceRecordLen    = 176
	PKeyTableRecordLen  = 72
	PathRecordLen       = 64
	VLArbRecordLen      = 72
	MCMemberRecordLen   = 56
	InformInfoRecordLen = 64
	MultiPathHeaderLen  = 24 // and 16 for each GID
)

// NodeRecord is IBTA 15.2.5.2.
type NodeRecord struct {
	LID         ib.LID
	Info        NodeInfo
	Description NodeDescription
}

// Components of NodeRecord.
const (
	CompNRLID CompMask = 1 << iota
	_
	CompNRBaseVersion
	CompNRClassVersion
	CompNRNodeType
	CompNRNumPorts
	CompNRSystemImageGUID
	CompNRNodeGUID
	CompNRPortGUID
	CompNRPartitionCap
	CompNRDeviceID
	CompNRRevision
	CompNRLocalPortNum
	CompNRVendorID
	CompNRDescription
)

// Append appends NodeRecordLen bytes.
func (r *NodeRecord) Append(b []byte) []byte {
	b = be.AppendUint32(b, uint32(r.LID)<<16)
	b = r.Info.Append(b)
	b = r.Description.Append(b)
	return append(b, 0, 0, 0, 0)
}

// Decode reads a NodeRecord without its padding.
func (r *NodeRecord) Decode(b []byte) error {
	if len(b) < 108 {
		return ErrShort
	}
	r.LID = ib.LID(be.Uint16(b))
	_ = r.Info.Decode(b[4:])
	return r.Description.Decode(b[44:])
}

// PortInfoRecord is IBTA 15.2.5.3.
type PortInfoRecord struct {
	LID     ib.LID
	Port    uint8
	Options uint8 // bit 7: CapMask matches its bits instead of its value
	Info    PortInfo
}

// Components of PortInfoRecord.
const (
	CompPIRLID CompMask = 1 << iota
	CompPIRPort
	CompPIROptions
	CompPIRMKey
	CompPIRGIDPrefix
	CompPIRBaseLID
	CompPIRMasterSMLID
	CompPIRCapMask
	CompPIRDiagCode
	CompPIRMKeyLease
	CompPIRLocalPortNum
	CompPIRLinkWidthEnabled
	CompPIRLinkWidthSupported
	CompPIRLinkWidthActive
	CompPIRLinkSpeedSupported
	CompPIRPortState
	CompPIRPhysState
	CompPIRLinkDownDefault
	CompPIRMKeyProtect
	_
	CompPIRLMC
	CompPIRLinkSpeedActive
	CompPIRLinkSpeedEnabled
	CompPIRNeighborMTU
	CompPIRMasterSMSL
	CompPIRVLCap
	CompPIRInitType
	CompPIRVLHighLimit
	CompPIRVLArbHighCap
	CompPIRVLArbLowCap
	CompPIRInitTypeReply
	CompPIRMTUCap
	CompPIRVLStallCount
	CompPIRHOQLife
	CompPIROperVLs
	CompPIRPartEnforceInbound
	CompPIRPartEnforceOutbound
	CompPIRFilterRawInbound
	CompPIRFilterRawOutbound
	CompPIRMKeyViolations
	CompPIRPKeyViolations
	CompPIRQKeyViolations
	CompPIRGUIDCap
	CompPIRClientReregister
	_
	CompPIRSubnetTimeout
	_
	CompPIRRespTimeValue
	CompPIRLocalPhyErrors
	CompPIROverrunErrors
	CompPIRMaxCreditHint
	_
	CompPIRLinkLatency
	CompPIRCapMask2
	CompPIRLinkSpeedExtActive
	CompPIRLinkSpeedExtSupported
	_
	CompPIRLinkSpeedExtEnabled
)

// Append appends PortInfoRecordLen bytes.
func (r *PortInfoRecord) Append(b []byte) []byte {
	b = be.AppendUint16(b, uint16(r.LID))
	b = append(b, r.Port, r.Options)
	b = r.Info.Append(b)
	return append(b, 0, 0, 0, 0)
}

// Decode reads a PortInfoRecord without its padding.
func (r *PortInfoRecord) Decode(b []byte) error {
	if len(b) < 4+PortInfoLen {
		return ErrShort
	}
	r.LID, r.Port, r.Options = ib.LID(be.Uint16(b)), b[2], b[3]
	return r.Info.Decode(b[4:])
}

// SLtoVLRecord is IBTA 15.2.5.4.
type SLtoVLRecord struct {
	LID     ib.LID
	InPort  uint8
	OutPort uint8
	Table   SLtoVL
}

// Components of SLtoVLRecord.
const (
	CompSLVLLID CompMask = 1 << iota
	CompSLVLInPort
	CompSLVLOutPort
)

// Append appends SLtoVLRecordLen bytes.
func (r *SLtoVLRecord) Append(b []byte) []byte {
	b = be.AppendUint16(b, uint16(r.LID))
	b = append(b, r.InPort, r.OutPort, 0, 0, 0, 0)
	return r.Table.Append(b)
}

// Decode reads SLtoVLRecordLen bytes.
func (r *SLtoVLRecord) Decode(b []byte) error {
	if len(b) < SLtoVLRecordLen {
		return ErrShort
	}
	r.LID, r.InPort, r.OutPort = ib.LID(be.Uint16(b)), b[2], b[3]
	return r.Table.Decode(b[8:])
}

// SwitchInfoRecord is IBTA 15.2.5.5.
type SwitchInfoRecord struct {
	LID  ib.LID
	Info SwitchInfo
}

// CompSWIRLID is the component of SwitchInfoRecord.
const CompSWIRLID CompMask = 1 << 0

// Append appends SwitchInfoRecordLen bytes.
func (r *SwitchInfoRecord) Append(b []byte) []byte {
	return r.Info.Append(be.AppendUint32(b, uint32(r.LID)<<16))
}

// Decode reads SwitchInfoRecordLen bytes.
func (r *SwitchInfoRecord) Decode(b []byte) error {
	if len(b) < SwitchInfoRecordLen {
		return ErrShort
	}
	r.LID = ib.LID(be.Uint16(b))
	return r.Info.Decode(b[4:])
}

// LFTRecord is IBTA 15.2.5.6.
type LFTRecord struct {
	LID   ib.LID
	Block uint16
	Table LFTBlock
}

// Components of LFTRecord.
const (
	CompLFTLID CompMask = 1 << iota
	CompLFTBlock
)

// Append appends LFTRecordLen bytes.
func (r *LFTRecord) Append(b []byte) []byte {
	b = be.AppendUint32(b, uint32(r.LID)<<16|uint32(r.Block))
	return r.Table.Append(append(b, 0, 0, 0, 0))
}

// Decode reads LFTRecordLen bytes.
func (r *LFTRecord) Decode(b []byte) error {
	if len(b) < LFTRecordLen {
		return ErrShort
	}
	r.LID, r.Block = ib.LID(be.Uint16(b)), be.Uint16(b[2:])
	return r.Table.Decode(b[8:])
}

// MFTRecord is IBTA 15.2.5.8.
type MFTRecord struct {
	LID      ib.LID
	Position uint8  // 4 bits
	Block    uint16 // 9 bits
	Table    MFTBlock
}

// Components of MFTRecord.
const (
	CompMFTLID      CompMask = 1 << 0
	CompMFTPosition CompMask = 1 << 1
	CompMFTBlock    CompMask = 1 << 3
)

// Append appends MFTRecordLen bytes.
func (r *MFTRecord) Append(b []byte) []byte {
	b = be.AppendUint32(b, uint32(r.LID)<<16|uint32(r.Position&0xf)<<12|uint32(r.Block&0x1ff))
	return r.Table.Append(append(b, 0, 0, 0, 0))
}

// Decode reads MFTRecordLen bytes.
func (r *MFTRecord) Decode(b []byte) error {
	if len(b) < MFTRecordLen {
		return ErrShort
	}
	pb := be.Uint16(b[2:])
	r.LID, r.Position, r.Block = ib.LID(be.Uint16(b)), uint8(pb>>12), pb&0x1ff
	return r.Table.Decode(b[8:])
}

// SMInfoRecord is IBTA 15.2.5.10.
type SMInfoRecord struct {
	LID  ib.LID
	Info SMInfo
}

// Components of SMInfoRecord.
const (
	CompSMIRLID      CompMask = 1 << 0
	CompSMIRGUID     CompMask = 1 << 2
	CompSMIRSMKey    CompMask = 1 << 3
	CompSMIRActCount CompMask = 1 << 4
	CompSMIRPriority CompMask = 1 << 5
	CompSMIRState    CompMask = 1 << 6
)

// Append appends SMInfoRecordLen bytes.
func (r *SMInfoRecord) Append(b []byte) []byte {
	b = r.Info.Append(be.AppendUint32(b, uint32(r.LID)<<16))
	return append(b, 0, 0, 0, 0, 0, 0, 0)
}

// Decode reads an SMInfoRecord without its padding.
func (r *SMInfoRecord) Decode(b []byte) error {
	if len(b) < 4+SMInfoLen {
		return ErrShort
	}
	r.LID = ib.LID(be.Uint16(b))
	return r.Info.Decode(b[4:])
}

// LinkRecord is IBTA 15.2.5.13.
type LinkRecord struct {
	FromLID  ib.LID
	FromPort uint8
	ToPort   uint8
	ToLID    ib.LID
}

// Components of LinkRecord.
const (
	CompLRFromLID CompMask = 1 << iota
	CompLRFromPort
	CompLRToPort
	CompLRToLID
)

// Append appends LinkRecordLen bytes.
func (r *LinkRecord) Append(b []byte) []byte {
	b = be.AppendUint16(b, uint16(r.FromLID))
	b = append(b, r.FromPort, r.ToPort)
	return be.AppendUint32(b, uint32(r.ToLID)<<16)
}

// Decode reads a LinkRecord without its padding.
func (r *LinkRecord) Decode(b []byte) error {
	if len(b) < 6 {
		return ErrShort
	}
	r.FromLID, r.FromPort, r.ToPort, r.ToLID = ib.LID(be.Uint16(b)), b[2], b[3], ib.LID(be.Uint16(b[4:]))
	return nil
}

// GUIDInfoRecord is IBTA 15.2.5.18.
type GUIDInfoRecord struct {
	LID   ib.LID
	Block uint8
	Info  GUIDInfo
}

// Components of GUIDInfoRecord; CompGIRGID0<<i is entry i.
const (
	CompGIRLID   CompMask = 1 << 0
	CompGIRBlock CompMask = 1 << 1
	CompGIRGID0  CompMask = 1 << 4
)

// Append appends GUIDInfoRecordLen bytes.
func (r *GUIDInfoRecord) Append(b []byte) []byte {
	b = be.AppendUint16(b, uint16(r.LID))
	b = append(b, r.Block, 0, 0, 0, 0, 0)
	return r.Info.Append(b)
}

// Decode reads GUIDInfoRecordLen bytes.
func (r *GUIDInfoRecord) Decode(b []byte) error {
	if len(b) < GUIDInfoRecordLen {
		return ErrShort
	}
	r.LID, r.Block = ib.LID(be.Uint16(b)), b[2]
	return r.Info.Decode(b[8:])
}

// PKeyTableRecord is IBTA 15.2.5.11.
type PKeyTableRecord struct {
	LID   ib.LID
	Block uint16
	Port  uint8
	Table PKeyBlock
}

// Components of PKeyTableRecord.
const (
	CompPKTRLID CompMask = 1 << iota
	CompPKTRBlock
	CompPKTRPort
)

// Append appends PKeyTableRecordLen bytes.
func (r *PKeyTableRecord) Append(b []byte) []byte {
	b = be.AppendUint32(b, uint32(r.LID)<<16|uint32(r.Block))
	return r.Table.Append(append(b, r.Port, 0, 0, 0))
}

// Decode reads PKeyTableRecordLen bytes.
func (r *PKeyTableRecord) Decode(b []byte) error {
	if len(b) < PKeyTableRecordLen {
		return ErrShort
	}
	r.LID, r.Block, r.Port = ib.LID(be.Uint16(b)), be.Uint16(b[2:]), b[4]
	return r.Table.Decode(b[8:])
}

// VLArbRecord is IBTA 15.2.5.9.
type VLArbRecord struct {
	LID   ib.LID
	Port  uint8
	Block uint8
	Table VLArbBlock
}

// Components of VLArbRecord.
const (
	CompVLARLID CompMask = 1 << iota
	CompVLARPort
	CompVLARBlock
)

// Append appends VLArbRecordLen bytes.
func (r *VLArbRecord) Append(b []byte) []byte {
	b = be.AppendUint16(b, uint16(r.LID))
	b = append(b, r.Port, r.Block, 0, 0, 0, 0)
	return r.Table.Append(b)
}

// Decode reads VLArbRecordLen bytes.
func (r *VLArbRecord) Decode(b []byte) error {
	if len(b) < VLArbRecordLen {
		return ErrShort
	}
	r.LID, r.Port, r.Block = ib.LID(be.Uint16(b)), b[2], b[3]
	return r.Table.Decode(b[8:])
}

// Selector says how a requested MTU, rate or life time is meant (2 bits).
type Selector uint8

// The selectors.
const (
	SelGreater Selector = 0
	SelLess    Selector = 1
	SelExact   Selector = 2
	SelBest    Selector = 3
)

// PathRecord is IBTA 15.2.5.16.
type PathRecord struct {
	ServiceID   uint64
	DGID        ib.GID
	SGID        ib.GID
	DLID        ib.LID
	SLID        ib.LID
	RawTraffic  bool
	FlowLabel   uint32 // 20 bits
	HopLimit    uint8
	TClass      uint8
	Reversible  bool
	NumbPath    uint8 // 7 bits
	PKey        ib.PKey
	QoSClass    uint16 // 12 bits
	SL          ib.SL
	MTUSel      Selector
	MTU         ib.MTU
	RateSel     Selector
	Rate        ib.Rate
	LifeTimeSel Selector
	LifeTime    uint8 // 6 bits: 4.096 us * 2^n
	Preference  uint8
}

// Components of PathRecord.
const (
	CompPRServiceIDMSB CompMask = 1 << iota
	CompPRServiceIDLSB
	CompPRDGID
	CompPRSGID
	CompPRDLID
	CompPRSLID
	CompPRRawTraffic
	_
	CompPRFlowLabel
	CompPRHopLimit
	CompPRTClass
	CompPRReversible
	CompPRNumbPath
	CompPRPKey
	CompPRQoSClass
	CompPRSL
	CompPRMTUSel
	CompPRMTU
	CompPRRateSel
	CompPRRate
	CompPRLifeTimeSel
	CompPRLifeTime
	CompPRPreference

	CompPRServiceID = CompPRServiceIDMSB | CompPRServiceIDLSB
)

// Append appends PathRecordLen bytes.
func (r *PathRecord) Append(b []byte) []byte {
	b = be.AppendUint64(b, r.ServiceID)
	b = append(b, r.DGID[:]...)
	b = append(b, r.SGID[:]...)
	b = be.AppendUint16(b, uint16(r.DLID))
	b = be.AppendUint16(b, uint16(r.SLID))
	b = be.AppendUint32(b, uint32(bit(r.RawTraffic, 7))<<24|r.FlowLabel&0xfffff<<8|uint32(r.HopLimit))
	b = append(b, r.TClass, bit(r.Reversible, 7)|r.NumbPath&0x7f)
	b = be.AppendUint16(b, uint16(r.PKey))
	b = be.AppendUint16(b, r.QoSClass<<4|uint16(r.SL&0xf))
	return append(b, sel(r.MTUSel, uint8(r.MTU)), sel(r.RateSel, uint8(r.Rate)), sel(r.LifeTimeSel, r.LifeTime),
		r.Preference, 0, 0, 0, 0, 0, 0)
}

func sel(s Selector, v uint8) uint8 { return uint8(s)<<6 | v&0x3f }

// Decode reads PathRecordLen bytes.
func (r *PathRecord) Decode(b []byte) error {
	if len(b) < PathRecordLen {
		return ErrShort
	}
	b = b[:PathRecordLen]
	r.ServiceID = be.Uint64(b)
	r.DGID, r.SGID = ib.GID(b[8:24]), ib.GID(b[24:40])
	r.DLID, r.SLID = ib.LID(be.Uint16(b[40:])), ib.LID(be.Uint16(b[42:]))
	v := be.Uint32(b[44:])
	r.RawTraffic, r.FlowLabel, r.HopLimit = v>>31 != 0, v>>8&0xfffff, uint8(v)
	r.TClass, r.Reversible, r.NumbPath = b[48], b[49]&0x80 != 0, b[49]&0x7f
	r.PKey = ib.PKey(be.Uint16(b[50:]))
	q := be.Uint16(b[52:])
	r.QoSClass, r.SL = q>>4, ib.SL(q&0xf)
	r.MTUSel, r.MTU = Selector(b[54]>>6), ib.MTU(b[54]&0x3f)
	r.RateSel, r.Rate = Selector(b[55]>>6), ib.Rate(b[55]&0x3f)
	r.LifeTimeSel, r.LifeTime, r.Preference = Selector(b[56]>>6), b[56]&0x3f, b[57]
	return nil
}

// MultiPathMaxGIDs is how many GIDs of a MultiPathRecord fit into one MAD.
const MultiPathMaxGIDs = (SADataLen - MultiPathHeaderLen) / 16

// MultiPathRecord is the request of IBTA 15.2.5.20; the answers are
// PathRecords.
type MultiPathRecord struct {
	RawTraffic   bool
	FlowLabel    uint32
	HopLimit     uint8
	TClass       uint8
	Reversible   bool
	NumbPath     uint8
	PKey         ib.PKey
	QoSClass     uint16
	SL           ib.SL
	MTUSel       Selector
	MTU          ib.MTU
	RateSel      Selector
	Rate         ib.Rate
	LifeTimeSel  Selector
	LifeTime     uint8
	ServiceID    uint64
	Independence uint8 // 2 bits
	SGIDs, DGIDs []ib.GID
}

// Components of MultiPathRecord.
const (
	CompMPRRawTraffic CompMask = 1 << iota
	_
	CompMPRFlowLabel
	CompMPRHopLimit
	CompMPRTClass
	CompMPRReversible
	CompMPRNumbPath
	CompMPRPKey
	CompMPRQoSClass
	CompMPRSL
	CompMPRMTUSel
	CompMPRMTU
	CompMPRRateSel
	CompMPRRate
	CompMPRLifeTimeSel
	CompMPRLifeTime
	CompMPRServiceIDMSB
	CompMPRIndependence
	_
	CompMPRSGIDCount
	CompMPRDGIDCount
	CompMPRServiceIDLSB

	CompMPRServiceID = CompMPRServiceIDMSB | CompMPRServiceIDLSB
)

// Append appends the header and the GIDs, at most 255 of each kind.
func (r *MultiPathRecord) Append(b []byte) []byte {
	sg, dg := r.SGIDs[:min(len(r.SGIDs), 255)], r.DGIDs[:min(len(r.DGIDs), 255)]
	b = be.AppendUint32(b, uint32(bit(r.RawTraffic, 7))<<24|r.FlowLabel&0xfffff<<8|uint32(r.HopLimit))
	b = append(b, r.TClass, bit(r.Reversible, 7)|r.NumbPath&0x7f)
	b = be.AppendUint16(b, uint16(r.PKey))
	b = be.AppendUint16(b, r.QoSClass<<4|uint16(r.SL&0xf))
	b = append(b, sel(r.MTUSel, uint8(r.MTU)), sel(r.RateSel, uint8(r.Rate)), sel(r.LifeTimeSel, r.LifeTime),
		uint8(r.ServiceID>>56), r.Independence<<6, uint8(len(sg)), uint8(len(dg)))
	var sid [8]byte
	be.PutUint64(sid[:], r.ServiceID)
	b = append(b, sid[1:]...)
	for _, g := range sg {
		b = append(b, g[:]...)
	}
	for _, g := range dg {
		b = append(b, g[:]...)
	}
	return b
}

// Decode reads the header and the GIDs that it announces; at most 510 are
// allocated. It fails with ErrShort when b does not hold them.
func (r *MultiPathRecord) Decode(b []byte) error {
	if len(b) < MultiPathHeaderLen {
		return ErrShort
	}
	v := be.Uint32(b)
	r.RawTraffic, r.FlowLabel, r.HopLimit = v>>31 != 0, v>>8&0xfffff, uint8(v)
	r.TClass, r.Reversible, r.NumbPath = b[4], b[5]&0x80 != 0, b[5]&0x7f
	r.PKey = ib.PKey(be.Uint16(b[6:]))
	q := be.Uint16(b[8:])
	r.QoSClass, r.SL = q>>4, ib.SL(q&0xf)
	r.MTUSel, r.MTU = Selector(b[10]>>6), ib.MTU(b[10]&0x3f)
	r.RateSel, r.Rate = Selector(b[11]>>6), ib.Rate(b[11]&0x3f)
	r.LifeTimeSel, r.LifeTime = Selector(b[12]>>6), b[12]&0x3f
	r.ServiceID = uint64(b[13])<<56 | be.Uint64(b[16:])&(1<<56-1)
	r.Independence = b[14] >> 6
	ns, nd := int(b[15]), int(b[16])
	if len(b) < MultiPathHeaderLen+16*(ns+nd) {
		return ErrShort
	}
	r.SGIDs, r.DGIDs = make([]ib.GID, ns), make([]ib.GID, nd)
	b = b[MultiPathHeaderLen:]
	for i := range r.SGIDs {
		r.SGIDs[i] = ib.GID(b[16*i:])
	}
	b = b[16*ns:]
	for i := range r.DGIDs {
		r.DGIDs[i] = ib.GID(b[16*i:])
	}
	return nil
}

// Join states of MCMemberRecord, as bits.
const (
	JoinFull           uint8 = 1
	JoinNon            uint8 = 2
	JoinSendOnlyNon    uint8 = 4
	JoinSendOnlyFull   uint8 = 8
	ScopeLinkLocal     uint8 = 2
	ScopeSiteLocal     uint8 = 5
	ScopeOrgLocal      uint8 = 8
	ScopeGlobal        uint8 = 14
	JoinStateAll       uint8 = 0xf
	MCMemberRecordBare       = 52 // bytes without padding
)

// MCMemberRecord is IBTA 15.2.5.17.
type MCMemberRecord struct {
	MGID        ib.GID
	PortGID     ib.GID
	QKey        ib.QKey
	MLID        ib.LID
	MTUSel      Selector
	MTU         ib.MTU
	TClass      uint8
	PKey        ib.PKey
	RateSel     Selector
	Rate        ib.Rate
	LifeTimeSel Selector
	LifeTime    uint8
	SL          ib.SL
	FlowLabel   uint32 // 20 bits
	HopLimit    uint8
	Scope       uint8 // 4 bits
	JoinState   uint8 // 4 bits
	ProxyJoin   bool
}

// Components of MCMemberRecord.
const (
	CompMCMGID CompMask = 1 << iota
	CompMCPortGID
	CompMCQKey
	CompMCMLID
	CompMCMTUSel
	CompMCMTU
	CompMCTClass
	CompMCPKey
	CompMCRateSel
	CompMCRate
	CompMCLifeTimeSel
	CompMCLifeTime
	CompMCSL
	CompMCFlowLabel
	CompMCHopLimit
	CompMCScope
	CompMCJoinState
	CompMCProxyJoin
)

// Append appends MCMemberRecordLen bytes.
func (r *MCMemberRecord) Append(b []byte) []byte {
	b = append(b, r.MGID[:]...)
	b = append(b, r.PortGID[:]...)
	b = be.AppendUint32(b, uint32(r.QKey))
	b = be.AppendUint16(b, uint16(r.MLID))
	b = append(b, sel(r.MTUSel, uint8(r.MTU)), r.TClass)
	b = be.AppendUint16(b, uint16(r.PKey))
	b = append(b, sel(r.RateSel, uint8(r.Rate)), sel(r.LifeTimeSel, r.LifeTime))
	b = be.AppendUint32(b, uint32(r.SL&0xf)<<28|r.FlowLabel&0xfffff<<8|uint32(r.HopLimit))
	return append(b, r.Scope<<4|r.JoinState&0xf, bit(r.ProxyJoin, 7), 0, 0, 0, 0, 0, 0)
}

// Decode reads an MCMemberRecord without its padding.
func (r *MCMemberRecord) Decode(b []byte) error {
	if len(b) < MCMemberRecordBare {
		return ErrShort
	}
	r.MGID, r.PortGID = ib.GID(b[:16]), ib.GID(b[16:32])
	r.QKey = ib.QKey(be.Uint32(b[32:]))
	r.MLID = ib.LID(be.Uint16(b[36:]))
	r.MTUSel, r.MTU, r.TClass = Selector(b[38]>>6), ib.MTU(b[38]&0x3f), b[39]
	r.PKey = ib.PKey(be.Uint16(b[40:]))
	r.RateSel, r.Rate = Selector(b[42]>>6), ib.Rate(b[42]&0x3f)
	r.LifeTimeSel, r.LifeTime = Selector(b[43]>>6), b[43]&0x3f
	v := be.Uint32(b[44:])
	r.SL, r.FlowLabel, r.HopLimit = ib.SL(v>>28), v>>8&0xfffff, uint8(v)
	r.Scope, r.JoinState, r.ProxyJoin = b[48]>>4, b[48]&0xf, b[49]&0x80 != 0
	return nil
}

// ServiceRecord is IBTA 15.2.5.14. Data is the four arrays of 8-, 16-, 32- and
// 64-bit values as they stand on the wire, 16 bytes each.
type ServiceRecord struct {
	ServiceID uint64
	GID       ib.GID
	PKey      ib.PKey
	Lease     uint32 // seconds, 0xffffffff: for ever
	Key       [16]byte
	Name      [64]byte
	Data      [64]byte
}

// Components of ServiceRecord. CompSRData<<i is the i-th value of Data: 16 of
// 8 bits, 8 of 16, 4 of 32, 2 of 64.
const (
	CompSRServiceID CompMask = 1 << 0
	CompSRGID       CompMask = 1 << 1
	CompSRPKey      CompMask = 1 << 2
	CompSRLease     CompMask = 1 << 4
	CompSRKey       CompMask = 1 << 5
	CompSRName      CompMask = 1 << 6
	CompSRData      CompMask = 1 << 7
)

// LeaseForever is the lease of a service that never runs out.
const LeaseForever uint32 = 0xffffffff

// Append appends ServiceRecordLen bytes.
func (r *ServiceRecord) Append(b []byte) []byte {
	b = be.AppendUint64(b, r.ServiceID)
	b = append(b, r.GID[:]...)
	b = be.AppendUint32(b, uint32(r.PKey)<<16)
	b = be.AppendUint32(b, r.Lease)
	b = append(b, r.Key[:]...)
	b = append(b, r.Name[:]...)
	return append(b, r.Data[:]...)
}

// Decode reads ServiceRecordLen bytes.
func (r *ServiceRecord) Decode(b []byte) error {
	if len(b) < ServiceRecordLen {
		return ErrShort
	}
	r.ServiceID = be.Uint64(b)
	r.GID = ib.GID(b[8:24])
	r.PKey = ib.PKey(be.Uint16(b[24:]))
	r.Lease = be.Uint32(b[28:])
	r.Key = [16]byte(b[32:48])
	r.Name = [64]byte(b[48:112])
	r.Data = [64]byte(b[112:176])
	return nil
}

// InformInfoRecord is IBTA 15.2.5.12.
type InformInfoRecord struct {
	SubscriberGID ib.GID
	Enum          uint16
	Info          InformInfo
}

// Components of InformInfoRecord.
const (
	CompIIRSubscriberGID CompMask = 1 << 0
	CompIIREnum          CompMask = 1 << 1
	CompIIRGID           CompMask = 1 << 3
	CompIIRLIDBegin      CompMask = 1 << 4
	CompIIRLIDEnd        CompMask = 1 << 5
	CompIIRGeneric       CompMask = 1 << 7
	CompIIRSubscribe     CompMask = 1 << 8
	CompIIRType          CompMask = 1 << 9
	CompIIRTrapNumber    CompMask = 1 << 10
	CompIIRQPN           CompMask = 1 << 11
	CompIIRRespTime      CompMask = 1 << 13
	CompIIRProducer      CompMask = 1 << 15
)

// Append appends InformInfoRecordLen bytes.
func (r *InformInfoRecord) Append(b []byte) []byte {
	b = append(b, r.SubscriberGID[:]...)
	b = be.AppendUint64(b, uint64(r.Enum)<<48)
	b = r.Info.Append(b)
	return append(b, 0, 0, 0, 0)
}

// Decode reads an InformInfoRecord without its padding.
func (r *InformInfoRecord) Decode(b []byte) error {
	if len(b) < 24+InformInfoLen {
		return ErrShort
	}
	r.SubscriberGID = ib.GID(b[:16])
	r.Enum = be.Uint16(b[16:])
	return r.Info.Decode(b[24:])
}
