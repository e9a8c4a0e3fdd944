package mad

import (
	"encoding/binary"
	"errors"
	"fmt"

	"ibnetworkd/ib"
)

// Size is the length in bytes of every MAD on the wire (IBTA 13.4.2).
const Size = 256

// Buf is one MAD in wire format.
type Buf = [Size]byte

// HeaderLen is the length of the common header (IBTA 13.4.3).
const HeaderLen = 24

// ErrShort means that a slice has fewer bytes than the type needs.
var ErrShort = errors.New("mad: fewer bytes than the layout needs")

var be = binary.BigEndian

// Class is a management class (IBTA 13.4.4).
type Class uint8

// The management classes.
const (
	ClassSubnLID   Class = 0x01 // subnet management, LID routed
	ClassSA        Class = 0x03 // subnet administration
	ClassPerf      Class = 0x04 // performance management
	ClassDevMgmt   Class = 0x06
	ClassVendor1   Class = 0x09 // first of the vendor range 0x09-0x0f, without OUI and RMPP
	ClassDevAdm    Class = 0x10
	ClassBIS       Class = 0x12
	ClassVendor2   Class = 0x30 // first of the vendor range 0x30-0x4f, with OUI and RMPP
	ClassVendor2Hi Class = 0x4f
	ClassSubnDR    Class = 0x81 // subnet management, directed route
)

// IsSMP reports whether MADs of the class travel on QP0.
func (c Class) IsSMP() bool { return c == ClassSubnLID || c == ClassSubnDR }

// IsVendor2 reports whether the class is of the vendor range with an OUI.
func (c Class) IsVendor2() bool { return c >= ClassVendor2 && c <= ClassVendor2Hi }

// HasRMPP reports whether MADs of the class carry an RMPP header (IBTA 13.6.2).
func (c Class) HasRMPP() bool {
	switch c {
	case ClassSA, ClassDevMgmt, ClassDevAdm, ClassBIS:
		return true
	}
	return c.IsVendor2()
}

// DataOffset is where the class's own data begins in a MAD, the number of bytes
// that every RMPP segment repeats (the kernel's ib_get_mad_data_offset).
func (c Class) DataOffset() int {
	switch {
	case c == ClassSA:
		return SADataOffset
	case c == ClassDevMgmt || c == ClassDevAdm || c == ClassBIS:
		return 64
	case c.IsVendor2():
		return 40
	}
	return HeaderLen
}

// Method is a management method; bit 0x80 marks a response (IBTA 13.4.5).
type Method uint8

// The methods.
const (
	MethodGet          Method = 0x01
	MethodSet          Method = 0x02
	MethodSend         Method = 0x03
	MethodTrap         Method = 0x05
	MethodReport       Method = 0x06
	MethodTrapRepress  Method = 0x07
	MethodGetTable     Method = 0x12
	MethodGetTrace     Method = 0x13
	MethodGetMulti     Method = 0x14
	MethodDelete       Method = 0x15
	MethodGetResp      Method = 0x81
	MethodReportResp   Method = 0x86
	MethodGetTableResp Method = 0x92
	MethodGetMultiResp Method = 0x94
	MethodDeleteResp   Method = 0x95

	MethodRespBit Method = 0x80
)

// IsResponse reports whether the method answers another MAD. TrapRepress has
// no response bit but ends a trap (IBTA 13.4.5), as the kernel treats it.
func (m Method) IsResponse() bool { return m&MethodRespBit != 0 || m == MethodTrapRepress }

var methodNames = map[Method]string{
	MethodGet: "Get", MethodSet: "Set", MethodSend: "Send", MethodTrap: "Trap", MethodReport: "Report",
	MethodTrapRepress: "TrapRepress", MethodGetTable: "GetTable", MethodGetTrace: "GetTraceTable",
	MethodGetMulti: "GetMulti", MethodDelete: "Delete", MethodGetResp: "GetResp", MethodReportResp: "ReportResp",
	MethodGetTableResp: "GetTableResp", MethodGetMultiResp: "GetMultiResp", MethodDeleteResp: "DeleteResp",
}

// String prints the method as the architecture names it.
func (m Method) String() string {
	if name, ok := methodNames[m]; ok {
		return name
	}
	return fmt.Sprintf("method 0x%02x", uint8(m))
}

// Status is the 16-bit status of a MAD: common bits in the low byte, bits of
// the class in the high one (IBTA 13.4.7). In a directed-route SMP bit 15 is
// the direction and not part of the status.
type Status uint16

