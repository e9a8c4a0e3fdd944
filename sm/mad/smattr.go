package mad

import (
	"bytes"

	"ibnetworkd/ib"
)

// NodeDescription is 64 bytes of text, padded with zeros (IBTA 14.2.5.2).
type NodeDescription [64]byte

// NewNodeDescription cuts s at 64 bytes.
func NewNodeDescription(s string) (d NodeDescription) {
	copy(d[:], s)
	return d
}

// String is the text up to the first zero byte, as ib.Printable has it.
func (d NodeDescription) String() string {
	b := d[:]
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return ib.Printable(string(b))
}

func (d *NodeDescription) Append(b []byte) []byte { return append(b, d[:]...) }

func (d *NodeDescription) Decode(b []byte) error {
	if len(b) < 64 {
		return ErrShort
	}
	*d = NodeDescription(b[:64])
	return nil
}

// NodeInfoLen is the wire length of NodeInfo.
const NodeInfoLen = 40

// NodeInfo describes a node and the port that was asked (IBTA 14.2.5.3).
type NodeInfo struct {
	BaseVersion     uint8
	ClassVersion    uint8
	NodeType        ib.NodeType
	NumPorts        uint8
	SystemImageGUID ib.GUID
	NodeGUID        ib.GUID
	PortGUID        ib.GUID
	PartitionCap    uint16 // entries in the P_Key table of each port
	DeviceID        uint16
	Revision        uint32
	LocalPortNum    uint8  // the port through which the request came
	VendorID        uint32 // 24 bits
}

func (n *NodeInfo) Append(b []byte) []byte {
	b = append(b, n.BaseVersion, n.ClassVersion, uint8(n.NodeType), n.NumPorts)
	b = be.AppendUint64(b, uint64(n.SystemImageGUID))
	b = be.AppendUint64(b, uint64(n.NodeGUID))
	b = be.AppendUint64(b, uint64(n.PortGUID))
	b = be.AppendUint16(b, n.PartitionCap)
	b = be.AppendUint16(b, n.DeviceID)
	b = be.AppendUint32(b, n.Revision)
	return be.AppendUint32(b, uint32(n.LocalPortNum)<<24|n.VendorID&0xffffff)
}

func (n *NodeInfo) Decode(b []byte) error {
	if len(b) < NodeInfoLen {
		return ErrShort
	}
	n.BaseVersion, n.ClassVersion, n.NodeType, n.NumPorts = b[0], b[1], ib.NodeType(b[2]), b[3]
	n.SystemImageGUID = ib.GUID(be.Uint64(b[4:]))
	n.NodeGUID = ib.GUID(be.Uint64(b[12:]))
	n.PortGUID = ib.GUID(be.Uint64(b[20:]))
	n.PartitionCap = be.Uint16(b[28:])
	n.DeviceID = be.Uint16(b[30:])
	n.Revision = be.Uint32(b[32:])
	n.LocalPortNum = b[36]
	n.VendorID = be.Uint32(b[36:]) & 0xffffff
	return nil
}

func bit(v bool, n uint) uint8 {
	if v {
		return 1 << n
	}
	return 0
}

// GUIDInfo is one block of eight GUIDs of a port (IBTA 14.2.5.5).
type GUIDInfo [8]ib.GUID

func (g *GUIDInfo) Append(b []byte) []byte {
	for _, v := range g {
		b = be.AppendUint64(b, uint64(v))
	}
	return b
}

func (g *GUIDInfo) Decode(b []byte) error {
	if len(b) < 64 {
		return ErrShort
	}
	for i := range g {
		g[i] = ib.GUID(be.Uint64(b[8*i:]))
	}
	return nil
}

// PKeyBlock is one block of a P_Key table (IBTA 14.2.5.7). The modifier is
// PKeyMod(switch port, block).
type PKeyBlock [32]ib.PKey

// PKeyMod is the modifier of P_KeyTable: the port counts on switches only.
func PKeyMod(port uint8, block uint16) uint32 { return uint32(port)<<16 | uint32(block) }

func (p *PKeyBlock) Append(b []byte) []byte {
	for _, v := range p {
		b = be.AppendUint16(b, uint16(v))
	}
	return b
}

func (p *PKeyBlock) Decode(b []byte) error {
	if len(b) < 64 {
		return ErrShort
	}
	for i := range p {
		p[i] = ib.PKey(be.Uint16(b[2*i:]))
	}
	return nil
}

// SLtoVLLen is the wire length of a SLtoVLMappingTable.
const SLtoVLLen = 8

// SLtoVL maps service levels to virtual lanes for one pair of ports (IBTA
// 14.2.5.8). The modifier is SLtoVLMod(in, out).
type SLtoVL [16]ib.VL

// SLtoVLMod is the modifier of SLtoVLMappingTable; it counts on switches only.
func SLtoVLMod(in, out uint8) uint32 { return uint32(in)<<8 | uint32(out) }

func (t *SLtoVL) Append(b []byte) []byte {
	for i := 0; i < 16; i += 2 {
		b = append(b, uint8(t[i])<<4|uint8(t[i+1])&0xf)
	}
	return b
}

func (t *SLtoVL) Decode(b []byte) error {
	if len(b) < SLtoVLLen {
		return ErrShort
	}
	for i := range 8 {
		t[2*i], t[2*i+1] = ib.VL(b[i]>>4), ib.VL(b[i]&0xf)
	}
	return nil
}

// VLArbEntry is a lane and its weight in units of 64 bytes.
type VLArbEntry struct {
	VL     ib.VL
	Weight uint8
}

