// Package devlink is a client of the generic netlink family "devlink" as far as
// RDMA cards need it: the type of a port that can be InfiniBand or Ethernet,
// the parameter enable_roce, firmware versions, reload, and the events that tell
// when ports come and go.
//
// Strings name devices as devlink does: bus and name, "pci" and "0000:03:00.0".
// Numbers are in host order (include/uapi/linux/devlink.h).
package devlink

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/nl"
)

// commands and attributes
const (
	cmdGet      = 1
	cmdNew      = 3
	cmdDel      = 4
	cmdPortGet  = 5
	cmdPortSet  = 6
	cmdPortNew  = 7
	cmdPortDel  = 8
	cmdReload   = 37
	cmdParamGet = 38
	cmdParamSet = 39
	cmdParamNew = 40
	cmdInfoGet  = 51

	attrBusName         = 1
	attrDevName         = 2
	attrPortIndex       = 3
	attrPortType        = 4
	attrPortDesiredType = 5
	attrNetdevIndex     = 6
	attrNetdevName      = 7
	attrIBDevName       = 8
	attrPortFlavour     = 77
	attrPortNumber      = 78
	attrParam           = 80
	attrParamName       = 81
	attrParamType       = 83
	attrParamValues     = 84
	attrParamValue      = 85
	attrParamData       = 86
	attrParamCMode      = 87
	attrDriverName      = 98
	attrSerial          = 99
	attrVersionFixed    = 100
	attrVersionRunning  = 101
	attrVersionStored   = 102
	attrVersionName     = 103
	attrVersionValue    = 104
	attrReloadFailed    = 136
	attrReloadAction    = 153

	family       = "devlink"
	version      = 1
	groupName    = "config"
	maxPorts     = 1 << 14
	maxPerDevice = 256
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
	switch t {
	case TypeNotSet:
		return "notset"
	case TypeAuto:
		return "auto"
	case TypeEth:
		return "eth"
	case TypeIB:
		return "ib"
	}
	return fmt.Sprintf("type %d", uint16(t))
}

// Device is a devlink device.
type Device struct {
	Bus, Name    string
	ReloadFailed bool
}

// Port is a port of a device.
type Port struct {
	Bus, Dev string
	Index    uint32
	Type     PortType // what it is
	// Desired is what was asked for; TypeNotSet if the driver cannot change
	// it, which is how a fixed port is told from a port that can be both.
	Desired PortType
	// Netdev and IBDev name what runs on the port now; one or none is set.
	Netdev  string
	IfIndex int
	IBDev   string
	Flavour uint16 // DEVLINK_PORT_FLAVOUR_*: 0 physical
	Number  *uint32
}

// Info is the identity of a device.
type Info struct {
	Driver, Serial string
	// Versions by name ("fw.version", "fw.psid"), as the device was made, as
	// it runs, and as the flash has it for the next reset.
	Fixed, Running, Stored map[string]string
}

// CMode is when a parameter takes effect (enum devlink_param_cmode).
type CMode uint8

// The modes.
const (
	Runtime    CMode = iota // at once
	DriverInit              // after Reload
	Permanent               // after a firmware reset
)

// String is the word that devlink dev param set cmode takes.
func (m CMode) String() string {
	switch m {
	case Runtime:
		return "runtime"
	case DriverInit:
		return "driverinit"
	case Permanent:
		return "permanent"
	}
	return fmt.Sprintf("cmode %d", uint8(m))
}

// EnableRoCE is the generic parameter of devices that can do without RoCE.
const EnableRoCE = "enable_roce"

// Reload actions.
const (
	ReloadDriver   uint8 = 1 // driver_reinit
	ReloadFirmware uint8 = 2 // fw_activate
)

// Conn is a connection to devlink. It may be used from several goroutines.
type Conn struct {
	*nl.Conn
	id    uint16
	group uint32
}

// ErrNoDevlink says that the kernel has no devlink.
var ErrNoDevlink = errors.New("the kernel has no devlink (CONFIG_NET_DEVLINK)")

// Dial opens a connection in the calling thread's network namespace.
func Dial() (*Conn, error) {
	g, err := genetlink.Dial(nil)
	if err != nil {
		return nil, fmt.Errorf("open generic netlink: %w", err)
	}
	f, err := g.GetFamily(family)
	_ = g.Close()
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, os.ErrNotExist) {
		return nil, ErrNoDevlink
	}
	if err != nil {
		return nil, fmt.Errorf("find the netlink family devlink: %w", err)
	}
	c, err := nl.Dial(unix.NETLINK_GENERIC, true)
	if err != nil {
		return nil, err
	}
	var group uint32
	for _, m := range f.Groups {
		if m.Name == groupName {
			group = m.ID
		}
	}
	return New(c, f.ID, group), nil
}

