package mad

import "ibnetworkd/ib"

// SADataOffset is where the data of an SA MAD begins, SADataLen the data of one MAD
// in bytes (IBTA 15.2.1).
const (
	SADataOffset = 56
	SADataLen    = Size - SADataOffset
)

// CompMask is the set of components of a record that a request means.
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

// Wire lengths of the records in a table, rounded up to units of eight bytes. A
// single record's layout can be shorter.
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
	PathLevelsRecordLen = 80
	MultiPathHeaderLen  = 24 // and 16 for each GID
)

// LIDOfRecord is the LID that all records of ports, nodes and switches begin with.
func LIDOfRecord(b []byte) ib.LID { return ib.LID(be.Uint16(b)) }

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

// PIROptionFull is the bit of PortInfoRecord:Options that asks for the whole PortInfo.
const PIROptionFull uint8 = 0x80

// PortInfoRecord is IBTA 15.2.5.3.
type PortInfoRecord struct {
	LID     ib.LID
	Port    uint8
	Options uint8
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

func (r *SLtoVLRecord) Append(b []byte) []byte {
	b = be.AppendUint16(b, uint16(r.LID))
	b = append(b, r.InPort, r.OutPort, 0, 0, 0, 0)
	return r.Table.Append(b)
}

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

func (r *SwitchInfoRecord) Append(b []byte) []byte {
	return r.Info.Append(be.AppendUint32(b, uint32(r.LID)<<16))
}

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

func (r *LFTRecord) Append(b []byte) []byte {
	b = be.AppendUint32(b, uint32(r.LID)<<16|uint32(r.Block))
	return r.Table.Append(append(b, 0, 0, 0, 0))
}

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

func (r *MFTRecord) Append(b []byte) []byte {
	b = be.AppendUint32(b, uint32(r.LID)<<16|uint32(r.Position&0xf)<<12|uint32(r.Block&0x1ff))
	return r.Table.Append(append(b, 0, 0, 0, 0))
}

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
	CompSMIRActCount CompMask = 1 << 4
	CompSMIRPriority CompMask = 1 << 5
	CompSMIRState    CompMask = 1 << 6
)

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

func (r *GUIDInfoRecord) Append(b []byte) []byte {
	b = be.AppendUint16(b, uint16(r.LID))
	b = append(b, r.Block, 0, 0, 0, 0, 0)
	return r.Info.Append(b)
}

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

func (r *PKeyTableRecord) Append(b []byte) []byte {
	b = be.AppendUint32(b, uint32(r.LID)<<16|uint32(r.Block))
	return r.Table.Append(append(b, r.Port, 0, 0, 0))
}

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

func (r *VLArbRecord) Append(b []byte) []byte {
	b = be.AppendUint16(b, uint16(r.LID))
	b = append(b, r.Port, r.Block, 0, 0, 0, 0)
	return r.Table.Append(b)
}

func (r *VLArbRecord) Decode(b []byte) error {
	if len(b) < VLArbRecordLen {
		return ErrShort
	}
	r.LID, r.Port, r.Block = ib.LID(be.Uint16(b)), b[2], b[3]
	return r.Table.Decode(b[8:])
}
