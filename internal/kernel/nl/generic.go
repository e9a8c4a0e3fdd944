package nl

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/mdlayher/genetlink"
	"golang.org/x/sys/unix"
)

// Family is a connection to a family of generic netlink. It may be used from
// several goroutines.
type Family struct {
	*Conn
	ID    uint16 // the family's number on this kernel, the type of its requests
	Group uint32 // the number of its group of notifications, 0 if the kernel has none
	name  string
	group string
}

// DialFamily opens a connection to the family with a name, in the calling thread's
// network namespace. The error is absent where the kernel does not have the family.
func DialFamily(name, group string, absent error) (*Family, error) {
	g, err := genetlink.Dial(nil)
	if err != nil {
		return nil, fmt.Errorf("open generic netlink: %w", err)
	}
	f, err := g.GetFamily(name)
	_ = g.Close()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, absent
	}
	if err != nil {
		return nil, fmt.Errorf("find the netlink family %s: %w", name, err)
	}
	c, err := Dial(unix.NETLINK_GENERIC, true)
	if err != nil {
		return nil, err
	}
	out := &Family{Conn: c, ID: f.ID, name: name, group: group}
	for _, m := range f.Groups {
		if m.Name == group {
			out.Group = m.ID
		}
	}
	return out, nil
}

// OpenGeneric opens a source of the notifications of a family's group. recvBuffer is
// the socket's receive buffer in bytes, 0 for a large one.
func OpenGeneric[E any](f *Family, recvBuffer int, decode func(typ uint16, data []byte, put func(E))) (*Events[E], error) {
	if f.Group == 0 {
		return nil, fmt.Errorf("the kernel's %s has no group %s", f.name, f.group)
	}
	return OpenEvents(unix.NETLINK_GENERIC, []uint32{f.Group}, recvBuffer, decode)
}

// Payload is what follows struct genlmsghdr in a message of generic netlink; an error
// if the message is shorter than that.
func Payload(b []byte) ([]byte, error) {
	if len(b) < 4 {
		return nil, errors.New("generic netlink message is shorter than its header")
	}
	return b[4:], nil
}