// VLArbBlock is half of a VL arbitration table (IBTA 14.2.5.9). The modifier is
// VLArbMod(port, block) with block 1 and 2 for low, 3 and 4 for high priority.
type VLArbBlock [32]VLArbEntry

// VLArbMod is the modifier of VLArbitrationTable.
func VLArbMod(port uint8, block uint8) uint32 { return uint32(block)<<16 | uint32(port) }

func (t *VLArbBlock) Append(b []byte) []byte {
	for _, e := range t {
		b = append(b, uint8(e.VL)&0xf, e.Weight)
	}
	return b
}

func (t *VLArbBlock) Decode(b []byte) error {
	if len(b) < 64 {
		return ErrShort
	}
	for i := range t {
		t[i] = VLArbEntry{ib.VL(b[2*i] & 0xf), b[2*i+1]}
	}
	return nil
}

// LFTBlock is 64 entries of a linear forwarding table, a port for each LID;
// 255 drops (IBTA 14.2.5.10). The modifier is the block number, LID/64.
type LFTBlock [64]uint8

// LFTDrop is the entry of a LID that the switch does not forward.
const LFTDrop uint8 = 0xff

func (t *LFTBlock) Append(b []byte) []byte { return append(b, t[:]...) }

func (t *LFTBlock) Decode(b []byte) error {
	if len(b) < 64 {
		return ErrShort
	}
	*t = LFTBlock(b[:64])
	return nil
}

// MFTBlock is 32 entries of a multicast forwarding table: for each MLID a mask
// of 16 ports (IBTA 14.2.5.12). The modifier is MFTMod(position, block); bit i
// of an entry at position p is port 16*p+i.
type MFTBlock [32]uint16

// MFTMod is the modifier of MulticastForwardingTable: block (MLID-0xc000)/32 in
// the low 9 bits, position in the top 4.
func MFTMod(position uint8, block uint16) uint32 {
	return uint32(position)<<28 | uint32(block)&0x1ff
}

func (t *MFTBlock) Append(b []byte) []byte {
	for _, v := range t {
		b = be.AppendUint16(b, v)
	}
	return b
}

func (t *MFTBlock) Decode(b []byte) error {
	if len(b) < 64 {
		return ErrShort
	}
	for i := range t {
		t[i] = be.Uint16(b[2*i:])
	}
	return nil
}

// SMState is the state of a subnet manager (IBTA 14.2.5.13).
type SMState uint8

// The states.
const (
	SMNotActive   SMState = 0
	SMDiscovering SMState = 1
	SMStandby     SMState = 2
	SMMaster      SMState = 3
)

// String prints the state as sminfo does, without its prefix.
func (s SMState) String() string {
	return ib.Word(s, "reserved", "NotActive", "Discovering", "Standby", "Master")
}

// Attribute modifiers of a Set of SMInfo (IBTA 14.4.1).
const (
	SMInfoHandover    uint32 = 1
	SMInfoAcknowledge uint32 = 2
	SMInfoDisable     uint32 = 3
	SMInfoStandby     uint32 = 4
	SMInfoDiscover    uint32 = 5
)

// SMInfoLen is the wire length of SMInfo.
const SMInfoLen = 21

// SMInfo is how subnet managers see each other (IBTA 14.2.5.13).
type SMInfo struct {
	GUID     ib.GUID // of the port
	SMKey    uint64
	ActCount uint32
	Priority uint8 // 0 to 15
	State    SMState
}

func (s *SMInfo) Append(b []byte) []byte {
	b = be.AppendUint64(b, uint64(s.GUID))
	b = be.AppendUint64(b, s.SMKey)
	b = be.AppendUint32(b, s.ActCount)
	return append(b, s.Priority<<4|uint8(s.State)&0xf)
}

func (s *SMInfo) Decode(b []byte) error {
	if len(b) < SMInfoLen {
		return ErrShort
	}
	s.GUID = ib.GUID(be.Uint64(b))
	s.SMKey = be.Uint64(b[8:])
	s.ActCount = be.Uint32(b[16:])
	s.Priority, s.State = b[20]>>4, SMState(b[20]&0xf)
	return nil
}

// SMInfoProof is the part of the SMInfo attribute by which managers of this project
// know each other: a nonce in a question, what proves the SM_Key in an answer. The
// architecture reserves it; other managers send 0 and ignore what they receive.
func SMInfoProof(data *[64]byte) *[16]byte { return (*[16]byte)(data[24:40]) }

// SMInfoCopy is the part by which a standby of this project keeps a copy of what hosts
// registered with the master, reserved as well. A question has the version of the copy
// and a proof; an answer has the version of the original and for how many milliseconds
// nothing that is not copied is acknowledged. SMInfoProof covers them.
type SMInfoCopy struct {
	Version uint64
	Lease   uint32
	Proof   [16]byte // of a question; an answer has none, for its own is SMInfoProof
}

// PutSMInfoCopy writes it into an SMInfo attribute.
func PutSMInfoCopy(data *[64]byte, c SMInfoCopy) {
	be.PutUint64(data[40:], c.Version)
	copy(data[48:], c.Proof[:])
	if c.Proof == [16]byte{} {
		be.PutUint32(data[48:], c.Lease)
	}
}

// SMInfoCopyOf reads what PutSMInfoCopy wrote into a question or an answer.
func SMInfoCopyOf(data *[64]byte, question bool) SMInfoCopy {
	c := SMInfoCopy{Version: be.Uint64(data[40:])}
	if question {
		c.Proof = [16]byte(data[48:])
	} else {
		c.Lease = be.Uint32(data[48:])
	}
	return c
}
