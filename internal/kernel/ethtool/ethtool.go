// Package ethtool is a client of the generic netlink family "ethtool" as far as the
// queues of a link go: rings, channels and interrupt coalescing (Linux 5.7).
//
// Numbers are in host order (include/uapi/linux/ethtool_netlink.h). A driver's answer
// has the attributes of what it can set, and no others.
package ethtool

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/nl"
)

const (
	family    = "ethtool"
	version   = 1
	groupName = "monitor"
	// attrHeader is the first attribute of each message of a group.
	attrHeader = 1
	// maxAttr is more than any attribute of these groups has.
	maxAttr = 64
)

// Group is a group of settings that one message sets.
type Group uint8

// The groups.
const (
	Rings Group = iota
	Channels
	Coalesce
)

// String is the word for a message.
func (g Group) String() string { return [...]string{"rings", "channels", "coalescing"}[g] }

func (g Group) get() uint8 {
	return [...]uint8{unix.ETHTOOL_MSG_RINGS_GET, unix.ETHTOOL_MSG_CHANNELS_GET, unix.ETHTOOL_MSG_COALESCE_GET}[g]
}

func (g Group) set() uint8 { return g.get() + 1 }

// Values are settings by attribute: ETHTOOL_A_RINGS_RX ...
type Values map[uint16]uint32

// Conn is a connection to the family. It may be used from several goroutines.
type Conn struct{ *nl.Family }

// ErrNone means that the kernel does not have the family.
var ErrNone = errors.New("the kernel has no ethtool netlink (CONFIG_ETHTOOL_NETLINK, Linux 5.7)")

// Dial opens a connection in the calling thread's network namespace.
func Dial() (*Conn, error) {
	f, err := nl.DialFamily(family, groupName, ErrNone)
	if err != nil {
		return nil, err
	}
	return &Conn{f}, nil
}

func head(cmd uint8, index int) *nl.Builder {
	return nl.Build(cmd, version, 0, 0).Nest(attrHeader|nl.Nested, func(w *nl.Builder) {
		w.Uint32(unix.ETHTOOL_A_HEADER_DEV_INDEX, uint32(index))
	})
}

// Get reads a group of a link; EOPNOTSUPP if its driver does not have it.
func (c *Conn) Get(index int, g Group) (v Values, err error) {
	r := nl.NewRequest(fmt.Sprintf("read the %s of link %d", g, index), c.ID, 0, head(g.get(), index))
	err = c.Ask([]nl.Request{r}, func(_ int, _ uint16, b []byte) error {
		v, err = decode(b)
		return err
	})[0]
	return v, err
}

func decode(b []byte) (Values, error) {
	b, err := nl.Payload(b)
	if err != nil {
		return nil, err
	}
	v := Values{}
	a := nl.ParseAttrs(b)
	for a.Next() {
		switch n := len(a.Bytes()); {
		case a.Type() == attrHeader || a.Type() > maxAttr:
		case n == 1:
			v[a.Type()] = uint32(a.Uint8())
		case n == 4:
			v[a.Type()] = a.Uint32()
		}
	}
	return v, a.Err()
}

// Set changes settings of a group: ethtool -G, -L and -C. The driver has done it, or
// refused it, when the request returns, which may take seconds.
func (c *Conn) Set(index int, g Group, v Values) nl.Request {
	w := head(g.set(), index)
	for attr := uint16(attrHeader + 1); attr <= maxAttr; attr++ {
		n, ok := v[attr]
		switch {
		case !ok:
		case g == Coalesce && (attr == unix.ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX || attr == unix.ETHTOOL_A_COALESCE_USE_ADAPTIVE_TX):
			w.Uint8(attr, uint8(n))
		default:
			w.Uint32(attr, n)
		}
	}
	return nl.NewRequest(fmt.Sprintf("set the %s of link %d", g, index), c.ID, 0, w)
}

// Event reports that a setting of a link was changed.
type Event struct{ Index int }

// Events is a source of them.
type Events = nl.Events[Event]

// Listen opens a source. recvBuffer is the socket's receive buffer in bytes, 0 for a
// large one.
func (c *Conn) Listen(recvBuffer int) (*Events, error) {
	return nl.OpenGeneric(c.Family, recvBuffer, decodeEvent)
}

func decodeEvent(_ uint16, b []byte, put func(Event)) {
	if len(b) < 4 {
		return
	}
	switch b[0] {
	case unix.ETHTOOL_MSG_RINGS_NTF, unix.ETHTOOL_MSG_CHANNELS_NTF, unix.ETHTOOL_MSG_COALESCE_NTF:
	default:
		return
	}
	a := nl.ParseAttrs(b[4:])
	for a.Next() {
		if a.Type() != attrHeader {
			continue
		}
		for h := a.Nested(); h.Next(); {
			if h.Type() == unix.ETHTOOL_A_HEADER_DEV_INDEX && h.Index() > 0 {
				put(Event{h.Index()})
				return
			}
		}
	}
}