// New wraps an open connection; id and group are the family's numbers on this
// kernel.
func New(c *nl.Conn, id uint16, group uint32) *Conn { return &Conn{c, id, group} }

func head(cmd uint8) *nl.Builder { return nl.Build(cmd, version, 0, 0) }

func handle(cmd uint8, bus, dev string) *nl.Builder {
	return head(cmd).String(attrBusName, bus).String(attrDevName, dev)
}

func (c *Conn) request(what string, flags netlink.HeaderFlags, w *nl.Builder) nl.Request {
	return nl.NewRequest(what, c.id, flags, w)
}

// payload is what follows struct genlmsghdr.
func payload(b []byte) ([]byte, error) {
	if len(b) < 4 {
		return nil, errors.New("generic netlink message is shorter than its header")
	}
	return b[4:], nil
}

// Ports lists the ports of all devices.
func (c *Conn) Ports() ([]Port, error) {
	var out []Port
	err := c.Dump(c.request("list devlink ports", 0, head(cmdPortGet)), func() { out = out[:0] }, func(_ uint16, b []byte) error {
		p, err := decodePort(b)
		if err == nil && len(out) < maxPorts {
			out = append(out, p)
		}
		return err
	})
	return out, err
}

// Devices lists the devices.
func (c *Conn) Devices() ([]Device, error) {
	var out []Device
	err := c.Dump(c.request("list devlink devices", 0, head(cmdGet)), func() { out = out[:0] }, func(_ uint16, b []byte) error {
		d, err := decodeDevice(b)
		if err == nil && len(out) < maxPorts {
			out = append(out, d)
		}
		return err
	})
	return out, err
}

// Info reads a device's identity; EOPNOTSUPP if its driver does not tell.
func (c *Conn) Info(bus, dev string) (Info, error) {
	var in Info
	r := c.request(fmt.Sprintf("read the devlink info of %s/%s", bus, dev), 0, handle(cmdInfoGet, bus, dev))
	err := c.Talk(r, func(_ uint16, b []byte) (err error) {
		in, err = decodeInfo(b)
		return err
	})
	return in, err
}

// SetPortType makes a port InfiniBand, Ethernet or whatever it finds:
// devlink port set BUS/DEV/INDEX type TYPE. The driver makes its RDMA device
// and network interfaces anew before the request returns.
func (c *Conn) SetPortType(bus, dev string, index uint32, t PortType) nl.Request {
	w := handle(cmdPortSet, bus, dev).Uint32(attrPortIndex, index).Uint16(attrPortType, uint16(t))
	return c.request(fmt.Sprintf("set type of port %s/%s/%d to %s", bus, dev, index, t), 0, w)
}

// BoolParam reads a boolean parameter's value in a mode.
func (c *Conn) BoolParam(bus, dev, name string, mode CMode) (bool, error) {
	r := c.request(fmt.Sprintf("read parameter %s of %s/%s", name, bus, dev), 0, handle(cmdParamGet, bus, dev).String(attrParamName, name))
	var v, found bool
	err := c.Talk(r, func(_ uint16, b []byte) error {
		vs, err := decodeBoolParam(b)
		if err != nil {
			return err
		}
		v, found = vs[mode]
		return nil
	})
	if err == nil && !found {
		err = fmt.Errorf("parameter %s of %s/%s has no %s value", name, bus, dev, mode)
	}
	return v, err
}

// typeFlag is NLA_FLAG, by which devlink names a boolean: its value is the
// presence of the attribute.
const typeFlag = 6

// SetBoolParam sets a boolean parameter: devlink dev param set.
func (c *Conn) SetBoolParam(bus, dev, name string, mode CMode, v bool) nl.Request {
	w := handle(cmdParamSet, bus, dev).String(attrParamName, name).Uint8(attrParamCMode, uint8(mode)).Uint8(attrParamType, typeFlag)
	if v {
		w.Flag(attrParamData)
	}
	return c.request(fmt.Sprintf("set parameter %s of %s/%s to %t", name, bus, dev, v), 0, w)
}

// Reload takes a device down and up again: devlink dev reload BUS/DEV, with an
// action if it is not 0. Network interfaces and RDMA devices are made anew.
func (c *Conn) Reload(bus, dev string, action uint8) nl.Request {
	w := handle(cmdReload, bus, dev)
	if action != 0 {
		w.Uint8(attrReloadAction, action)
	}
	return c.request(fmt.Sprintf("reload %s/%s", bus, dev), 0, w)
}

