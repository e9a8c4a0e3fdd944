package busconn

import (
	"encoding/binary"
	"errors"

	"github.com/godbus/dbus/v5"
)

// fixedLen is the length of the part of a header that every message has: byte
// order, type, flags, version, body length, serial, length of the fields.
const fixedLen = 16

// maxHeader bounds the header of a message in bytes. Names are at most 255 bytes
// long; only an object path may be longer, and those used here are not.
const maxHeader = 16 << 10

// maxTrusted bounds the body of an answer and of a believed signal in bytes. It
// is the largest array of the protocol; dbus-daemon's system bus stops at half.
const maxTrusted = 64 << 20

// maxArgs bounds the body of a call in bytes. The longest argument of any method
// is the name of an interface, a property or a link.
const maxArgs = 4 << 10

// Header is the header of a message.
type Header struct {
	Type                    dbus.Type
	Flags                   dbus.Flags
	Serial, ReplySerial     uint32
	Path, Interface, Member string
	Destination, Sender     string
	Signature               string
	UnixFDs                 uint32
	BodyLen                 uint32 // bytes

	order binary.ByteOrder
}

// errFrame is that the stream is not D-Bus: the begin of the next message is not
// known.
var errFrame = errors.New("the stream is not D-Bus")

var errHeader = errors.New("header cannot be read")

// parseFixed reads the first 16 bytes: what is known of the message, and how many
// bytes its header has with its padding.
func parseFixed(b []byte) (h Header, header uint64, err error) {
	switch b[0] {
	case 'l':
		h.order = binary.LittleEndian
	case 'B':
		h.order = binary.BigEndian
	default:
		return h, 0, errFrame
	}
	h.Type, h.Flags = dbus.Type(b[1]), dbus.Flags(b[2])
	h.BodyLen, h.Serial = h.order.Uint32(b[4:]), h.order.Uint32(b[8:])
	header = (fixedLen + uint64(h.order.Uint32(b[12:])) + 7) &^ 7
	// The protocol's own bounds: beyond them the length is not to be trusted.
	if b[3] != 1 || header > 1<<26 || header+uint64(h.BodyLen) > 1<<27 {
		return h, 0, errFrame
	}
	return h, header, nil
}

// parseFields reads the fields of a header, b, which begins with the 16 bytes
// that parseFixed has read. Fields that are not known are passed over if they have
// a basic type, and an error otherwise: no field of the protocol has another.
func parseFields(h *Header, b []byte) error {
	end := fixedLen + int(h.order.Uint32(b[12:]))
	if end > len(b) {
		return errHeader
	}
	b = b[:end]
	at := fixedLen
	text := func(length int) (string, bool) { // with the zero byte behind it
		if length < 0 || length >= len(b)-at || b[at+length] != 0 {
			return "", false
		}
		s := string(b[at : at+length])
		at += length + 1
		return s, true
	}
	align := func(n int) { at = (at + n - 1) &^ (n - 1) }
	for {
		if at == len(b) {
			return nil // not after the padding: it belongs to the next field
		}
		align(8)
		if len(b)-at < 4 || b[at+1] != 1 || b[at+3] != 0 {
			return errHeader
		}
		field, kind := dbus.HeaderField(b[at]), b[at+2]
		at += 4
		var s string
		var n uint32
		ok := true
		switch kind {
		case 's', 'o', 'u', 'i', 'b', 'h':
			align(4)
			if len(b)-at < 4 {
				return errHeader
			}
			n = h.order.Uint32(b[at:])
			at += 4
			if kind == 's' || kind == 'o' {
				s, ok = text(int(n))
			}
		case 'g':
			if at == len(b) {
				return errHeader
			}
			at++
			s, ok = text(int(b[at-1]))
		case 'y':
			at++
		case 'n', 'q':
			align(2)
			at += 2
		case 'x', 't', 'd':
			align(8)
			at += 8
		default:
			return errHeader
		}
		if !ok || at > len(b) {
			return errHeader
		}
		for _, f := range []struct {
			field dbus.HeaderField
			kind  byte
			text  *string
			num   *uint32
		}{
			{dbus.FieldPath, 'o', &h.Path, nil}, {dbus.FieldInterface, 's', &h.Interface, nil}, {dbus.FieldMember, 's', &h.Member, nil},
			{dbus.FieldErrorName, 's', new(string), nil}, {dbus.FieldReplySerial, 'u', nil, &h.ReplySerial},
			{dbus.FieldDestination, 's', &h.Destination, nil}, {dbus.FieldSender, 's', &h.Sender, nil},
			{dbus.FieldSignature, 'g', &h.Signature, nil}, {dbus.FieldUnixFDs, 'u', nil, &h.UnixFDs},
		} {
			switch {
			case f.field != field:
			case f.kind != kind:
				return errHeader
			case f.text != nil:
				*f.text = s
			default:
				*f.num = n
			}
		}
	}
}