// Common status values.
const (
	StatusOK            Status = 0x0000
	StatusBusy          Status = 0x0001
	StatusBadVersion    Status = 0x0004
	StatusBadMethod     Status = 0x0008 // method not supported
	StatusBadAttr       Status = 0x000c // method/attribute combination not supported
	StatusInvalidField  Status = 0x001c // value in attribute or modifier not valid
	StatusDirection     Status = 0x8000 // D bit of directed-route SMPs
	StatusSANoResources Status = 0x0100 // SA values: IBTA table 204
	StatusSAReqInvalid  Status = 0x0200
	StatusSANoRecords   Status = 0x0300
	StatusSATooMany     Status = 0x0400
	StatusSAInvalidGID  Status = 0x0500
	StatusSAInsufComps  Status = 0x0600
	StatusSADenied      Status = 0x0700
)

// AttrID is an attribute identifier; its meaning depends on the class.
type AttrID uint16

// Attributes of every class.
const (
	AttrClassPortInfo AttrID = 0x0001
	AttrNotice        AttrID = 0x0002
	AttrInformInfo    AttrID = 0x0003
)

// Attributes of subnet management (IBTA 14.2.5).
const (
	AttrNodeDescription AttrID = 0x0010
	AttrNodeInfo        AttrID = 0x0011
	AttrSwitchInfo      AttrID = 0x0012
	AttrGUIDInfo        AttrID = 0x0014
	AttrPortInfo        AttrID = 0x0015
	AttrPKeyTable       AttrID = 0x0016
	AttrSLtoVL          AttrID = 0x0017
	AttrVLArb           AttrID = 0x0018
	AttrSwitchPortState AttrID = 0x0034
	AttrLFT             AttrID = 0x0019
	AttrRFT             AttrID = 0x001a
	AttrMFT             AttrID = 0x001b
	AttrSMInfo          AttrID = 0x0020
	AttrVendorDiag      AttrID = 0x0030
	AttrLedInfo         AttrID = 0x0031
	AttrMlnxExtPortInfo AttrID = 0xff90
)

// Attributes of subnet administration (IBTA 15.2.5).
const (
	AttrNodeRecord         AttrID = 0x0011
	AttrPortInfoRecord     AttrID = 0x0012
	AttrSLtoVLRecord       AttrID = 0x0013
	AttrSwitchInfoRecord   AttrID = 0x0014
	AttrLFTRecord          AttrID = 0x0015
	AttrRFTRecord          AttrID = 0x0016
	AttrMFTRecord          AttrID = 0x0017
	AttrSMInfoRecord       AttrID = 0x0018
	AttrLinkRecord         AttrID = 0x0020
	AttrGUIDInfoRecord     AttrID = 0x0030
	AttrServiceRecord      AttrID = 0x0031
	AttrPKeyTableRecord    AttrID = 0x0033
	AttrPathRecord         AttrID = 0x0035
	AttrVLArbRecord        AttrID = 0x0036
	AttrMCMemberRecord     AttrID = 0x0038
	AttrTraceRecord        AttrID = 0x0039
	AttrMultiPathRecord    AttrID = 0x003a
	AttrServiceAssocRecord AttrID = 0x003b
	AttrInformInfoRecord   AttrID = 0x00f3
	// AttrPathLevelsRecord is of this manager alone, for its standbys.
	AttrPathLevelsRecord AttrID = 0xff10
)

// Attributes of performance management (IBTA 16.1.3).
const (
	AttrPortSamplesControl AttrID = 0x0010
	AttrPortCounters       AttrID = 0x0012
	AttrPortCountersExt    AttrID = 0x001d
)

var smpAttrNames = map[AttrID]string{
	AttrClassPortInfo: "ClassPortInfo", AttrNotice: "Notice", AttrInformInfo: "InformInfo",
	AttrNodeDescription: "NodeDescription", AttrNodeInfo: "NodeInfo", AttrSwitchInfo: "SwitchInfo",
	AttrGUIDInfo: "GUIDInfo", AttrPortInfo: "PortInfo", AttrPKeyTable: "P_KeyTable",
	AttrSLtoVL: "SLtoVLMappingTable", AttrVLArb: "VLArbitrationTable", AttrLFT: "LinearForwardingTable",
	AttrRFT: "RandomForwardingTable", AttrMFT: "MulticastForwardingTable", AttrSMInfo: "SMInfo",
	AttrSwitchPortState: "SwitchPortStateTable", AttrVendorDiag: "VendorDiag", AttrLedInfo: "LedInfo", AttrMlnxExtPortInfo: "MlnxExtPortInfo",
}

