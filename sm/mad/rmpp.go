package mad

import (
	"errors"
	"fmt"
)

// RMPPOffset is the offset of the RMPP header in a MAD, RMPPDataOffset that of
// what it counts as data: the class header after it belongs to the data
// (IBTA 13.6.2.1).
const (
	RMPPOffset     = 24
	RMPPDataOffset = 36
	rmppPayload    = Size - RMPPDataOffset // 220
)

// Types of RMPP packets.
const (
	RMPPData  uint8 = 1
	RMPPAck   uint8 = 2
	RMPPStop  uint8 = 3
	RMPPAbort uint8 = 4
)

// Flags of RMPP packets.
const (
	RMPPActive uint8 = 1
	RMPPFirst  uint8 = 2
	RMPPLast   uint8 = 4
)

// RespTimeNone in an RMPP header means that no response time is given.
const RespTimeNone uint8 = 0x1f

// RMPPStatus is the status of Stop and Abort packets (IBTA table 178).
type RMPPStatus uint8

// The status values.
const (
	RMPPNormal        RMPPStatus = 0
	RMPPResources     RMPPStatus = 1   // Stop: resources exhausted
	RMPPBadLast       RMPPStatus = 119 // inconsistent Last flag and payload length
	RMPPBadFirst      RMPPStatus = 120 // inconsistent First flag and segment number
	RMPPBadType       RMPPStatus = 121
	RMPPWindowSmall   RMPPStatus = 122 // NewWindowLast too small
	RMPPSegTooBig     RMPPStatus = 123 // segment number too big
	RMPPIllegalStatus RMPPStatus = 124
	RMPPBadVersion    RMPPStatus = 125
	RMPPTooManyTries  RMPPStatus = 126
)

// RMPPHeader is the header of IBTA 13.6.2.1. A MAD with no RMPPActive flag is a
// whole message.
type RMPPHeader struct {
	Version  uint8
	Type     uint8
	RespTime uint8 // 5 bits
	Flags    uint8 // 3 bits
	Status   RMPPStatus
	Segment  uint32 // Data and Ack: segment number; else reserved
	Length   uint32 // Data: payload length; Ack: last segment of the new window
}

// DecodeRMPP reads the RMPP header of b.
func DecodeRMPP(b *Buf) (h RMPPHeader) {
	h.decode(b)
	return h
}

func (h *RMPPHeader) decode(b *Buf) {
	h.Version, h.Type = b[24], b[25]
	h.RespTime, h.Flags = b[26]>>3, b[26]&7
	h.Status = RMPPStatus(b[27])
	h.Segment, h.Length = be.Uint32(b[28:]), be.Uint32(b[32:])
}

// Put writes the RMPP header into b.
func (h *RMPPHeader) Put(b *Buf) {
	b[24], b[25], b[26], b[27] = h.Version, h.Type, h.RespTime<<3|h.Flags&7, uint8(h.Status)
	be.PutUint32(b[28:], h.Segment)
	be.PutUint32(b[32:], h.Length)
}

// IsRMPP reports whether b is a packet of a segmented message: its class has
// RMPP and its Active flag is set.
func IsRMPP(b *Buf) bool { return Class(b[1]).HasRMPP() && b[26]&RMPPActive != 0 }

// Errors of the RMPP machines. A peer's Stop or Abort is a *RMPPError.
var (
	ErrRMPPTries = errors.New("mad: the peer acknowledged nothing")
)

// RMPPError is how a transfer ended early.
type RMPPError struct {
	Type   uint8 // RMPPStop or RMPPAbort
	Status RMPPStatus
	Peer   bool // the peer ended it
}

// Error returns what ended the transfer.
func (e *RMPPError) Error() string {
	what, who := "Abort", "here"
	if e.Type == RMPPStop {
		what = "Stop"
	}
	if e.Peer {
		who = "by the peer"
	}
	return fmt.Sprintf("mad: RMPP %s %s, status %d", what, who, e.Status)
}

// rmppReply makes an Ack, Stop or Abort in answer to the packet b: the header
// of the class is repeated and the response bit follows the direction.
func rmppReply(b *Buf, typ uint8, st RMPPStatus, seg, win uint32) (r Buf) {
	copy(r[:], b[:Class(b[1]).DataOffset()])
	r[3] ^= uint8(MethodRespBit)
	h := RMPPHeader{Version: 1, Type: typ, RespTime: RespTimeNone, Flags: RMPPActive, Status: st, Segment: seg, Length: win}
	h.Put(&r)
	return r
}

// MaxMessage is the length in bytes of the longest message that is sent or
// received: enough for the NodeRecords, LinkRecords or PortInfoRecords of a subnet
// that fills the LID space, and the PathRecords from one port to all of it.
const MaxMessage = 32 << 20

// Segments is the number of MADs that a message of n bytes (from the first byte
// of the common header) of the class takes, at least 1.
func Segments(c Class, n int) int {
	off := c.DataOffset()
	per := Size - off
	return max(1, (n-off+per-1)/per)
}

