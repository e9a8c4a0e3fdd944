// Package cardstate has what the daemon reads of cards and of the Ethernet side of
// links for the planner of package roce. It is values alone: an observer makes
// them, a link.Snapshot carries them, and they are JSON only in a capture.
package cardstate

import (
	"fmt"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/units"
)

// Priorities is the number of priorities and of traffic classes (IEEE 802.1Q).
const Priorities = 8

// State is what a plan needs to know beyond link.Snapshot. What is absent was not
// read and is not changed.
type State struct {
	// Devices are RDMA devices by name.
	Devices map[string]Device `json:"devices,omitempty"`
	// Links are network interfaces by index.
	Links map[int]Link `json:"links,omitempty"`
	// Agents names programs that are running and configure DCB by themselves:
	// lldpad, lldpd, fcoemon.
	Agents []string `json:"agents,omitempty"`
	// NodeDescBy is the program that keeps node descriptions, "" for none.
	NodeDescBy string `json:"node_desc_by,omitempty"`
	// RDMACM reports that the defaults of RDMA-CM can be set: rdma_cm is loaded
	// and configfs is mounted.
	RDMACM bool `json:"rdma_cm,omitempty"`
	// Modprobe is the text of roce.ModprobeFile, "" if there is none.
	Modprobe string `json:"modprobe,omitempty"`
	// Contested lists settings that something else keeps changing back, by
	// roce.ContestedKey, with the number of corrections.
	Contested map[string]int `json:"contested,omitempty"`
}

// Device is an RDMA device.
type Device struct {
	// NodeDesc is nil unless a unit asks for one.
	NodeDesc *string      `json:"node_description,omitempty"`
	Ports    map[int]Port `json:"ports,omitempty"`
}

// Port is a port of an RDMA device, or of a card that has ports of either type.
type Port struct {
	// Type is nil if the driver cannot change it while it runs.
	Type *PortType `json:"type,omitempty"`
	// Defaults are RDMA-CM's, nil if not read.
	Defaults *Defaults `json:"defaults,omitempty"`
	GIDs     []GID     `json:"gids,omitempty"`
	// GIDSlots is the length of the GID table; this and the following are read only
	// where a unit asks for an index.
	GIDSlots int `json:"gid_slots,omitempty"`
	// GIDUsers may refer to entries of the table.
	GIDUsers []GIDUser `json:"gid_users,omitempty"`
	// GIDStuck are indexes that read as empty and were not given to the address that
	// was to have them.
	GIDStuck []int `json:"gid_stuck,omitempty"`
	// GIDPending is set after an address was moved, until the kernel has changed the table.
	GIDPending bool `json:"gid_pending,omitempty"`
}

// GIDUser is a process that has queue pairs on a device or identifiers of RDMA-CM.
type GIDUser struct {
	PID        int    `json:"pid,omitempty"` // 0 for the kernel, and for one that is not seen here
	Program    string `json:"program,omitempty"`
	QueuePairs int    `json:"queue_pairs,omitempty"`
	Bound      int    `json:"bound,omitempty"` // identifiers that are bound to an address, without a queue pair
}

// PortType is the type of a port that can be InfiniBand or Ethernet.
type PortType struct {
	Configured units.PortType `json:"configured"`
	Current    units.PortType `json:"current"`
	// Bus and Dev name the card ("pci", "0000:03:00.0") and Index its port for
	// devlink; File is the driver's attribute, used where devlink has no port
	// types.
	Bus   string `json:"bus"`
	Dev   string `json:"dev"`
	Index uint32 `json:"index,omitempty"`
	File  string `json:"file,omitempty"`
	// Programs have the card's RDMA device open, and Connections of RDMA-CM are
	// on it; counted while the type is not as asked.
	Programs    int `json:"programs,omitempty"`
	Connections int `json:"connections,omitempty"`
}

// Defaults of RDMA-CM for connections over a port.
type Defaults struct {
	Version int   `json:"version"` // 1 or 2
	ToS     uint8 `json:"tos"`
}

// GID is a used entry of a GID table.
type GID struct {
	Index   int    `json:"index"`
	GID     ib.GID `json:"gid"`
	Version int    `json:"version"` // 1 or 2
	Netdev  string `json:"netdev,omitempty"`
}

// Link is a network interface.
type Link struct {
	DCB   *DCB         `json:"dcb,omitempty"` // nil: the driver has none
	SRIOV *SRIOV       `json:"sriov,omitempty"`
	Soft  []SoftDevice `json:"soft,omitempty"` // software RDMA devices on the link
	// ECN has bit n set if congestion notification is on for priority n; nil if
	// the driver has no files for it.
	ECN *uint8 `json:"ecn,omitempty"`
	// Ethtool are the settings of the queues that the driver has; nil if the kernel has no
	// ethtool netlink.
	Ethtool map[units.EthtoolParam]Ethtool `json:"ethtool,omitzero"`
	// EthtoolRead are the groups of Ethtool that were read: "", or why they could not be
	// read this time, in which case Ethtool has what was read before.
	EthtoolRead map[units.EthtoolGroup]string `json:"ethtool_read,omitempty"`
}