var saAttrNames = map[AttrID]string{
	AttrClassPortInfo: "ClassPortInfo", AttrNotice: "Notice", AttrInformInfo: "InformInfo",
	AttrNodeRecord: "NodeRecord", AttrPortInfoRecord: "PortInfoRecord", AttrSLtoVLRecord: "SLtoVLMappingTableRecord",
	AttrSwitchInfoRecord: "SwitchInfoRecord", AttrLFTRecord: "LinearForwardingTableRecord",
	AttrRFTRecord: "RandomForwardingTableRecord", AttrMFTRecord: "MulticastForwardingTableRecord",
	AttrSMInfoRecord: "SMInfoRecord", AttrLinkRecord: "LinkRecord", AttrGUIDInfoRecord: "GUIDInfoRecord",
	AttrServiceRecord: "ServiceRecord", AttrPKeyTableRecord: "P_KeyTableRecord", AttrPathRecord: "PathRecord",
	AttrVLArbRecord: "VLArbitrationTableRecord", AttrMCMemberRecord: "MCMemberRecord", AttrTraceRecord: "TraceRecord",
	AttrMultiPathRecord: "MultiPathRecord", AttrServiceAssocRecord: "ServiceAssociationRecord",
	AttrInformInfoRecord: "InformInfoRecord", AttrPathLevelsRecord: "PathLevelsRecord",
}

// AttrName is the architecture's name of an attribute of a class, or its
// number.
func AttrName(c Class, a AttrID) string {
	names := smpAttrNames
	if c == ClassSA {
		names = saAttrNames
	}
	if c.IsSMP() || c == ClassSA {
		if n, ok := names[a]; ok {
			return n
		}
	}
	return fmt.Sprintf("0x%04x", uint16(a))
}

// QP numbers and keys of the management interfaces.
const (
	BaseVer    uint8 = 1
	SMPClassV  uint8 = 1
	SAClassV   uint8 = 2
	PerfClassV uint8 = 1
)

// Header is the common header (IBTA 13.4.3). For directed-route SMPs the top bit
// of Status is the D bit, and HopPtr and HopCount are the two bytes that other
// classes reserve or use for themselves.
type Header struct {
	BaseVersion  uint8
	Class        Class
	ClassVersion uint8
	Method       Method
	Status       Status
	HopPtr       uint8
	HopCount     uint8
	TID          uint64 // only the low 32 bits of a request belong to its sender
	Attr         AttrID
	Mod          uint32
}

// Decode reads the header of b.
func (h *Header) Decode(b *Buf) {
	h.BaseVersion = b[0]
	h.Class = Class(b[1])
	h.ClassVersion = b[2]
	h.Method = Method(b[3])
	h.Status = Status(be.Uint16(b[4:]))
	h.HopPtr = b[6]
	h.HopCount = b[7]
	h.TID = be.Uint64(b[8:])
	h.Attr = AttrID(be.Uint16(b[16:]))
	h.Mod = be.Uint32(b[20:])
}

// Put writes the header into b and leaves the rest of b as it is.
func (h *Header) Put(b *Buf) {
	b[0] = h.BaseVersion
	b[1] = uint8(h.Class)
	b[2] = h.ClassVersion
	b[3] = uint8(h.Method)
	be.PutUint16(b[4:], uint16(h.Status))
	b[6] = h.HopPtr
	b[7] = h.HopCount
	be.PutUint64(b[8:], h.TID)
	be.PutUint16(b[16:], uint16(h.Attr))
	b[18], b[19] = 0, 0
	be.PutUint32(b[20:], h.Mod)
}

// ClassOf, MethodOf, AttrOf, StatusOf, ModOf and TIDOf read one field of a MAD
// without decoding the rest.
func ClassOf(b *Buf) Class { return Class(b[1]) }

// MethodOf is the method of b.
func MethodOf(b *Buf) Method { return Method(b[3]) }

// StatusOf is the status of b, without the direction bit of a directed route.
func StatusOf(b *Buf) Status {
	s := Status(be.Uint16(b[4:]))
	if Class(b[1]) == ClassSubnDR {
		s &^= StatusDirection
	}
	return s
}

// AttrOf is the attribute of b.
func AttrOf(b *Buf) AttrID { return AttrID(be.Uint16(b[16:])) }

// ModOf is the attribute modifier of b.
func ModOf(b *Buf) uint32 { return be.Uint32(b[20:]) }

// TIDOf is the transaction identifier of b.
func TIDOf(b *Buf) uint64 { return be.Uint64(b[8:]) }

// HopCount is the number of hops of a directed route.
func HopCount(b *Buf) uint8 { return b[7] }

// SetTID overwrites the transaction identifier of b.
func SetTID(b *Buf, tid uint64) { be.PutUint64(b[8:], tid) }

