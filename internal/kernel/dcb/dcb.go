// Package dcb is the client of data centre bridging over rtnetlink
// (RTM_GETDCB, RTM_SETDCB; include/uapi/linux/dcbnl.h, net/dcb/dcbnl.c):
// priority flow control, transmission selection, the application priority
// table, DSCP or PCP trust, buffers, and who is in charge of DCBX.
//
// Structs are in host order. The driver keeps what is set until the link goes;
// what it rounds or refuses is seen by reading again.
package dcb

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/nl"
)

// commands and attributes
const (
	cmdIEEESet = 20
	cmdIEEEGet = 21
	cmdGetDCBX = 22
	cmdSetDCBX = 23
	cmdIEEEDel = 27

	attrIfName = 1
	attrIEEE   = 13
	attrDCBX   = 14

	ieeeETS       = 1
	ieeePFC       = 2
	ieeeAppTable  = 3
	dcbBuffer     = 10
	dcbTrustTable = 11

	appIEEE = 1 // DCB_ATTR_IEEE_APP
	appDCB  = 2 // DCB_ATTR_DCB_APP

	sizeMsg    = 4 // struct dcbmsg: family, command, padding
	sizeETS    = 59
	sizePFC    = 136
	sizeBuffer = 44
	sizeApp    = 4

	maxApps = 1024 // 64 DSCPs, 16 PCPs, and some ports and EtherTypes
)

// TCs is the number of traffic classes and of priorities.
const TCs = 8

// Flags of DCBX (DCB_CAP_DCBX_*): who is in charge.
const (
	DCBXHost uint8 = 0x01 // the host; settings made here apply
	DCBXIEEE uint8 = 0x08
)

// TSA is a transmission selection algorithm.
type TSA uint8

// The algorithms.
const (
	Strict    TSA = 0
	CBShaper  TSA = 1
	ETS       TSA = 2
	VendorTSA TSA = 255
)

// Selector is what an application entry matches.
type Selector uint8

// The selectors.
const (
	EtherType  Selector = 1
	StreamPort Selector = 2 // TCP, SCTP
	DgramPort  Selector = 3 // UDP, DCCP
	AnyPort    Selector = 4
	DSCP       Selector = 5
	PCP        Selector = 255
)

// App maps a protocol to a priority (struct dcb_app).
type App struct {
	Selector Selector
	Priority uint8 // 0 to 7
	// Protocol is the EtherType, port, DSCP (0 to 63) or PCP and DEI.
	Protocol uint16
}

// ETSConfig is struct ieee_ets.
type ETSConfig struct {
	Willing bool
	Cap     uint8 // traffic classes that the device has, 0 for all
	CBS     bool
	// TxBW and RxBW are percentages by class; those of classes with ETS add up
	// to 100.
	TxBW, RxBW [TCs]uint8
	TSA        [TCs]TSA
	PrioTC     [TCs]uint8 // class by priority
	RecoBW     [TCs]uint8
	RecoTSA    [TCs]TSA
	RecoPrioTC [TCs]uint8
}

// PFCConfig is struct ieee_pfc without its counters.
type PFCConfig struct {
	Cap     uint8 // priorities that the device can pause
	Enabled uint8 // bit n is priority n
	MBC     bool  // MACsec bypass
	Delay   uint16
	// Requests and Indications count sent and received pauses by priority.
	Requests, Indications [TCs]uint64
}

// BufferConfig is struct dcbnl_buffer.
type BufferConfig struct {
	PrioBuffer [TCs]uint8 // buffer by priority
	Size       [TCs]uint32
	Total      uint32
}

// State is what a link reports. A nil field is not supported by its driver.
type State struct {
	ETS    *ETSConfig
	PFC    *PFCConfig
	Buffer *BufferConfig
	Apps   []App
	Trust  []Selector // in order of preference; nil if not supported
	DCBX   *uint8
}

// Conn is a connection. It may be used from several goroutines.
type Conn struct{ *nl.Conn }

