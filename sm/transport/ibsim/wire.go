package ibsim

import (
	"encoding/binary"
	"errors"

	"ibnetworkd/ib"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// The simulator's two packets (its include/ibsim.h: struct sim_ctl and struct
// sim_request). Control packets are in host byte order, the data packet is
// big-endian.
const (
	ctlLen   = 80
	ctlMagic = 0xdeadbeef
	ctlData  = 16
	DataLen  = 288 // data packet: 32 bytes and a MAD
)

// Types of control packets.
const (
	CtlError       uint32 = 0
	CtlConnect     uint32 = 1
	CtlDisconnect  uint32 = 2
	CtlGetPort     uint32 = 3
	CtlGetVendor   uint32 = 4
	CtlGetGID      uint32 = 5
	CtlGetGUID     uint32 = 6
	CtlGetNodeInfo uint32 = 7
	CtlGetPortInfo uint32 = 8
	CtlSetIsSM     uint32 = 9
	CtlGetPKeys    uint32 = 10
)

// Ctl is a control packet.
type Ctl struct {
	Client uint32
	Type   uint32
	Data   [64]byte
	Len    uint32
}

var ne = binary.NativeEndian

// Append appends the packet.
func (c *Ctl) Append(b []byte) []byte {
	b = ne.AppendUint32(b, ctlMagic)
	b = ne.AppendUint32(b, c.Client)
	b = ne.AppendUint32(b, c.Type)
	b = ne.AppendUint32(b, c.Len)
	return append(b, c.Data[:]...)
}

var errCtl = errors.New("not a control packet of ibsim")

// Decode reads a packet; other lengths and magic numbers are refused.
func (c *Ctl) Decode(b []byte) error {
	if len(b) != ctlLen || ne.Uint32(b) != ctlMagic {
		return errCtl
	}
	c.Client, c.Type, c.Len = ne.Uint32(b[4:]), ne.Uint32(b[8:]), ne.Uint32(b[12:])
	c.Data = [64]byte(b[ctlData:])
	return nil
}

// ClientInfo is the data of a connect request and its reply.
type ClientInfo struct {
	ID   uint32 // request: names the client's socket; reply: the slot
	QP   uint32
	IsSM uint32
	Node string // at most 31 bytes
}

// Put writes the info into a control packet.
func (i *ClientInfo) Put(c *Ctl) {
	c.Data = [64]byte{}
	ne.PutUint32(c.Data[0:], i.ID)
	ne.PutUint32(c.Data[4:], i.QP)
	ne.PutUint32(c.Data[8:], i.IsSM)
	copy(c.Data[12:43], i.Node)
	c.Len = 44
}

// Get reads the info of a control packet.
func (i *ClientInfo) Get(c *Ctl) {
	i.ID, i.QP, i.IsSM = ne.Uint32(c.Data[0:]), ne.Uint32(c.Data[4:]), ne.Uint32(c.Data[8:])
	n := c.Data[12:44]
	for k, v := range n {
		if v == 0 {
			n = n[:k]
			break
		}
	}
	i.Node = string(n)
}

// Data is a data packet.
type Data struct {
	DLID, SLID ib.LID
	DQP, SQP   uint32
	Status     uint32 // 110 (ETIMEDOUT): the MAD could not be delivered
	MAD        mad.Buf
}

var errData = errors.New("not a data packet of ibsim")

// Put writes the packet.
func (d *Data) Put(b *[DataLen]byte) {
	clear(b[:32])
	be := binary.BigEndian
	be.PutUint16(b[0:], uint16(d.DLID))
	be.PutUint16(b[4:], uint16(d.SLID))
	be.PutUint32(b[8:], d.DQP)
	be.PutUint32(b[12:], d.SQP)
	be.PutUint32(b[16:], d.Status)
	be.PutUint64(b[24:], mad.Size)
	copy(b[32:], d.MAD[:])
}

// Decode reads a packet of exactly DataLen bytes.
func (d *Data) Decode(b []byte) error {
	if len(b) != DataLen {
		return errData
	}
	be := binary.BigEndian
	d.DLID, d.SLID = ib.LID(be.Uint16(b[0:])), ib.LID(be.Uint16(b[4:]))
	d.DQP, d.SQP = be.Uint32(b[8:]), be.Uint32(b[12:])
	d.Status = be.Uint32(b[16:])
	d.MAD = mad.Buf(b[32:])
	return nil
}

// packet is d as the receiver sees it.
func (d *Data) packet() (p transport.Packet) {
	p.LID, p.QPN, p.MAD = d.SLID, d.SQP, d.MAD
	if mad.ClassOf(&p.MAD) == mad.ClassSubnDR {
		p.LID = ib.LIDPermissive
	}
	return p
}