// SetMethod overwrites the method of b.
func SetMethod(b *Buf, m Method) { b[3] = uint8(m) }

// SetAnswer makes the SMP b an answer to itself: another method, and on a
// directed route the direction bit.
func SetAnswer(b *Buf, m Method) {
	b[3] = uint8(m)
	if ClassOf(b) == ClassSubnDR {
		b[4] |= uint8(StatusDirection >> 8)
	}
}

// CopyTID writes the transaction identifier of from into a message of at least
// HeaderLen bytes.
func CopyTID(msg []byte, from *Buf) { copy(msg[8:16], from[8:16]) }

// SetStatus overwrites the status of b; for a directed route the caller adds
// StatusDirection where it belongs.
func SetStatus(b *Buf, s Status) { be.PutUint16(b[4:], uint16(s)) }

// MaxHops is the longest directed route: entries 1 to 63 of a path, entry 0 is
// reserved (IBTA 14.2.2).
const MaxHops = 63

// SMPDataOffset is where an SMP's 64 bytes of attribute data begin.
const SMPDataOffset = 64

// SMP is a subnet management packet, LID routed or by directed route (IBTA
// 14.2.1). The fields after Data exist on the directed route only.
type SMP struct {
	Header
	MKey    ib.MKey
	DrSLID  ib.LID
	DrDLID  ib.LID
	Data    [64]byte
	Initial [64]byte // ports out, entries 1..HopCount
	Return  [64]byte // ports back, entries 1..HopCount
}

// Decode reads b.
func (s *SMP) Decode(b *Buf) {
	s.Header.Decode(b)
	s.MKey = ib.MKey(be.Uint64(b[24:]))
	s.DrSLID = ib.LID(be.Uint16(b[32:]))
	s.DrDLID = ib.LID(be.Uint16(b[34:]))
	s.Data = [64]byte(b[64:128])
	s.Initial = [64]byte(b[128:192])
	s.Return = [64]byte(b[192:256])
}

// Put writes all of b.
func (s *SMP) Put(b *Buf) {
	s.Header.Put(b)
	be.PutUint64(b[24:], uint64(s.MKey))
	be.PutUint16(b[32:], uint16(s.DrSLID))
	be.PutUint16(b[34:], uint16(s.DrDLID))
	clear(b[36:64])
	copy(b[64:128], s.Data[:])
	copy(b[128:192], s.Initial[:])
	copy(b[192:256], s.Return[:])
}

// Path is the directed route of s, without entry 0; it aliases s.
func (s *SMP) Path() []uint8 {
	n := min(int(s.HopCount), MaxHops)
	return s.Initial[1 : 1+n]
}

// PutDR writes a whole directed-route request into b: the fast way for a
// pipeline that sends many. data may be nil or up to 64 bytes. path must have
// at most MaxHops entries, more are cut.
func PutDR(b *Buf, m Method, a AttrID, mod uint32, tid uint64, key ib.MKey, path []uint8, data []byte) {
	*b = Buf{0: BaseVer, 1: uint8(ClassSubnDR), 2: SMPClassV, 3: uint8(m)}
	path = path[:min(len(path), MaxHops)]
	b[7] = uint8(len(path))
	be.PutUint64(b[8:], tid)
	be.PutUint16(b[16:], uint16(a))
	be.PutUint32(b[20:], mod)
	be.PutUint64(b[24:], uint64(key))
	be.PutUint32(b[32:], 0xffffffff)
	copy(b[64:128], data)
	copy(b[129:], path)
}

// PutLR writes a whole LID-routed request into b.
func PutLR(b *Buf, m Method, a AttrID, mod uint32, tid uint64, key ib.MKey, data []byte) {
	*b = Buf{0: BaseVer, 1: uint8(ClassSubnLID), 2: SMPClassV, 3: uint8(m)}
	be.PutUint64(b[8:], tid)
	be.PutUint16(b[16:], uint16(a))
	be.PutUint32(b[20:], mod)
	be.PutUint64(b[24:], uint64(key))
	copy(b[64:128], data)
}

// SetMKey overwrites the M_Key of the SMP b.
func SetMKey(b *Buf, k ib.MKey) { be.PutUint64(b[24:], uint64(k)) }

// MKeyOf is the M_Key of the SMP b.
func MKeyOf(b *Buf) ib.MKey { return ib.MKey(be.Uint64(b[24:])) }

// SMPData is the 64 bytes of attribute data of the SMP b.
func SMPData(b *Buf) *[64]byte { return (*[64]byte)(b[64:128]) }
