// Package wire is a cable between a port of a simulated subnet and a port of a
// kernel with the software fabric module (lab/swib/wire.c is the other end):
// packets travel as Ethernet frames over a connection that keeps their bounds
// and their order, such as a pair of datagram sockets.
//
// Each end says hello five times a second, with a random epoch of its life and
// whether its port is plugged in; the link is up when both ends are. Packets of
// an earlier life of either end do not get through.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"ibnetworkd/ib"
)

// Sizes in bytes.
const (
	// MaxFrame is the longest frame, without its Ethernet header; any datagram fits,
	// and messages of connections take several.
	MaxFrame = 9000
	// MaxPacket is the longest packet, put together.
	MaxPacket = 128 << 10
	etherLen  = 14
	headerLen = 100
)

const (
	proto   = 0x88b5 // IEEE 802 local experimental
	magic   = 0x73776962
	version = 1
)

type kind uint8

const (
	hello kind = 1
	data  kind = 2
	bye   kind = 3
)

// Flags of a frame; up is a hello's: the port is plugged in.
const (
	flagUp = 1 << iota
	flagRC
	flagAck
	flagGRH
	flagImm
	flagSolicited
)

// Packet is an InfiniBand packet on a cable.
type Packet struct {
	RC, Ack    bool // of a reliable connection; its acknowledgement
	HasGRH     bool
	HasImm     bool
	Solicited  bool
	SLID, DLID ib.LID
	PKey       ib.PKey
	SL         ib.SL
	Hops       uint8
	DQPN, SQPN uint32
	QKey       ib.QKey
	Imm, PSN   uint32
	AckStatus  uint8
	GRH        [40]byte
	Data       []byte
}

type header struct {
	kind        kind
	flags       uint16
	epoch, peer uint32 // of the sender; of the receiver, as the sender knows it
	off, total  uint32 // of a packet's data
	p           Packet // without Data
}

var errFrame = errors.New("no frame of a fabric cable")

// decode reads a frame; rest is its part of a packet's data, inside b.
func decode(b []byte) (h header, rest []byte, err error) {
	if len(b) < etherLen+headerLen || binary.BigEndian.Uint16(b[12:]) != proto {
		return h, nil, errFrame
	}
	b = b[etherLen:]
	be := binary.BigEndian
	if be.Uint32(b) != magic || b[4] != version {
		return h, nil, errFrame
	}
	h = header{kind: kind(b[5]), flags: be.Uint16(b[6:]), epoch: be.Uint32(b[8:]), peer: be.Uint32(b[12:]), off: be.Uint32(b[16:]),
		total: be.Uint32(b[20:])}
	if h.total > MaxPacket {
		return h, nil, fmt.Errorf("a packet of %d bytes is longer than %d", h.total, MaxPacket)
	}
	h.p = Packet{
		RC: h.flags&flagRC != 0, Ack: h.flags&flagAck != 0, HasGRH: h.flags&flagGRH != 0, HasImm: h.flags&flagImm != 0,
		Solicited: h.flags&flagSolicited != 0,
		SLID:      ib.LID(be.Uint16(b[24:])), DLID: ib.LID(be.Uint16(b[26:])), PKey: ib.PKey(be.Uint16(b[28:])), SL: ib.SL(b[30] & 15),
		Hops: b[31],
		DQPN: be.Uint32(b[32:]), SQPN: be.Uint32(b[36:]), QKey: ib.QKey(be.Uint32(b[40:])), Imm: be.Uint32(b[44:]),
		PSN: be.Uint32(b[48:]), AckStatus: b[52],
	}
	copy(h.p.GRH[:], b[60:])
	return h, b[headerLen:], nil
}

// append writes the frame with one part of the data behind it.
func (h *header) append(b, part []byte) []byte {
	be := binary.BigEndian
	b = append(b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 2)
	b = be.AppendUint16(b, proto)
	b = be.AppendUint32(b, magic)
	b = append(b, version, byte(h.kind))
	p := &h.p
	f := h.flags
	for i, on := range []bool{p.RC, p.Ack, p.HasGRH, p.HasImm, p.Solicited} {
		if on {
			f |= flagRC << i
		}
	}
	b = be.AppendUint16(b, f)
	b = be.AppendUint32(b, h.epoch)
	b = be.AppendUint32(b, h.peer)
	b = be.AppendUint32(b, h.off)
	b = be.AppendUint32(b, h.total)
	b = be.AppendUint16(b, uint16(p.SLID))
	b = be.AppendUint16(b, uint16(p.DLID))
	b = be.AppendUint16(b, uint16(p.PKey))
	b = append(b, byte(p.SL), p.Hops)
	b = be.AppendUint32(b, p.DQPN)
	b = be.AppendUint32(b, p.SQPN)
	b = be.AppendUint32(b, uint32(p.QKey))
	b = be.AppendUint32(b, p.Imm)
	b = be.AppendUint32(b, p.PSN)
	b = append(b, p.AckStatus, 0, 0, 0, 0, 0, 0, 0)
	b = append(b, p.GRH[:]...)
	return append(b, part...)
}

func (h header) frames(p *Packet) (out [][]byte) {
	h.kind, h.p, h.total = data, *p, uint32(len(p.Data))
	h.p.Data = nil
	for {
		n := min(len(p.Data)-int(h.off), MaxFrame-headerLen)
		part := p.Data[h.off:][:n]
		out = append(out, h.append(make([]byte, 0, etherLen+headerLen+n), part))
		h.off += uint32(n)
		if int(h.off) >= len(p.Data) {
			return out
		}
	}
}

// joiner puts packets together.
type joiner struct {
	part *Packet
	want int
}

// add takes one frame and returns a packet when it was the last of one.
func (j *joiner) add(h *header, part []byte) *Packet {
	if h.off == 0 {
		p := h.p
		p.Data = make([]byte, 0, h.total)
		j.part, j.want = &p, int(h.total)
	}
	if j.part == nil || int(h.off) != len(j.part.Data) {
		return nil
	}
	// A frame may have been padded to the length of the shortest.
	j.part.Data = append(j.part.Data, part[:min(len(part), j.want-len(j.part.Data))]...)
	if len(j.part.Data) < j.want {
		return nil
	}
	p := j.part
	j.part = nil
	return p
}

// Bye is the frame by which an end reports that it is gone, for a caller that
// unplugs it.
func Bye() []byte {
	h := header{kind: bye}
	return h.append(nil, nil)
}