func decodeDevice(b []byte) (d Device, err error) {
	if b, err = payload(b); err != nil {
		return d, err
	}
	a := nl.ParseAttrs(b)
	for a.Next() {
		switch a.Type() {
		case attrBusName:
			d.Bus = a.String()
		case attrDevName:
			d.Name = a.String()
		case attrReloadFailed:
			d.ReloadFailed = a.Uint8() != 0
		}
	}
	return d, a.Err()
}

func decodePort(b []byte) (p Port, err error) {
	if b, err = payload(b); err != nil {
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
		case attrPortDesiredType:
			p.Desired = PortType(a.Uint16())
		case attrNetdevIndex:
			p.IfIndex = a.Index()
		case attrNetdevName:
			p.Netdev = a.String()
		case attrIBDevName:
			p.IBDev = a.String()
		case attrPortFlavour:
			p.Flavour = a.Uint16()
		case attrPortNumber:
			v := a.Uint32()
			p.Number = &v
		}
	}
	return p, a.Err()
}

func decodeInfo(b []byte) (in Info, err error) {
	if b, err = payload(b); err != nil {
		return in, err
	}
	a := nl.ParseAttrs(b)
	for a.Next() {
		var into *map[string]string
		switch a.Type() {
		case attrDriverName:
			in.Driver = a.String()
		case attrSerial:
			in.Serial = a.String()
		case attrVersionFixed:
			into = &in.Fixed
		case attrVersionRunning:
			into = &in.Running
		case attrVersionStored:
			into = &in.Stored
		}
		if into == nil {
			continue
		}
		var name, value string
		n := a.Nested()
		for n.Next() {
			switch n.Type() {
			case attrVersionName:
				name = n.String()
			case attrVersionValue:
				value = n.String()
			}
		}
		if n.Err() != nil {
			return in, n.Err()
		}
		if *into == nil {
			*into = map[string]string{}
		}
		if len(*into) < maxPerDevice {
			(*into)[name] = value
		}
	}
	return in, a.Err()
}

// decodeBoolParam reads PARAM{NAME, TYPE, VALUES_LIST{VALUE{DATA, CMODE}...}}.
func decodeBoolParam(b []byte) (map[CMode]bool, error) {
	b, err := payload(b)
	if err != nil {
		return nil, err
	}
	out := map[CMode]bool{}
	a := nl.ParseAttrs(b)
	for a.Next() {
		if a.Type() != attrParam {
			continue
		}
		p := a.Nested()
		for p.Next() {
			if p.Type() != attrParamValues {
				continue
			}
			l := p.Nested()
			for l.Next() {
				if l.Type() != attrParamValue {
					continue
				}
				var mode CMode
				value, ok := false, false
				v := l.Nested()
				for v.Next() {
					switch v.Type() {
					case attrParamData:
						value = true
					case attrParamCMode:
						mode, ok = CMode(v.Uint8()), true
					}
				}
				if v.Err() != nil {
					return nil, v.Err()
				}
				if ok {
					out[mode] = value
				}
			}
			if l.Err() != nil {
				return nil, l.Err()
			}
		}
		if p.Err() != nil {
			return nil, p.Err()
		}
	}
	return out, a.Err()
}

// Event is a hint that something about a device changed.
type Event struct {
	Bus, Dev string
	Gone     bool // the device, or the port, went away
	IsPort   bool
	Port     uint32
	Param    bool // a parameter changed
}

// Events is a source of hints.
type Events = nl.Events[Event]

// Listen opens a source. recvBuffer is the socket's receive buffer in bytes, 0
// for a large one.
func (c *Conn) Listen(recvBuffer int) (*Events, error) {
	if c.group == 0 {
		return nil, errors.New("the kernel's devlink has no group config")
	}
	return nl.OpenEvents(unix.NETLINK_GENERIC, []uint32{c.group}, recvBuffer, decodeEvent)
}

func decodeEvent(_ uint16, b []byte, put func(Event)) {
	if len(b) < 4 {
		return
	}
	var e Event
	switch b[0] {
	case cmdNew:
	case cmdDel:
		e.Gone = true
	case cmdPortNew:
		e.IsPort = true
	case cmdPortDel:
		e.IsPort, e.Gone = true, true
	case cmdParamNew:
		e.Param = true
	default:
		return
	}
	a := nl.ParseAttrs(b[4:])
	for a.Next() {
		switch a.Type() {
		case attrBusName:
			e.Bus = a.String()
		case attrDevName:
			e.Dev = a.String()
		case attrPortIndex:
			e.Port = a.Uint32()
		}
	}
	if a.Err() == nil && e.Dev != "" {
		put(e)
	}
}
