// Package rdmanl is the client of the RDMA device netlink interface
// (NETLINK_RDMA, client NLDEV; drivers/infiniband/core/nldev.c): RDMA devices
// and ports with their state, devices added and deleted on top of network
// interfaces (rxe, siw), renames, and the events of RDMA_NL_GROUP_NOTIFY where the
// kernel has them.
//
// All integers are in host order, GUIDs and the subnet prefix too; this package
// converts them to values. No event of this interface has a port's state: read
// Ports again.
package rdmanl

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/nl"
)

// numbers of include/uapi/rdma/rdma_netlink.h
const (
	clientNLDEV = 5 // RDMA_NL_NLDEV

	cmdGet     = 1
	cmdNewLink = 3
	cmdDelLink = 4
	cmdPortGet = 5
	cmdSysGet  = 6
	cmdResGet  = 9
	cmdMonitor = 28

	attrDevIndex      = 1
	attrDevName       = 2
	attrPortIndex     = 3
	attrCapFlags      = 4
	attrFWVersion     = 5
	attrNodeGUID      = 6
	attrSysImageGUID  = 7
	attrSubnetPrefix  = 8
	attrLID           = 9
	attrSMLID         = 10
	attrLMC           = 11
	attrPortState     = 12
	attrPortPhysState = 13
	attrNodeType      = 14
	attrResSummary    = 15
	attrResEntry      = 16
	attrResName       = 17
	attrResCurr       = 18
	attrNdevIndex     = 50
	attrNdevName      = 51
	attrLinkType      = 65
	attrNetNSMode     = 66
	attrProtocol      = 67
	attrMonitorMode   = 103

	groupNotify = 4 // RDMA_NL_GROUP_NOTIFY
)

func msgType(cmd uint16) uint16 { return clientNLDEV<<10 | cmd }

// Device is an RDMA device.
type Device struct {
	Index        uint32
	Name         string
	Ports        int // ports are numbered from 1
	FWVersion    string
	NodeGUID     ib.GUID
	SysImageGUID ib.GUID
	NodeType     uint8  // enum rdma_node_type: 1 CA, 2 switch, 4 RNIC, ...
	Protocol     string // "ib", "roce", "iw", "opa"; "" from kernels before 5.2
}

// Port is a port of an RDMA device.
type Port struct {
	DevIndex uint32
	Port     int // from 1
	State    ib.PortState
	Phys     ib.PhysState
	// LID, SMLID, LMC, SubnetPrefix and CapFlags are there on InfiniBand and OPA ports only.
	LID, SMLID ib.LID
	LMC        ib.LMC
	// SubnetPrefix is 0 also if the kernel does not know better: it remembers the
	// prefix of the last entry of the GID table, which most often is empty
	// (config_non_roce_gid_cache in cache.c). GID 0 in sysfs has the prefix.
	SubnetPrefix uint64
	// CapFlags is PortInfo:CapabilityMask in the low and CapabilityMask2 in
	// the high 32 bits.
	CapFlags uint64
	// NetdevIndex is the network interface of a RoCE or iWARP port; 0 on InfiniBand ports
	// and for interfaces of another network namespace.
	NetdevIndex int
}

// System is the state of the RDMA subsystem.
type System struct {
	// NetNSShared reports that all network namespaces see all devices.
	NetNSShared bool
	// Monitor reports that the kernel sends events to Listen.
	Monitor bool
}

// Conn is a connection to the interface. It may be used from several goroutines.
type Conn struct{ *nl.Conn }

// ErrNoRDMA is returned by Dial if the kernel has no RDMA subsystem loaded: the
// netlink family appears with ib_core.
var ErrNoRDMA = errors.New("the kernel has no RDMA support loaded (module ib_core)")

// Dial opens a connection in the calling thread's network namespace.
func Dial() (*Conn, error) {
	c, err := nl.Dial(unix.NETLINK_RDMA, false)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, ErrNoRDMA
	}
	if err != nil {
		return nil, err
	}
	return New(c), nil
}