// Ethtool is a setting of a link's queues in the kernel's unit.
type Ethtool struct {
	N   uint32 `json:"n"`
	Max uint32 `json:"max,omitempty"` // 0 where the driver names none
	// Asked is what N is the driver's answer to, nil if that is not known.
	Asked *uint32 `json:"asked,omitempty"`
}

// SoftDevice is a software RDMA device.
type SoftDevice struct {
	Name   string           `json:"name"`
	Index  uint32           `json:"index"`
	Driver units.SoftDriver `json:"driver,omitempty"`
}

// TSA is a transmission selection algorithm (IEEE 802.1Qaz).
type TSA uint8

// The algorithms; a driver may have others.
const (
	Strict TSA = 0
	ETS    TSA = 2
)

// String is dcb's word.
func (t TSA) String() string {
	switch t {
	case Strict:
		return "strict"
	case ETS:
		return "ets"
	case 1:
		return "cbs" // credit-based shaper
	}
	return "vendor"
}

// DCB is the data centre bridging that a driver reports; other fields are nil.
type DCB struct {
	DCBX *uint8 `json:"dcbx,omitempty"` // DCB_CAP_DCBX_*
	// PFC has bit n set if priority n is paused for; PFCCap is how many
	// priorities can be.
	PFC    *uint8 `json:"pfc,omitempty"`
	PFCCap uint8  `json:"pfc_cap,omitempty"`
	// Delay is ieee_pfc's allowance; mlx5 takes it for the cable's length in
	// metres (mlx5e_dcbnl_ieee_setpfc).
	Delay  uint16   `json:"delay,omitempty"`
	ETS    *Classes `json:"ets,omitempty"`
	Buffer *Buffers `json:"buffer,omitempty"`
	// Asked is what Buffer is the driver's answer to, nil if that is not known.
	Asked *Buffers        `json:"buffer_asked,omitempty"`
	DSCP  map[uint8]uint8 `json:"dscp,omitempty"` // priority by DSCP, entries of the table
	// Trust is nil if the driver has no trust table of its own; the order is
	// that of preference.
	Trust []units.Trust `json:"trust,omitzero"`
	// Driver is the link's, for what differs between drivers.
	Driver string `json:"driver,omitempty"`
}

// Classes is the transmission selection of a link.
type Classes struct {
	TSA     [Priorities]TSA   `json:"tsa"`
	Percent [Priorities]uint8 `json:"percent"`
	Class   [Priorities]uint8 `json:"class"` // by priority
}

// Buffers are a link's receive buffers.
type Buffers struct {
	Buffer [Priorities]uint8  `json:"buffer"` // by priority
	Size   [Priorities]uint32 `json:"size"`   // bytes
	Total  uint32             `json:"total"`  // bytes
}

// SRIOV is a physical function's state.
type SRIOV struct {
	Bus       string `json:"bus"`
	Dev       string `json:"dev"`
	Total     int    `json:"total"`
	Autoprobe *bool  `json:"autoprobe,omitempty"`
	VFs       []VF   `json:"vfs,omitempty"` // by index
}

// VF is a virtual function.
type VF struct {
	// Dev is its name on the bus, "" if it has none.
	Dev string `json:"dev,omitempty"`
	// Driver is bound to it, "" if none is.
	Driver string `json:"driver,omitempty"`
	// Busy is why taking it away would hurt, "" if it would not.
	Busy string `json:"busy,omitempty"`
	// The following are reported by the physical function; nil is "not reported".
	NodeGUID  *ib.GUID           `json:"node_guid,omitempty"`
	PortGUID  *ib.GUID           `json:"port_guid,omitempty"`
	LinkState *units.VFLinkState `json:"link_state,omitempty"`
	Trust     *bool              `json:"trust,omitempty"`
	Spoof     *bool              `json:"spoof,omitempty"`
	MinRate   uint32             `json:"min_rate,omitempty"`
	MaxRate   uint32             `json:"max_rate,omitempty"`
	MAC       ib.HWAddr          `json:"mac,omitzero"`
	VLAN      uint16             `json:"vlan,omitempty"`
	QoS       uint8              `json:"qos,omitempty"`
	Proto     units.VLANProtocol `json:"vlan_protocol,omitempty"` // of VLAN; 0 is not reported
	// OwnGUID is what the virtual function itself reports as its node GUID, 0
	// if it has no RDMA device here. It takes a GUID only when its driver probes.
	OwnGUID ib.GUID `json:"own_guid,omitempty"`
}

// String prints classes as 0:60 1:strict ... and the class of each priority.
func (c Classes) String() string {
	var out []string
	for i := range Priorities {
		if c.TSA[i] == ETS {
			out = append(out, fmt.Sprintf("%d:%d", i, c.Percent[i]))
		} else {
			out = append(out, fmt.Sprintf("%d:%s", i, c.TSA[i]))
		}
	}
	for i := range Priorities {
		out = append(out, fmt.Sprintf("%d>%d", i, c.Class[i]))
	}
	return strings.Join(out, " ")
}

// String prints sizes and map.
func (b Buffers) String() string {
	var out []string
	for i := range Priorities {
		out = append(out, fmt.Sprintf("%d:%d", i, b.Size[i]))
	}
	for i := range Priorities {
		out = append(out, fmt.Sprintf("%d>%d", i, b.Buffer[i]))
	}
	return strings.Join(out, " ")
}