// segment writes segment seg (from 1) of msg into dst, as the kernel's
// send_next_seg does: the first one's length is that of the whole, counted with
// each segment's class header, the last one's its own.
func segment(dst *Buf, msg []byte, seg, total uint32) {
	c := Class(msg[1])
	off := c.DataOffset()
	per := Size - off
	copy(dst[:off], msg)
	from := off + int(seg-1)*per
	n := copy(dst[off:], msg[from:])
	clear(dst[off+n:])
	last := len(msg) - off - int(total-1)*per
	pad := uint32(per - last)
	h := RMPPHeader{Version: 1, Type: RMPPData, RespTime: RespTimeNone, Flags: RMPPActive, Segment: seg}
	if seg == 1 {
		h.Flags |= RMPPFirst
		h.Length = total*rmppPayload - pad
	}
	if seg == total {
		h.Flags |= RMPPLast
		h.Length = rmppPayload - pad
	}
	h.Put(dst)
}

// RMPPSender sends one long message. It has no clock: the caller sends what Next
// returns, feeds the peer's answers to Recv, and calls Timeout when none arrived
// for its retransmission time. It is not safe for concurrent use.
type RMPPSender struct {
	msg     []byte
	total   uint32
	next    uint32 // next segment to send
	acked   uint32 // last segment acknowledged
	win     uint32 // last segment that may be sent
	rewound uint32 // acked segment whose repeated Ack made it go back already
	tries   int
	retries int
	err     error
}

// NewRMPPSender segments msg: a whole message of a class with RMPP, from the
// common header on. The message is not copied and must not change. retries is
// how often a timeout without progress is answered by sending again.
func NewRMPPSender(msg []byte, retries int) (*RMPPSender, error) {
	if len(msg) < HeaderLen || len(msg) < Class(msg[1]).DataOffset() {
		return nil, ErrShort
	}
	c := Class(msg[1])
	if !c.HasRMPP() {
		return nil, fmt.Errorf("mad: class 0x%02x has no long messages", uint8(c))
	}
	total := uint32(Segments(c, len(msg)))
	return &RMPPSender{msg: msg, total: total, next: 1, win: 1, retries: retries}, nil
}

// Next writes the next segment that the window allows into dst; false when
// there is none now.
func (s *RMPPSender) Next(dst *Buf) bool {
	if s.err != nil || s.next > s.win || s.next > s.total {
		return false
	}
	segment(dst, s.msg, s.next, s.total)
	s.next++
	return true
}

// Recv takes an Ack, Stop or Abort of the peer. Where the packet is wrong, the
// reply is an Abort to send and the transfer is over.
func (s *RMPPSender) Recv(b *Buf) (reply Buf, send bool) {
	if s.err != nil || s.Done() {
		return reply, false
	}
	h := DecodeRMPP(b)
	abort := func(st RMPPStatus) (Buf, bool) {
		s.err = &RMPPError{Type: RMPPAbort, Status: st}
		return rmppReply(b, RMPPAbort, st, 0, 0), true
	}
	switch h.Type {
	case RMPPAck:
		switch {
		case h.Status != RMPPNormal:
			return abort(RMPPIllegalStatus)
		case h.Segment > s.total || h.Segment > s.win:
			return abort(RMPPSegTooBig)
		case h.Length < h.Segment:
			return abort(RMPPWindowSmall)
		case h.Length < s.win:
			return reply, false // an Ack that was overtaken
		}
		if h.Segment > s.acked || h.Length > s.win {
			s.tries = 0
		} else if h.Segment == s.acked && s.acked > 0 && s.next > s.acked+1 && s.rewound != s.acked {
			// The receiver misses a segment; going back once for each is faster
			// than the timeout and cannot multiply.
			s.rewound = s.acked
			s.next = s.acked + 1
		}
		s.acked = max(s.acked, h.Segment)
		s.next = max(s.next, s.acked+1) // after a rewind, what arrived needs no repeat
		s.win = h.Length
	case RMPPStop, RMPPAbort:
		s.err = &RMPPError{Type: h.Type, Status: h.Status, Peer: true}
	default:
		return abort(RMPPBadType)
	}
	return reply, false
}

// Timeout rewinds to the first segment that the peer has not acknowledged. When
// the retries are used up it returns an Abort to send and the transfer is over.
func (s *RMPPSender) Timeout() (abort Buf, send bool) {
	if s.err != nil || s.Done() {
		return abort, false
	}
	if s.tries++; s.tries > s.retries {
		s.err = ErrRMPPTries
		copy(abort[:], s.msg[:Class(s.msg[1]).DataOffset()])
		h := RMPPHeader{Version: 1, Type: RMPPAbort, RespTime: RespTimeNone, Flags: RMPPActive, Status: RMPPTooManyTries}
		h.Put(&abort)
		return abort, true
	}
	s.next = s.acked + 1
	return abort, false
}

// Done reports that the peer has the whole message.
func (s *RMPPSender) Done() bool { return s.acked == s.total }

// Err is why the transfer ended early, nil while it runs or is done.
func (s *RMPPSender) Err() error { return s.err }