// New wraps an open connection; tests give one that replays messages.
func New(c *nl.Conn) *Conn { return &Conn{c} }

// noRDMA translates what a kernel without ib_core answers.
func noRDMA(err error) error {
	if errors.Is(err, unix.ECONNREFUSED) {
		return ErrNoRDMA
	}
	return err
}

// Devices lists the devices that this network namespace sees.
func (c *Conn) Devices() ([]Device, error) {
	var out []Device
	err := c.Dump(nl.NewRequest("list RDMA devices", msgType(cmdGet), 0, nl.Build()), func() { out = out[:0] },
		func(typ uint16, data []byte) error {
			if typ != msgType(cmdGet) {
				return nil
			}
			d, err := decodeDevice(data)
			if err != nil {
				return err
			}
			out = append(out, d)
			return nil
		})
	if err != nil {
		return nil, noRDMA(err)
	}
	return out, nil
}

// Ports reads all ports of the given devices, pipelined: a dump covers one
// device only, so that single questions need fewer system calls. A device that
// went away in between is left out.
func (c *Conn) Ports(devs []Device) ([]Port, error) {
	var rs []nl.Request
	for _, d := range devs {
		for p := 1; p <= d.Ports; p++ {
			w := nl.Build().Uint32(attrDevIndex, d.Index).Uint32(attrPortIndex, uint32(p))
			rs = append(rs, nl.NewRequest(fmt.Sprintf("read port %s/%d", d.Name, p), msgType(cmdPortGet), 0, w))
		}
	}
	out := make([]Port, 0, len(rs))
	errs := c.Ask(rs, func(_ int, typ uint16, data []byte) error {
		// A single port is answered under the number of GET, only a dump of
		// ports under PORT_GET (nldev_port_get_doit, nldev.c).
		if typ != msgType(cmdGet) && typ != msgType(cmdPortGet) {
			return fmt.Errorf("the kernel answered with message type %#x", typ)
		}
		p, err := decodePort(data)
		if err == nil {
			out = append(out, p)
		}
		return err
	})
	for _, err := range errs {
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENODEV) {
			return out, noRDMA(err)
		}
	}
	return out, nil
}

// System reads the subsystem's modes.
func (c *Conn) System() (s System, err error) {
	errs := c.Ask([]nl.Request{nl.NewRequest("read the RDMA subsystem's modes", msgType(cmdSysGet), 0, nl.Build())},
		func(_ int, _ uint16, data []byte) error {
			s, err = decodeSystem(data)
			return err
		})
	return s, noRDMA(errs[0])
}

// Users are those who would lose something with a device.
type Users struct {
	Programs    int // processes that have it open by verbs
	Connections int // RDMA-CM identifiers, those of the kernel's storage and file systems too
}

// Users counts the users of a device.
func (c *Conn) Users(index uint32) (u Users, err error) {
	errs := c.Ask([]nl.Request{nl.NewRequest(fmt.Sprintf("count the users of RDMA device %d", index), msgType(cmdResGet), 0,
		nl.Build().Uint32(attrDevIndex, index))},
		func(_ int, _ uint16, data []byte) error {
			u, err = decodeUsers(data)
			return err
		})
	return u, noRDMA(errs[0])
}

func decodeUsers(b []byte) (u Users, err error) {
	a := nl.ParseAttrs(b)
	for a.Next() {
		if a.Type() != attrResSummary {
			continue
		}
		for n := a.Nested(); n.Next(); {
			if n.Type() != attrResEntry {
				continue
			}
			name, curr := "", 0
			for e := n.Nested(); e.Next(); {
				switch e.Type() {
				case attrResName:
					name = e.String()
				case attrResCurr:
					curr = int(min(e.Uint64(), 1<<30))
				}
			}
			switch name {
			case "ctx":
				u.Programs = curr
			case "cm_id":
				u.Connections = curr
			}
		}
	}
	return u, a.Err()
}

