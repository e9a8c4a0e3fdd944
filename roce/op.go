package roce

import (
	"fmt"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// The operations. Each says what is to be, not what changes, so that doing one
// twice is the same as once.
type (
	// SetPortType makes a port InfiniBand or Ethernet. The card's RDMA device
	// and network interfaces are re-created.
	SetPortType struct {
		link.On
		Port PortType // where
		Type units.PortType
	}
	// SetNodeDesc sets the node description.
	SetNodeDesc struct {
		link.On
		Desc string
	}
	// SetVersion sets the RoCE version of RDMA-CM's new connections.
	SetVersion struct {
		link.On
		Version int
	}
	// SetToS sets the type of service of RDMA-CM's new connections.
	SetToS struct {
		link.On
		ToS uint8
	}
	// SetDCBX puts the host in charge of the link's DCB. Driver is the link's.
	SetDCBX struct {
		link.On
		Flags  uint8
		Driver string
	}
	// SetPFC sets the priorities with flow control.
	SetPFC struct {
		link.On
		Priority uint8  // bit n is priority n
		Delay    uint16 // 0 leaves it
	}
	// SetECN turns congestion notification of a priority on or off, at both
	// ends of it: notification point and reaction point.
	SetECN struct {
		link.On
		Priority uint8
		Enable   bool
	}
	// SetModprobe writes ModprobeFile.
	SetModprobe struct {
		link.On
		Text string
	}
	// SetETS sets transmission selection.
	SetETS struct {
		link.On
		Classes Classes
	}
	// MapDSCP gives a DSCP its priority, and no other one: the table may have
	// several, of which the driver takes the highest. Replace says that there is
	// one.
	MapDSCP struct {
		link.On
		DSCP, Priority uint8
		Replace        bool
	}
	// ClearDSCP takes all DSCPs out of the table.
	ClearDSCP struct {
		link.On
	}
	// SetTrust selects the header field that a packet's priority is read from.
	SetTrust struct {
		link.On
		Trust units.Trust
	}
	// SetBuffers sets the receive buffers.
	SetBuffers struct {
		link.On
		Buffers Buffers
	}
	// AddVLAN makes a VLAN, macvlan or ipvlan interface, in the network namespace of VLAN if
	// it has one. On is the parent; Address is invalid but for macvlans.
	AddVLAN struct {
		link.On
		Name    string
		VLAN    units.VLAN
		Address ib.HWAddr
	}
	// AddSoft makes a software RDMA device.
	AddSoft struct {
		link.On
		Name   string
		Driver units.SoftDriver
	}
	// SetVLAN sets mode, flags and maps of such an interface to what VLAN says. On is the
	// parent; DropIngress and DropEgress are entries of the maps that go.
	SetVLAN struct {
		link.On
		Name                    string
		VLAN                    units.VLAN
		DropIngress, DropEgress []uint32
	}
	// DelVLAN removes such an interface that we made. On is the parent.
	DelVLAN struct {
		link.On
		Name string
		Kind units.VLANKind
	}
	// DelSoft removes a software RDMA device that we made.
	DelSoft struct {
		link.On
		Name  string
		Index uint32
	}
	// SetAutoprobe sets whether drivers bind to new virtual functions.
	SetAutoprobe struct {
		link.On
		Bus, Dev string
		Probe    bool
	}
	// SetVFs makes and removes virtual functions. From one number to another the
	// way leads through none; if the card then does not make the new number, Old,
	// the number that there was, is made again.
	SetVFs struct {
		link.On
		Bus, Dev   string
		Old, Count int
	}
	// SetVF sets one attribute of a virtual function, and puts back Old, what
	// it was, if the function then has neither the one nor the other.
	SetVF struct {
		link.On
		VF        int
		Attr, Old VFAttr
	}
	// SetVFGUIDs gives a virtual function new GUIDs atomically: it sets them at the
	// physical function, re-probes the function's driver, which reads a GUID at no
	// other time, and compares what the function then reports. If any of it fails,
	// it restores the former GUIDs. A nil GUID is not changed.
	SetVFGUIDs struct {
		link.On
		VF               int
		Node, Port       *ib.GUID
		OldNode, OldPort *ib.GUID
		Bus, Dev         string // of the function
	}
	// RebindVF takes a virtual function from its driver and gives it back, so
	// that it takes the GUID that it has at the physical function already.
	RebindVF struct {
		link.On
		VF       int
		Bus, Dev string
		Node     ib.GUID // that it is to have then
	}
)

func onOff(v bool) string {
	if v {
		return "on"
	}
	return "off"
}

// setting names what an operation sets, without the value, for Contested.
func setting(op link.Op) string {
	switch o := op.(type) {
	case SetPFC:
		if o.Delay != 0 {
			return "CableLength"
		}
		return "PFC"
	case SetETS:
		return "ETS"
	case SetTrust:
		return "Trust"
	case SetBuffers:
		return "BufferSize"
	case SetDCBX:
		return "DCBX"
	case SetVersion:
		return "Version"
	case SetToS:
		return "TypeOfService"
	case SetNodeDesc:
		return "NodeDescription"
	case MapDSCP:
		return fmt.Sprintf("DSCP %d", o.DSCP)
	case ClearDSCP:
		return "DSCP"
	case SetECN:
		return fmt.Sprintf("ECN %d", o.Priority)
	case SetVLAN:
		return "VLAN " + o.Name
	case SetEthtool:
		return "ethtool " + ethtoolOption(o.Group)
	case SetVFs:
		return "Count"
	case RebindVF:
		return fmt.Sprintf("VF %d GUID", o.VF)
	case SetVFGUIDs:
		return fmt.Sprintf("VF %d GUIDs", o.VF)
	case SetVF:
		key, _, _ := strings.Cut(o.Attr.String(), " ")
		return fmt.Sprintf("VF %d %s", o.VF, key)
	}
	return ""
}

// ContestedKey identifies the setting of an operation in State.Contested; "" for
// operations that are never contested.
func ContestedKey(op link.Op) string {
	s := setting(op)
	if s == "" {
		return ""
	}
	return op.Target().String() + "\x00" + s
}

// kindSoft is the kind of a software RDMA device in the record; that of other links is
// IFLA_INFO_KIND.
const kindSoft = "soft"
