package units

import "ibnetworkd/ib"

// Port is [Port].
type Port struct {
	Section
	Type Value[PortType]
	// ChangeWhileInUse allows a type change although the port's links are up or
	// have users.
	ChangeWhileInUse Value[bool]
	// NodeDescription is the text with its specifiers; see ExpandNodeDescription.
	NodeDescription Value[string]
}

// PortType is the protocol of a VPI port; the numbers are devlink's
// (include/uapi/linux/devlink.h, enum devlink_port_type).
type PortType uint8

// The values of [Port] Type=.
const (
	PortTypeAuto PortType = 1
	PortTypeEth  PortType = 2
	PortTypeIB   PortType = 3
)

// RoCE is [RoCE]. Priorities and classes are 0 to 7, DSCP values 0 to 63.
type RoCE struct {
	Section
	// Version is 1 or 2: the default RoCE mode of RDMA-CM.
	Version Value[int]
	// TypeOfService is the IP ToS byte of RDMA-CM connections, 0 to 255; see ToS.
	TypeOfService Value[uint8]
	// DSCP is 0 to 63.
	DSCP Value[uint8]
	// Priority is the priority of RoCE traffic.
	Priority Value[uint8]
	// PFC is the set of priorities with priority flow control, one bit each.
	// Set with no bit is "PFC=none".
	PFC   Value[uint8]
	Trust Value[Trust]
	// ETS has one item for each traffic class named.
	ETS []Value[ETSClass]
	// PriorityToClass maps a priority to its traffic class.
	PriorityToClass []Value[PriorityMap]
	// DSCPToPriority maps a DSCP value to a priority.
	DSCPToPriority []Value[PriorityMap]
	// BufferSize has the bytes of each receive buffer named.
	BufferSize []Value[BufferSize]
	// PriorityToBuffer maps a priority to its receive buffer.
	PriorityToBuffer []Value[PriorityMap]
	// CableLength is in metres, for PFC headroom.
	CableLength Value[int]
	// ECN is the set of priorities with explicit congestion notification.
	ECN Value[uint8]
	// GIDIndex is the index that the RoCE v2 GID of the unit's first IPv4 address is
	// to have, 1 to 1023.
	GIDIndex Value[int]
	// WriteModprobeFile asks for a modprobe.d file with mlx4's pfctx and pfcrx.
	WriteModprobeFile Value[bool]
}

// ToS is the IP ToS byte that the unit asks for, by TypeOfService= or by DSCP=
// (shifted by the two ECN bits); TypeOfService= wins where both are set.
func (r *RoCE) ToS() Value[uint8] {
	if r.TypeOfService.Set || !r.DSCP.Set {
		return r.TypeOfService
	}
	return Value[uint8]{V: r.DSCP.V << 2, Set: true, Pos: r.DSCP.Pos}
}

// Trust is what a port takes a packet's priority from.
type Trust uint8

// The values of Trust=.
const (
	TrustPCP Trust = iota
	TrustDSCP
)

// ETSClass is the scheduling of one traffic class: strict, or a share of the
// bandwidth in percent.
type ETSClass struct {
	Class   uint8
	Strict  bool
	Percent uint8
}

// PriorityMap is one item "from:to" of a map.
type PriorityMap struct{ From, To uint8 }

// BufferSize is the size in bytes of one receive buffer.
type BufferSize struct {
	Buffer uint8
	Bytes  uint32
}

// SoftRoCE is [SoftRoCE]: a software RDMA device on the matched Ethernet link.
type SoftRoCE struct {
	Section
	Driver Value[SoftDriver]
	// Name is the RDMA device's name; not set means the driver's name, "_" and
	// the link's ("rxe_eth0").
	Name Value[string]
}

// SoftDriver is a software RDMA driver.
type SoftDriver uint8

// The values of [SoftRoCE] Driver=.
const (
	SoftRXE SoftDriver = iota
	SoftSIW
)

// DeviceName is the name of the RDMA device on the link.
func (s *SoftRoCE) DeviceName(link string) string {
	if n, ok := s.Name.Get(); ok {
		return n
	}
	return s.Driver.V.String() + "_" + link
}

// VirtualFunctions is [VirtualFunctions]: what holds for all of them.
type VirtualFunctions struct {
	Section
	Count     Value[int]
	Autoprobe Value[bool]
	// NodeGUID and PortGUID are for those without a [VF] of their own; only auto
	// is possible here.
	NodeGUID  Value[VFGUID]
	PortGUID  Value[VFGUID]
	LinkState Value[VFLinkState]
	Trust     Value[bool]
}

// VF is one [VF]. VirtualFunction is always set.
type VF struct {
	Section
	// VirtualFunction is the index, 0 for the first.
	VirtualFunction Value[int]
	NodeGUID        Value[VFGUID]
	PortGUID        Value[VFGUID]
	LinkState       Value[VFLinkState]
	Trust           Value[bool]
	// MinRate and MaxRate are in Mbit/s, 0 is no limit.
	MinRate, MaxRate Value[uint32]
	MACAddress       Value[ib.HWAddr]
	MACSpoofCheck    Value[bool]
	VLANId           Value[uint16]
	QualityOfService Value[uint8]
	VLANProtocol     Value[VLANProtocol]
}

// VFGUID is a GUID for a virtual function: explicit, or made from the physical
// function's and the index (Auto).
type VFGUID struct {
	Auto bool
	GUID ib.GUID
}

// String prints the GUID as a unit file has it.
func (g VFGUID) String() string {
	if g.Auto {
		return "auto"
	}
	return g.GUID.String()
}

// VFLinkState is IFLA_VF_LINK_STATE; the numbers are the kernel's.
type VFLinkState uint8

// The values of LinkState=.
const (
	VFLinkAuto    VFLinkState = 0
	VFLinkEnable  VFLinkState = 1
	VFLinkDisable VFLinkState = 2
)

// Modules is [Modules]: kernel modules to load when the unit is loaded, whether
// a link matches or not.
type Modules struct {
	Section
	Load []Value[string]
}