// NewLink makes a device of a software driver ("rxe", "siw") on a network
// interface: rdma link add NAME type KIND netdev IF. The driver's module must be
// loaded or loadable; a kernel without it answers EINVAL.
func NewLink(name, kind, netdev string) nl.Request {
	w := nl.Build().String(attrDevName, name).String(attrLinkType, kind).String(attrNdevName, netdev)
	return nl.NewRequest(fmt.Sprintf("add RDMA link %s of type %s on %s", name, kind, netdev), msgType(cmdNewLink), 0, w)
}

// DelLink removes a device that NewLink can make.
func DelLink(index uint32) nl.Request {
	return nl.NewRequest(fmt.Sprintf("delete RDMA link %d", index), msgType(cmdDelLink), 0, nl.Build().Uint32(attrDevIndex, index))
}

func decodeDevice(b []byte) (d Device, err error) {
	a := nl.ParseAttrs(b)
	for a.Next() {
		switch a.Type() {
		case attrDevIndex:
			d.Index = a.Uint32()
		case attrDevName:
			d.Name = a.String()
		case attrPortIndex:
			// The number of ports of a device. Ports above 254 exist in no
			// adapter; a switch has at most 254 (IBTA 14.2.5.3).
			d.Ports = int(min(a.Uint32(), 254))
		case attrFWVersion:
			d.FWVersion = a.String()
		case attrNodeGUID:
			d.NodeGUID = ib.GUID(a.Uint64())
		case attrSysImageGUID:
			d.SysImageGUID = ib.GUID(a.Uint64())
		case attrNodeType:
			d.NodeType = a.Uint8()
		case attrProtocol:
			d.Protocol = a.String()
		}
	}
	return d, a.Err()
}

func decodePort(b []byte) (p Port, err error) {
	a := nl.ParseAttrs(b)
	for a.Next() {
		switch a.Type() {
		case attrDevIndex:
			p.DevIndex = a.Uint32()
		case attrPortIndex:
			p.Port = a.Index()
		case attrPortState:
			p.State = ib.PortState(a.Uint8())
		case attrPortPhysState:
			p.Phys = ib.PhysState(a.Uint8())
		case attrLID:
			// u32 for OPA's extended LIDs; an InfiniBand LID has 16 bits.
			p.LID = ib.LID(a.Uint32())
		case attrSMLID:
			p.SMLID = ib.LID(a.Uint32())
		case attrLMC:
			p.LMC = ib.LMC(a.Uint8())
		case attrSubnetPrefix:
			p.SubnetPrefix = a.Uint64()
		case attrCapFlags:
			p.CapFlags = a.Uint64()
		case attrNdevIndex:
			p.NetdevIndex = a.Index()
		}
	}
	return p, a.Err()
}

func decodeSystem(b []byte) (s System, err error) {
	a := nl.ParseAttrs(b)
	for a.Next() {
		switch a.Type() {
		case attrNetNSMode:
			s.NetNSShared = a.Uint8() == 1
		case attrMonitorMode:
			s.Monitor = a.Uint8() == 1
		}
	}
	return s, a.Err()
}

// Event is a hint that some device changed; read the devices again.
type Event struct{}

// Events is a source of hints.
type Events = nl.Events[Event]

// ErrNoMonitor is returned by Listen if the kernel sends no events (before
// Linux 6.12); there, devices are announced by uevents of the subsystem "infiniband".
var ErrNoMonitor = errors.New("the kernel's RDMA netlink interface sends no events")

// Listen opens a source of events, after asking whether the kernel has them.
// recvBuffer is the socket's receive buffer in bytes, 0 for a large one.
func (c *Conn) Listen(recvBuffer int) (*Events, error) {
	s, err := c.System()
	if err != nil {
		return nil, err
	}
	if !s.Monitor {
		return nil, ErrNoMonitor
	}
	return nl.OpenEvents(unix.NETLINK_RDMA, []uint32{groupNotify}, recvBuffer, decodeEvent)
}

func decodeEvent(typ uint16, _ []byte, put func(Event)) {
	if typ == msgType(cmdMonitor) {
		put(Event{})
	}
}