// RMPPReceiver takes one long message. It has no clock: the caller feeds
// packets, sends what comes back and gives up when nothing comes for long. It
// is not safe for concurrent use.
type RMPPReceiver struct {
	msg    []byte
	seg    uint32 // last segment in order
	win    uint32 // last segment asked for
	window uint32
	hole   uint32         // missing segment that was reported
	ahead  map[uint32]Buf // segments of the window that came before their turn
	limit  int
	done   bool
	err    error
}

// RMPPWindow is how many segments a receiver lets a sender have on the wire.
const RMPPWindow = 64

// NewRMPPReceiver takes a message of at most limit bytes, longer ones end with
// a Stop. Memory grows with what was received, never with what was announced.
func NewRMPPReceiver(limit int) *RMPPReceiver {
	return &RMPPReceiver{window: RMPPWindow, limit: limit}
}

// Recv takes a packet. reply is an Ack, Stop or Abort to send where send is
// true; done is true once the message is whole.
func (r *RMPPReceiver) Recv(b *Buf) (reply Buf, send, done bool) {
	h := DecodeRMPP(b)
	end := func(typ uint8, st RMPPStatus) (Buf, bool, bool) {
		r.err = &RMPPError{Type: typ, Status: st}
		r.msg, r.ahead = nil, nil
		return rmppReply(b, typ, st, 0, 0), true, false
	}
	ack := func() Buf { return rmppReply(b, RMPPAck, RMPPNormal, r.seg, r.win) }
	switch {
	case r.err != nil:
		return reply, false, false
	case h.Type == RMPPStop || h.Type == RMPPAbort:
		if !r.done {
			r.err = &RMPPError{Type: h.Type, Status: h.Status, Peer: true}
			r.msg = nil
		}
		return reply, false, false
	case h.Type != RMPPData:
		return reply, false, false
	case h.Version != 1:
		return end(RMPPAbort, RMPPBadVersion)
	case h.Status != RMPPNormal:
		return end(RMPPAbort, RMPPIllegalStatus)
	case (h.Segment == 1) != (h.Flags&RMPPFirst != 0) || h.Segment == 0:
		return end(RMPPAbort, RMPPBadFirst)
	}
	if h.Segment <= r.seg || r.done {
		return ack(), true, false // seen before: the Ack was lost
	}
	if h.Segment > r.seg+1 {
		// A hole: say where it begins, once, and again at the window's end.
		if h.Segment <= r.win {
			if r.ahead == nil {
				r.ahead = map[uint32]Buf{}
			}
			r.ahead[h.Segment] = *b
		}
		first := r.hole != r.seg+1
		r.hole = r.seg + 1
		return ack(), first || h.Segment == r.win || h.Flags&RMPPLast != 0, false
	}
	acked := false
	for {
		typ, st, fin := r.take(b, &h)
		if typ != 0 {
			return end(typ, st)
		}
		if fin {
			r.done, r.ahead = true, nil
			r.win = max(r.win, r.seg) // never less: a smaller window marks an old Ack
			return ack(), true, true
		}
		if r.seg >= r.win {
			r.win = r.seg + r.window
			acked = true
		}
		next, ok := r.ahead[r.seg+1]
		if !ok {
			break
		}
		delete(r.ahead, r.seg+1)
		b = &next
		h = DecodeRMPP(b)
	}
	if acked {
		return ack(), true, false
	}
	return reply, false, false
}

// take appends the segment b, which is next in order; typ is 0 or how the
// transfer ends.
func (r *RMPPReceiver) take(b *Buf, h *RMPPHeader) (typ uint8, st RMPPStatus, last bool) {
	off := Class(b[1]).DataOffset()
	n := Size - off
	last = h.Flags&RMPPLast != 0
	if last {
		pad := rmppPayload - int(h.Length)
		if h.Length > rmppPayload || pad > n {
			if h.Segment != 1 || h.Length != 0 {
				return RMPPAbort, RMPPBadLast, false
			}
			pad = 0
		}
		n -= pad
	}
	if r.msg == nil {
		r.msg = append(make([]byte, 0, 2*Size), b[:off]...)
	}
	if len(r.msg)+n > r.limit {
		return RMPPStop, RMPPResources, false
	}
	r.msg = append(r.msg, b[off:off+n]...)
	r.seg = h.Segment
	return 0, 0, last
}

// Message is the whole message once Recv reported done: the headers of the first
// segment and the data of all. The RMPP header is the first segment's, as the
// kernel leaves it, so that its flags distinguish a long message from a plain one.
func (r *RMPPReceiver) Message() []byte {
	if !r.done || r.err != nil {
		return nil
	}
	return r.msg
}

// Release forgets the message and keeps what is needed to acknowledge packets
// that come again.
func (r *RMPPReceiver) Release() { r.msg = nil }

// Buffered is the memory of the transfer in bytes, including segments that arrived out of
// order.
func (r *RMPPReceiver) Buffered() int { return cap(r.msg) + len(r.ahead)*Size }

// Err is why the transfer ended early.
func (r *RMPPReceiver) Err() error { return r.err }
