package dhcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// MaxMessage bounds a message that is read, in bytes.
const MaxMessage = 4096

// Message types (RFC 2132, section 9.6).
const (
	typeDiscover = 1
	typeOffer    = 2
	typeRequest  = 3
	typeDecline  = 4
	typeAck      = 5
	typeNak      = 6
	typeRelease  = 7
)

// Options.
const (
	optPad          = 0
	optMask         = 1
	optRouter       = 3
	optDNS          = 6
	OptionHostname  = 12
	optDomain       = 15
	optMTU          = 26
	optStaticRoute  = 33
	optNTP          = 42
	optAddress      = 50
	optLifetime     = 51
	optOverload     = 52
	optType         = 53
	optServer       = 54
	optRequest      = 55
	optMaxSize      = 57
	optT1           = 58
	optT2           = 59
	optVendorClass  = 60
	optClientID     = 61
	optFQDN         = 81
	optSearch       = 119
	optRoutes       = 121
	optEnd          = 255
	fixedLen        = 240 // with the magic number
	leastMessage    = 300 // BOOTP's, which some relays insist on
	magic           = 0x63825363
	flagBroadcast   = 0x8000
	fileAt, fileEnd = 108, 236
	nameAt          = 44
)

type message struct {
	op, htype      byte
	xid            uint32
	secs           uint16
	broadcast      bool
	ciaddr, yiaddr netip.Addr // 0.0.0.0 for none
	chaddr         []byte
	options        map[byte][]byte
}

var errMagic = errors.New("not a DHCP message")

// decode reads a message. Options that come more than once are joined (RFC 3396), and
// those in the fields of the server's name and the boot file are read where option 52
// says so.
func decode(b []byte) (*message, error) {
	switch {
	case len(b) > MaxMessage:
		return nil, fmt.Errorf("message has %d bytes, at most %d are read", len(b), MaxMessage)
	case len(b) < fixedLen || binary.BigEndian.Uint32(b[fixedLen-4:]) != magic:
		return nil, errMagic
	case b[2] > 16:
		return nil, fmt.Errorf("hardware address has %d bytes, at most 16 are possible", b[2])
	}
	m := &message{
		op: b[0], htype: b[1], xid: binary.BigEndian.Uint32(b[4:]), secs: binary.BigEndian.Uint16(b[8:]),
		broadcast: binary.BigEndian.Uint16(b[10:])&flagBroadcast != 0, ciaddr: addrAt(b, 12), yiaddr: addrAt(b, 16),
		chaddr: b[28 : 28+b[2]], options: map[byte][]byte{},
	}
	if err := m.read(b[fixedLen:]); err != nil {
		return nil, err
	}
	over := m.options[optOverload]
	delete(m.options, optOverload)
	if over == nil {
		return m, nil
	}
	if len(over) != 1 || over[0] < 1 || over[0] > 3 {
		return nil, errors.New("option 52 is not 1, 2 or 3")
	}
	for i, field := range [][]byte{b[fileAt:fileEnd], b[nameAt:fileAt]} {
		if over[0]&(1<<i) != 0 {
			if err := m.read(field); err != nil {
				return nil, err
			}
		}
	}
	if m.options[optOverload] != nil {
		return nil, errors.New("option 52 in an overloaded field")
	}
	return m, nil
}

func (m *message) read(b []byte) error {
	for len(b) > 0 {
		code := b[0]
		switch code {
		case optPad:
			b = b[1:]
			continue
		case optEnd:
			return nil
		}
		if len(b) < 2 || len(b) < 2+int(b[1]) {
			return fmt.Errorf("option %d is truncated", code)
		}
		value := b[2 : 2+int(b[1])]
		m.options[code] = append(m.options[code][:len(m.options[code]):len(m.options[code])], value...)
		if m.options[code] == nil {
			m.options[code] = []byte{}
		}
		b = b[2+len(value):]
	}
	return errors.New("options have no end")
}

func addrAt(b []byte, at int) netip.Addr { return netip.AddrFrom4([4]byte(b[at : at+4])) }

// kind is the message type, 0 for none.
func (m *message) kind() byte {
	if v := m.options[optType]; len(v) == 1 {
		return v[0]
	}
	return 0
}

// addr is an option of one address; the zero Addr where it is missing or has another
// length.
func (m *message) addr(code byte) netip.Addr {
	if v := m.options[code]; len(v) == 4 {
		return addrAt(v, 0)
	}
	return netip.Addr{}
}

type option struct {
	code  byte
	value []byte
}

// encode writes a message of a client with options in their order. Values are cut
// into pieces of 255 bytes.
func (m *message) encode(options []option) []byte {
	b := make([]byte, fixedLen, leastMessage)
	b[0], b[1], b[2] = m.op, m.htype, byte(len(m.chaddr))
	binary.BigEndian.PutUint32(b[4:], m.xid)
	binary.BigEndian.PutUint16(b[8:], m.secs)
	if m.broadcast {
		binary.BigEndian.PutUint16(b[10:], flagBroadcast)
	}
	if m.ciaddr.Is4() {
		copy(b[12:], m.ciaddr.AsSlice())
	}
	copy(b[28:44], m.chaddr)
	binary.BigEndian.PutUint32(b[fixedLen-4:], magic)
	for _, o := range options {
		for v := o.value; len(v) > 0; {
			n := min(len(v), 255)
			b = append(append(b, o.code, byte(n)), v[:n]...)
			v = v[n:]
		}
	}
	b = append(b, optEnd)
	for len(b) < leastMessage {
		b = append(b, optPad)
	}
	return b
}
