package rtnl

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/nl"
)

var ne = binary.NativeEndian

// Conn is a connection to rtnetlink. It may be used from several goroutines.
type Conn struct {
	*nl.Conn

	mu sync.Mutex // guards in
	in interner
}

// Dial opens a connection in the calling thread's network namespace.
func Dial() (*Conn, error) {
	c, err := nl.Dial(unix.NETLINK_ROUTE, true)
	if err != nil {
		return nil, err
	}
	return New(c), nil
}

// New wraps an open connection; tests give one that replays messages.
func New(c *nl.Conn) *Conn { return &Conn{Conn: c, in: interner{}} }

// interner keeps the strings of the last dumps: names, kinds and device names
// hardly ever change between two dumps.
type interner map[string]string

// maxInterned bounds the memory that changing names use.
const maxInterned = 1 << 14

func (in interner) str(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if s, ok := in[string(b)]; ok {
		return s
	}
	if len(in) >= maxInterned {
		clear(in)
	}
	s := string(b)
	in[s] = s
	return s
}

// dump collects the objects of one kind. want is the message type of an object.
func dump[T any](c *Conn, r nl.Request, want uint16, size int, decode func([]byte, *T, *interner) error) ([]T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]T, 0, size)
	err := c.Dump(r, func() { out = out[:0] }, func(typ uint16, data []byte) error {
		if typ != want {
			return nil
		}
		var v T
		out = append(out, v)
		return decode(data, &out[len(out)-1], &c.in)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Links dumps all links. vfs includes the virtual functions of each physical
// function, some 300 bytes each; they share one attribute of at most 64 KiB, so
// that with more than about 220 the answer is truncated or an error.
func (c *Conn) Links(vfs bool) ([]Link, error) {
	r := nl.NewRequest("list links", unix.RTM_GETLINK, 0, nl.Build(make([]byte, sizeIfInfo)...).Uint32(unix.IFLA_EXT_MASK, extMask(vfs)))
	return dump(c, r, unix.RTM_NEWLINK, 64, decodeLink)
}

func extMask(vfs bool) uint32 {
	m := uint32(rtextFilterSkipStat)
	if vfs {
		m |= rtextFilterVF
	}
	return m
}

// LinkByIndex reads one link; vfs as for Links. The error is ENODEV if there is
// none.
func (c *Conn) LinkByIndex(index int, vfs bool) (Link, error) {
	h := make([]byte, sizeIfInfo)
	ne.PutUint32(h[4:], uint32(index))
	w := nl.Build(h...).Uint32(unix.IFLA_EXT_MASK, extMask(vfs))
	return c.oneLink(nl.NewRequest(fmt.Sprintf("read link %d", index), unix.RTM_GETLINK, 0, w))
}

// LinkByName reads one link by its name or one of its alternative names.
func (c *Conn) LinkByName(name string, vfs bool) (Link, error) {
	w := nl.Build(make([]byte, sizeIfInfo)...).Uint32(unix.IFLA_EXT_MASK, extMask(vfs))
	if len(name) < unix.IFNAMSIZ {
		w.String(unix.IFLA_IFNAME, name)
	} else {
		w.String(unix.IFLA_ALT_IFNAME, name)
	}
	return c.oneLink(nl.NewRequest("read link "+name, unix.RTM_GETLINK, 0, w))
}

func (c *Conn) oneLink(r nl.Request) (l Link, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	errs := c.Ask([]nl.Request{r}, func(_ int, typ uint16, data []byte) error {
		if typ != unix.RTM_NEWLINK {
			return fmt.Errorf("the kernel answered with message type %d", typ)
		}
		return decodeLink(data, &l, &c.in)
	})
	return l, errs[0]
}

// Addresses dumps the IPv4 and IPv6 addresses of all links.
func (c *Conn) Addresses() ([]Address, error) {
	r := nl.NewRequest("list addresses", unix.RTM_GETADDR, 0, nl.Build(make([]byte, sizeIfAddr)...))
	return dump(c, r, unix.RTM_NEWADDR, 16, decodeAddress)
}

// Routes dumps the IPv4 and IPv6 routes of all tables, without entries of the kernel's cache,
// multicast forwarding, and what the kernel itself adds to the table "local" for each address:
// those are most of all routes and cannot be configured.
func (c *Conn) Routes() ([]Route, error) {
	r := nl.NewRequest("list routes", unix.RTM_GETROUTE, 0, nl.Build(make([]byte, sizeRtMsg)...))
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]Route, 0, 64)
	err := c.Dump(r, func() { out = out[:0] }, func(typ uint16, data []byte) error {
		if typ != unix.RTM_NEWROUTE || len(data) < sizeRtMsg {
			return nil
		}
		inet := data[0] == unix.AF_INET || data[0] == unix.AF_INET6
		own := data[4] == unix.RT_TABLE_LOCAL && data[5] == unix.RTPROT_KERNEL
		if !inet || own || ne.Uint32(data[8:])&unix.RTM_F_CLONED != 0 {
			return nil
		}
		out = append(out, Route{})
		return decodeRoute(data, &out[len(out)-1], &c.in)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Rules dumps the IPv4 and IPv6 policy rules.
func (c *Conn) Rules() ([]Rule, error) {
	r := nl.NewRequest("list routing policy rules", unix.RTM_GETRULE, 0, nl.Build(make([]byte, sizeFibRule)...))
	rs, err := dump(c, r, unix.RTM_NEWRULE, 16, decodeRule)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(rs, func(r Rule) bool { return r.Family != unix.AF_INET && r.Family != unix.AF_INET6 }), nil
}