// Dial opens a connection in the calling thread's network namespace.
func Dial() (*Conn, error) {
	c, err := nl.Dial(unix.NETLINK_ROUTE, false)
	if err != nil {
		return nil, err
	}
	return New(c), nil
}

// New wraps an open connection.
func New(c *nl.Conn) *Conn { return &Conn{c} }

var ne = binary.NativeEndian

func message(cmd uint8, link string) *nl.Builder {
	return nl.Build(unix.AF_UNSPEC, cmd, 0, 0).String(attrIfName, link)
}

// ErrNoDCB means that the link's driver has no data centre bridging.
var ErrNoDCB = errors.New("the driver has no data centre bridging")

// Get reads all that a link reports. ErrNoDCB if that is nothing.
func (c *Conn) Get(link string) (s State, err error) {
	r := nl.NewRequest("read DCB of "+link, unix.RTM_GETDCB, 0, message(cmdIEEEGet, link))
	err = c.Talk(r, func(_ uint16, b []byte) error { return decodeState(b, &s) })
	if errors.Is(err, unix.EOPNOTSUPP) {
		return s, fmt.Errorf("%s: %w", link, ErrNoDCB)
	}
	if err != nil {
		return s, err
	}
	// The kernel keeps the newest entry first; order by meaning, so that two
	// reads of the same table are equal.
	slices.SortFunc(s.Apps, func(a, b App) int {
		return cmp.Or(cmp.Compare(a.Selector, b.Selector), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Priority, b.Priority))
	})
	// Drivers without a DCBX mode refuse the question; that is not a failure.
	r = nl.NewRequest("read DCBX mode of "+link, unix.RTM_GETDCB, 0, message(cmdGetDCBX, link))
	err = c.Talk(r, func(_ uint16, b []byte) error { return decodeState(b, &s) })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		err = nil
	}
	return s, err
}

func decodeState(b []byte, s *State) error {
	if len(b) < sizeMsg {
		return errors.New("DCB message is shorter than its header")
	}
	a := nl.ParseAttrs(b[sizeMsg:])
	for a.Next() {
		switch a.Type() {
		case attrDCBX:
			s.DCBX = new(a.Uint8())
		case attrIEEE:
			if err := decodeIEEE(a.Nested(), s); err != nil {
				return err
			}
		}
	}
	return a.Err()
}

func decodeIEEE(a nl.Attrs, s *State) error {
	for a.Next() {
		v := a.Bytes()
		switch a.Type() {
		case ieeeETS:
			if len(v) >= sizeETS {
				s.ETS = decodeETS(v)
			}
		case ieeePFC:
			if len(v) >= sizePFC {
				s.PFC = decodePFC(v)
			}
		case dcbBuffer:
			if len(v) >= sizeBuffer {
				s.Buffer = &BufferConfig{PrioBuffer: [TCs]uint8(v), Total: ne.Uint32(v[40:])}
				for i := range s.Buffer.Size {
					s.Buffer.Size[i] = ne.Uint32(v[8+4*i:])
				}
			}
		case ieeeAppTable:
			n := a.Nested()
			for n.Next() {
				if b := n.Bytes(); (n.Type() == appIEEE || n.Type() == appDCB) && len(b) >= sizeApp && len(s.Apps) < maxApps {
					s.Apps = append(s.Apps, App{Selector(b[0]), b[1], ne.Uint16(b[2:])})
				}
			}
			if n.Err() != nil {
				return n.Err()
			}
		case dcbTrustTable:
			s.Trust = []Selector{}
			n := a.Nested()
			for n.Next() {
				if len(s.Trust) < 16 {
					s.Trust = append(s.Trust, Selector(n.Uint8()))
				}
			}
			if n.Err() != nil {
				return n.Err()
			}
		}
	}
	return a.Err()
}

