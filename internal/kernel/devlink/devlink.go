// Package devlink is a client of the generic netlink family "devlink" as far as
// RDMA cards need it: the type of a port that can be InfiniBand or Ethernet,
// and the events of ports that come and go.
//
// Strings name devices as devlink does: bus and name, "pci" and "0000:03:00.0".
// Numbers are in host order (include/uapi/linux/devlink.h).
package devlink

import (
	"errors"
	"fmt"
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/nl"
)

// commands and attributes
const (
	cmdNew      = 3
	cmdDel      = 4
	cmdPortGet  = 5
	cmdPortSet  = 6
	cmdPortNew  = 7
	cmdPortDel  = 8
	cmdParamNew = 40

	attrBusName   = 1
	attrDevName   = 2
	attrPortIndex = 3
	attrPortType  = 4

	family    = "devlink"
	version   = 1
	groupName = "config"
	maxPorts  = 1 << 14
)

// PortType is enum devlink_port_type.
type PortType uint16

// The types.
const (
	TypeNotSet PortType = iota
	TypeAuto
	TypeEth
	TypeIB
)

// String is the word that devlink port set type takes.
func (t PortType) String() string {
	return ib.Word(t, "type %d", "notset", "auto", "eth", "ib")
}

// Port is a port of a device.
type Port struct {
	Bus, Dev string
	Index    uint32
	Type     PortType // what it is
}

// Conn is a connection to devlink. It may be used from several goroutines.
type Conn struct{ *nl.Family }

// ErrNoDevlink means that the kernel has no devlink.
var ErrNoDevlink = errors.New("the kernel has no devlink (CONFIG_NET_DEVLINK)")

// Dial opens a connection in the calling thread's network namespace.
func Dial() (*Conn, error) {
	f, err := nl.DialFamily(family, groupName, ErrNoDevlink)
	if err != nil {
		return nil, err
	}
	return &Conn{f}, nil
}

// Ports lists the ports of all devices.
func (c *Conn) Ports() ([]Port, error) {
	var out []Port
	r := nl.NewRequest("list devlink ports", c.ID, 0, nl.Build(cmdPortGet, version, 0, 0))
	err := c.Dump(r, func() { out = out[:0] }, func(_ uint16, b []byte) error {
		p, err := decodePort(b)
		if err == nil && len(out) < maxPorts {
			out = append(out, p)
		}
		return err
	})
	return out, err
}

// SetPortType makes a port InfiniBand, Ethernet or whatever it finds:
// devlink port set BUS/DEV/INDEX type TYPE. The driver makes its RDMA device
// and network interfaces again before the request returns.
func (c *Conn) SetPortType(bus, dev string, index uint32, t PortType) nl.Request {
	w := nl.Build(cmdPortSet, version, 0, 0).String(attrBusName, bus).String(attrDevName, dev).
		Uint32(attrPortIndex, index).Uint16(attrPortType, uint16(t))
	return nl.NewRequest(fmt.Sprintf("set type of port %s/%s/%d to %s", bus, dev, index, t), c.ID, 0, w)
}

func decodePort(b []byte) (p Port, err error) {
	if b, err = nl.Payload(b); err != nil {
		return p, err
	}
	a := nl.ParseAttrs(b)
	for a.Next() {
		switch a.Type() {
		case attrBusName:
			p.Bus = a.String()
		case attrDevName:
			p.Dev = a.String()
		case attrPortIndex:
			p.Index = a.Uint32()
		case attrPortType:
			p.Type = PortType(a.Uint16())
		}
	}
	return p, a.Err()
}

// Event is a hint that something about some device changed.
type Event struct{}

// Events is a source of hints.
type Events = nl.Events[Event]

// Listen opens a source. recvBuffer is the socket's receive buffer in bytes, 0
// for a large one.
func (c *Conn) Listen(recvBuffer int) (*Events, error) {
	return nl.OpenGeneric(c.Family, recvBuffer, decodeEvent)
}

func decodeEvent(_ uint16, b []byte, put func(Event)) {
	if len(b) >= 4 && slices.Contains([]byte{cmdNew, cmdDel, cmdPortNew, cmdPortDel, cmdParamNew}, b[0]) {
		put(Event{})
	}
}
