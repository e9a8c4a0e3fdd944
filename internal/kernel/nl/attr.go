package nl

import (
	"encoding/binary"
	"errors"
	"math"
)

// Bits of an attribute's type that are not part of the number
// (include/uapi/linux/netlink.h).
const (
	Nested   uint16 = 0x8000 // NLA_F_NESTED
	typeMask uint16 = 0x3fff
)

// ErrMalformed is returned for attributes whose length runs past their buffer.
var ErrMalformed = errors.New("netlink attribute runs past the end of its message")

// Attrs walks a run of attributes. The values it yields share memory with the
// message, so they are valid as long as that is.
//
//	for a := nl.Attrs(b); a.Next(); {
//		switch a.Type() { ... a.Bytes() ... }
//	}
type Attrs struct {
	rest []byte
	typ  uint16
	val  []byte
	err  error
}

// ParseAttrs starts a walk over b.
func ParseAttrs(b []byte) Attrs { return Attrs{rest: b} }

// Next moves to the next attribute. It reports false at the end and at a
// malformed attribute; Err distinguishes the two.
func (a *Attrs) Next() bool {
	if len(a.rest) < 4 {
		return false // up to three bytes of padding may follow the last attribute
	}
	n := int(binary.NativeEndian.Uint16(a.rest))
	if n < 4 || n > len(a.rest) {
		a.err = ErrMalformed
		a.rest = nil
		return false
	}
	a.typ = binary.NativeEndian.Uint16(a.rest[2:])
	a.val = a.rest[4:n:n]
	if n = align(n); n > len(a.rest) {
		n = len(a.rest)
	}
	a.rest = a.rest[n:]
	return true
}

// Err is ErrMalformed if the walk ended before the end of the buffer.
func (a *Attrs) Err() error { return a.err }

// Type is the attribute's number without its flag bits.
func (a *Attrs) Type() uint16 { return a.typ & typeMask }

// Bytes is the attribute's payload.
func (a *Attrs) Bytes() []byte { return a.val }

// Nested starts a walk over the attributes inside this one.
func (a *Attrs) Nested() Attrs { return Attrs{rest: a.val} }

// Uint8 is the payload's first byte, 0 if there is none.
func (a *Attrs) Uint8() uint8 {
	if len(a.val) < 1 {
		return 0
	}
	return a.val[0]
}

// Uint16 is a host-order value, 0 if the payload is too short.
func (a *Attrs) Uint16() uint16 {
	if len(a.val) < 2 {
		return 0
	}
	return binary.NativeEndian.Uint16(a.val)
}

// Uint32 is a host-order value, 0 if the payload is too short.
func (a *Attrs) Uint32() uint32 {
	if len(a.val) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(a.val)
}

// Uint64 is a host-order value, 0 if the payload is too short. Attributes are
// aligned to 4 bytes only, so it is read byte-wise.
func (a *Attrs) Uint64() uint64 {
	if len(a.val) < 8 {
		return 0
	}
	return binary.NativeEndian.Uint64(a.val)
}

// Index is a Uint32 that names an interface, clipped to a 32-bit int (the kernel's
// own ifindex is signed).
func (a *Attrs) Index() int {
	if v := a.Uint32(); v <= math.MaxInt32 {
		return int(v)
	}
	return 0
}

// Text is the payload up to its first NUL.
func (a *Attrs) Text() []byte { return cutNUL(a.val) }

// String is Text as a string.
func (a *Attrs) String() string { return string(cutNUL(a.val)) }

func cutNUL(b []byte) []byte {
	for i, c := range b {
		if c == 0 {
			return b[:i]
		}
	}
	return b
}

func align(n int) int { return (n + 3) &^ 3 }

// Builder appends attributes to a message.
type Builder struct {
	b   []byte
	err error
}

// Build starts with a copy of a family's fixed header.
func Build(header ...byte) *Builder {
	b := make([]byte, len(header), len(header)+128)
	copy(b, header)
	return &Builder{b: b}
}

// Extend starts from b, which the builder takes over.
func Extend(b []byte) *Builder { return &Builder{b: b} }

func (w *Builder) head(typ uint16, n int) {
	if n > math.MaxUint16-4 {
		if w.err == nil {
			w.err = errors.New("netlink attribute is longer than 65531 bytes")
		}
		n = 0
	}
	w.b = binary.NativeEndian.AppendUint16(w.b, uint16(n+4))
	w.b = binary.NativeEndian.AppendUint16(w.b, typ)
}

func (w *Builder) pad() {
	for len(w.b)%4 != 0 {
		w.b = append(w.b, 0)
	}
}

// Raw appends v as it is.
func (w *Builder) Raw(typ uint16, v []byte) *Builder {
	w.head(typ, len(v))
	if w.err == nil {
		w.b = append(w.b, v...)
	}
	w.pad()
	return w
}

// Flag appends an attribute without payload.
func (w *Builder) Flag(typ uint16) *Builder { return w.Raw(typ, nil) }

// Uint8 appends one byte.
func (w *Builder) Uint8(typ uint16, v uint8) *Builder { return w.Raw(typ, []byte{v}) }

// Uint16 appends v in host order.
func (w *Builder) Uint16(typ uint16, v uint16) *Builder {
	w.head(typ, 2)
	w.b = binary.NativeEndian.AppendUint16(w.b, v)
	w.pad()
	return w
}

// Uint32 appends v in host order.
func (w *Builder) Uint32(typ uint16, v uint32) *Builder {
	w.head(typ, 4)
	w.b = binary.NativeEndian.AppendUint32(w.b, v)
	return w
}

// Uint64 appends v in host order.
func (w *Builder) Uint64(typ uint16, v uint64) *Builder {
	w.head(typ, 8)
	w.b = binary.NativeEndian.AppendUint64(w.b, v)
	return w
}

// String appends s and a NUL.
func (w *Builder) String(typ uint16, s string) *Builder {
	w.head(typ, len(s)+1)
	if w.err == nil {
		w.b = append(w.b, s...)
		w.b = append(w.b, 0)
	}
	w.pad()
	return w
}

// Nest appends what f adds as the payload of an attribute. The caller sets the
// flag Nested in typ where the family requires it: rtnetlink does not for its old
// attributes, and requests are to equal iproute2's.
func (w *Builder) Nest(typ uint16, f func(*Builder)) *Builder {
	at := len(w.b)
	w.head(typ, 0)
	f(w)
	n := len(w.b) - at
	if n > math.MaxUint16 {
		if w.err == nil {
			w.err = errors.New("nested netlink attribute is longer than 65535 bytes")
		}
		return w
	}
	binary.NativeEndian.PutUint16(w.b[at:], uint16(n))
	return w
}

// Bytes is the message built so far, or the first error.
func (w *Builder) Bytes() ([]byte, error) { return w.b, w.err }