func decodeETS(v []byte) *ETSConfig {
	e := &ETSConfig{Willing: v[0] != 0, Cap: v[1], CBS: v[2] != 0}
	at := 3
	bytes := func(dst *[TCs]uint8) { copy(dst[:], v[at:at+TCs]); at += TCs }
	tsas := func(dst *[TCs]TSA) {
		for i := range dst {
			dst[i] = TSA(v[at+i])
		}
		at += TCs
	}
	bytes(&e.TxBW)
	bytes(&e.RxBW)
	tsas(&e.TSA)
	bytes(&e.PrioTC)
	bytes(&e.RecoBW)
	tsas(&e.RecoTSA)
	bytes(&e.RecoPrioTC)
	return e
}

func (e *ETSConfig) encode() []byte {
	b := make([]byte, 0, sizeETS)
	b = append(b, bit(e.Willing), e.Cap, bit(e.CBS))
	tsas := func(src *[TCs]TSA) {
		for _, t := range src {
			b = append(b, uint8(t))
		}
	}
	b = append(b, e.TxBW[:]...)
	b = append(b, e.RxBW[:]...)
	tsas(&e.TSA)
	b = append(b, e.PrioTC[:]...)
	b = append(b, e.RecoBW[:]...)
	tsas(&e.RecoTSA)
	return append(b, e.RecoPrioTC[:]...)
}

func bit(v bool) uint8 {
	if v {
		return 1
	}
	return 0
}

// struct ieee_pfc: cap, en, mbc u8; a byte of padding; delay u16; two bytes;
// requests and indications 8 x u64 each.
func decodePFC(v []byte) *PFCConfig {
	p := &PFCConfig{Cap: v[0], Enabled: v[1], MBC: v[2] != 0, Delay: ne.Uint16(v[4:])}
	for i := range TCs {
		p.Requests[i] = ne.Uint64(v[8+8*i:])
		p.Indications[i] = ne.Uint64(v[8+8*TCs+8*i:])
	}
	return p
}

func (p *PFCConfig) encode() []byte {
	b := make([]byte, sizePFC)
	b[0], b[1], b[2] = p.Cap, p.Enabled, bit(p.MBC)
	ne.PutUint16(b[4:], p.Delay)
	for i := range TCs {
		ne.PutUint64(b[8+8*i:], p.Requests[i])
		ne.PutUint64(b[8+8*TCs+8*i:], p.Indications[i])
	}
	return b
}

// set sends a message that is answered by a message with an errno in one byte
// (dcbnl_ieee_set) and an acknowledgement that is always positive.
func (c *Conn) set(r nl.Request, answer uint16) error {
	return c.Talk(r, func(_ uint16, b []byte) error {
		if len(b) < sizeMsg {
			return errors.New("DCB message is shorter than its header")
		}
		a := nl.ParseAttrs(b[sizeMsg:])
		for a.Next() {
			if a.Type() != answer {
				continue
			}
			switch e := int8(a.Uint8()); {
			case e < 0:
				return syscall.Errno(-int(e))
			case e > 0 && answer != attrIEEE:
				return syscall.EINVAL // setdcbx answers 1 for no
			}
			// ice answers 1 and 2 (ICE_DCB_NO_HW_CHG, ICE_DCB_HW_CHG) where it took a
			// setting without a reset; what is in effect is read again anyway.
		}
		return a.Err()
	})
}

func ieee(what string, cmd uint8, link string, f func(*nl.Builder)) nl.Request {
	return nl.NewRequest(what, unix.RTM_SETDCB, 0, message(cmd, link).Nest(attrIEEE|nl.Nested, f))
}

// SetETS sets transmission selection. Send what was read, changed: the struct
// is taken as a whole.
func (c *Conn) SetETS(link string, e ETSConfig) error { return c.set(etsRequest(link, e), attrIEEE) }

func etsRequest(link string, e ETSConfig) nl.Request {
	return ieee("set ETS of "+link, cmdIEEESet, link, func(w *nl.Builder) { w.Raw(ieeeETS, e.encode()) })
}

