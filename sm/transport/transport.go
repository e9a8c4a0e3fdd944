// Package transport is how the subnet manager reaches the fabric: one interface
// with three implementations (umad: the kernel's user MAD device, ibsim: the
// reference simulator's socket, simfabric: switches and adapters in this
// process) that all pass the suite in transporttest.
//
// The package and its implementations carry MADs and know nothing of what they
// mean, with two exceptions that the kernel makes too: a request is matched
// with its response by transaction identifier, and long messages of classes
// with RMPP are cut and joined.
package transport

import (
	"context"
	"errors"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/mad"
)

// Errors that a Transport reports, to be tested with errors.Is.
var (
	// ErrTimeout is the Packet.Err of a request without an answer.
	ErrTimeout = errors.New("no response")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("transport is closed")
	// ErrGone means that the device disappeared; nothing will come any more.
	ErrGone = errors.New("device is gone")
	// ErrIsSM means that another subnet manager already runs on the port.
	ErrIsSM = errors.New("another subnet manager already runs on this port")
	// ErrNoQP0 means that the port lets no subnet manager in: it has no QP0 for
	// programs, or its driver refuses the IsSM bit.
	ErrNoQP0 = errors.New("the port carries no subnet management packets")
	// ErrBusy means that too much of what was sent before is still on its way; it
	// is for long messages only.
	ErrBusy = errors.New("too many long messages are outstanding")
	// ErrTooLong means that a message is longer than the implementation takes.
	ErrTooLong = errors.New("message is too long")
)

// MaxMessage is the length in bytes of the longest message in either direction.
const MaxMessage = mad.MaxMessage

// MaxSending bounds the bytes of the long messages that are under way at one
// time. They are kept whole until the peer has acknowledged them: one that asks
// for much and acknowledges nothing must not take all memory.
const MaxSending = 256 << 20

// Packet is a MAD and its address: where to on Send, where from on Recv.
type Packet struct {
	LID       ib.LID  // ib.LIDPermissive on a directed route
	QPN       uint32  // 0 for SMPs, 1 for the rest
	QKey      ib.QKey // 0: the well-known key for QPN 1
	SL        ib.SL
	PathBits  uint8
	PKeyIndex uint16

	HasGRH       bool
	GID          ib.GID
	GIDIndex     uint8
	HopLimit     uint8
	TrafficClass uint8
	FlowLabel    uint32 // 20 bits

	// Timeout above 0 makes Send expect a response within this time, Retries is
	// how often the request is sent again before it comes back as ErrTimeout. A long
	// request whose segments were all acknowledged is not sent again (ib_retry_rmpp of
	// the kernel's mad_rmpp.c).
	// Unused on Recv.
	Timeout time.Duration
	Retries int

	// Err is set on Recv when the packet is an own request that came back:
	// ErrTimeout, or the device's error. Of MAD only the common header is sure
	// then: the kernel returns no more.
	Err error

	// MAD is the whole message, or its first 256 bytes when Long is set.
	MAD mad.Buf
	// Long is a message of an RMPP class from the common header on, when it is longer than one
	// MAD or has the RMPP flag Active set in its header (Send: cut it even when it fits into
	// one). On Recv the slice belongs to the receiver.
	Long []byte
}

// Bytes is the message: Long, or the 256 bytes of MAD.
func (p *Packet) Bytes() []byte {
	if p.Long != nil {
		return p.Long
	}
	return p.MAD[:]
}

// SetMessage makes msg the message of p. Messages up to 256 bytes are copied
// and padded, longer ones are kept as they are; asRMPP sends even a short one
// segmented, as the SA's table answers want it.
func (p *Packet) SetMessage(msg []byte, asRMPP bool) {
	n := copy(p.MAD[:], msg)
	clear(p.MAD[n:])
	p.Long = nil
	if asRMPP || len(msg) > mad.Size {
		p.Long = msg
	}
}

// Port is the local port, as far as the device reports it without a query.
type Port struct {
	Device    string // "mlx5_0", "swib0", "ibsim0"
	Num       uint8  // from 1; 0 on a switch
	NodeGUID  ib.GUID
	PortGUID  ib.GUID
	LID       ib.LID
	SMLID     ib.LID
	SMSL      ib.SL // of requests to SMLID
	State     ib.PortState
	PhysState ib.PhysState
	LinkLayer ib.LinkLayer
	NodeType  ib.NodeType
}

// Transport sends and receives MADs of subnet management (both classes) and
// subnet administration, and every request of those classes that reaches the
// port.
//
// Send and Recv may be called at the same time from different goroutines, each
// of them from one at a time. Send does not wait for the peer and does not
// deadlock without a concurrent Recv. The packet may be reused as soon as Send
// returns, but Long must not change until the message has been delivered.
//
// The low 32 bits of a request's transaction identifier belong to the caller,
// who keeps them unique among the requests under way; the rest is the
// transport's. A response has the request's low 32 bits. A request received
// from the fabric has 64 bits that its response must repeat.
//
// A request (Timeout above 0) yields exactly one packet: its response, or
// itself with Err. A response that comes after its request was given up, or
// twice, is dropped. Requests are not reported twice when the peer sends them
// again: to a transport two requests are two packets. A second response with
// the same identifier and destination is dropped, without an error, while the
// first is on its way.
//
// Recv fills into from the front and returns how many; it waits for the first
// only. After the device is gone it delivers what is left, then ErrGone.
type Transport interface {
	Send(p *Packet) error
	Recv(ctx context.Context, into []Packet) (int, error)
	// SetIsSM turns the IsSM bit of the port's capability mask on or off. The
	// bit goes with the process.
	SetIsSM(on bool) error
	// Port reads the local port's current state.
	Port() (Port, error)
	// Close ends a waiting Recv with ErrClosed. It may be called twice.
	Close() error
}