// SetPFC sets priority flow control. Send what was read, changed.
func (c *Conn) SetPFC(link string, p PFCConfig) error { return c.set(pfcRequest(link, p), attrIEEE) }

func pfcRequest(link string, p PFCConfig) nl.Request {
	return ieee("set PFC of "+link, cmdIEEESet, link, func(w *nl.Builder) { w.Raw(ieeePFC, p.encode()) })
}

// SetBuffer sets receive buffers. Send what was read, changed.
func (c *Conn) SetBuffer(link string, p BufferConfig) error {
	return c.set(bufferRequest(link, p), attrIEEE)
}

func bufferRequest(link string, p BufferConfig) nl.Request {
	return ieee("set buffers of "+link, cmdIEEESet, link, func(w *nl.Builder) {
		b := append([]byte(nil), p.PrioBuffer[:]...)
		for _, s := range p.Size {
			b = ne.AppendUint32(b, s)
		}
		w.Raw(dcbBuffer, ne.AppendUint32(b, p.Total))
	})
}

// AddApps adds entries to the application table; EEXIST if one is there.
func (c *Conn) AddApps(link string, apps ...App) error {
	return c.set(appsRequest("add", cmdIEEESet, link, apps), attrIEEE)
}

// DelApps removes entries; ENOENT if one is not there.
func (c *Conn) DelApps(link string, apps ...App) error {
	return c.set(appsRequest("remove", cmdIEEEDel, link, apps), attrIEEE)
}

func appsRequest(verb string, cmd uint8, link string, apps []App) nl.Request {
	return ieee(verb+" priorities of "+link, cmd, link, func(w *nl.Builder) {
		w.Nest(ieeeAppTable|nl.Nested, func(w *nl.Builder) {
			for _, a := range apps {
				typ := uint16(appIEEE)
				if a.Selector == PCP {
					typ = appDCB
				}
				w.Raw(typ, ne.AppendUint16([]byte{uint8(a.Selector), a.Priority}, a.Protocol))
			}
		})
	})
}

// SetTrust sets which header fields a packet's priority is taken from, in order
// of preference. Linux 6.3; drivers of older kernels derive it from the
// application table.
func (c *Conn) SetTrust(link string, order ...Selector) error {
	return c.set(trustRequest(link, order), attrIEEE)
}

func trustRequest(link string, order []Selector) nl.Request {
	return ieee("set trust of "+link, cmdIEEESet, link, func(w *nl.Builder) {
		w.Nest(dcbTrustTable|nl.Nested, func(w *nl.Builder) {
			for _, s := range order {
				typ := uint16(appIEEE)
				if s == PCP {
					typ = appDCB
				}
				w.Uint8(typ, uint8(s))
			}
		})
	})
}

// SetDCBX sets whether the host or the firmware controls the link's DCB.
func (c *Conn) SetDCBX(link string, flags uint8) error {
	return c.set(dcbxRequest(link, flags), attrDCBX)
}

func dcbxRequest(link string, flags uint8) nl.Request {
	return nl.NewRequest("set DCBX mode of "+link, unix.RTM_SETDCB, 0, message(cmdSetDCBX, link).Uint8(attrDCBX, flags))
}

// Event is a hint that a link's DCB settings changed.
type Event struct{ Link string }

// Events is a source of hints.
type Events = nl.Events[Event]

// Listen opens a source in the calling thread's network namespace. recvBuffer is
// the socket's receive buffer in bytes, 0 for a large one.
func Listen(recvBuffer int) (*Events, error) {
	return nl.OpenEvents(unix.NETLINK_ROUTE, []uint32{unix.RTNLGRP_DCB}, recvBuffer, decodeEvent)
}

func decodeEvent(typ uint16, b []byte, put func(Event)) {
	if typ != unix.RTM_SETDCB && typ != unix.RTM_GETDCB || len(b) < sizeMsg {
		return
	}
	a := nl.ParseAttrs(b[sizeMsg:])
	for a.Next() {
		if a.Type() == attrIfName {
			put(Event{a.String()})
			return
		}
	}
}
