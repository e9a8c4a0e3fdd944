package roce

import (
	"fmt"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/units"
)

// VFAttr is one attribute of a virtual function: exactly one field is set.
type VFAttr struct {
	NodeGUID, PortGUID *ib.GUID
	LinkState          *units.VFLinkState
	Trust, Spoof       *bool
	MinRate, MaxRate   *uint32 // both or none, Mbit/s
	MAC                ib.HWAddr
	VLAN               *uint16
	QoS                uint8
	Proto              units.VLANProtocol // of VLAN; 0 is 802.1Q
}

// Matches reports whether a virtual function has the attribute, as far as its driver
// reports it.
func (a VFAttr) Matches(v *VF) bool {
	switch {
	case a.NodeGUID != nil:
		return v.NodeGUID == nil || *v.NodeGUID == *a.NodeGUID
	case a.PortGUID != nil:
		return v.PortGUID == nil || *v.PortGUID == *a.PortGUID
	case a.LinkState != nil:
		return v.LinkState == nil || *v.LinkState == *a.LinkState
	case a.Trust != nil:
		return v.Trust == nil || *v.Trust == *a.Trust
	case a.Spoof != nil:
		return v.Spoof == nil || *v.Spoof == *a.Spoof
	case a.MaxRate != nil && a.MinRate != nil:
		return v.MinRate == *a.MinRate && v.MaxRate == *a.MaxRate
	case a.MAC.IsValid():
		return v.MAC == a.MAC
	case a.VLAN != nil:
		return v.VLAN == *a.VLAN && v.QoS == a.QoS && (*a.VLAN == 0 || protoOf(v.Proto) == protoOf(a.Proto))
	}
	return true
}

// Of is the function's current value of the attribute; zero if its driver does not
// report it.
func (a VFAttr) Of(v *VF) (old VFAttr) {
	switch {
	case a.NodeGUID != nil:
		old.NodeGUID = v.NodeGUID
	case a.PortGUID != nil:
		old.PortGUID = v.PortGUID
	case a.LinkState != nil:
		old.LinkState = v.LinkState
	case a.Trust != nil:
		old.Trust = v.Trust
	case a.Spoof != nil:
		old.Spoof = v.Spoof
	case a.MaxRate != nil && a.MinRate != nil:
		lo, hi := v.MinRate, v.MaxRate
		old.MinRate, old.MaxRate = &lo, &hi
	case a.MAC.IsValid():
		old.MAC = v.MAC
	case a.VLAN != nil:
		id := v.VLAN
		old.VLAN, old.QoS, old.Proto = &id, v.QoS, v.Proto
	}
	return old
}

// String prints the words of ip link set ... vf N.
func (a VFAttr) String() string {
	switch {
	case a.NodeGUID != nil:
		return "node_guid " + guidBytes(*a.NodeGUID)
	case a.PortGUID != nil:
		return "port_guid " + guidBytes(*a.PortGUID)
	case a.LinkState != nil:
		return "state " + a.LinkState.String()
	case a.Trust != nil:
		return "trust " + onOff(*a.Trust)
	case a.Spoof != nil:
		return "spoofchk " + onOff(*a.Spoof)
	case a.MaxRate != nil && a.MinRate != nil:
		return fmt.Sprintf("max_tx_rate %d min_tx_rate %d", *a.MaxRate, *a.MinRate)
	case a.MAC.IsValid():
		return "mac " + a.MAC.String()
	case a.VLAN != nil:
		out := fmt.Sprintf("vlan %d", *a.VLAN)
		if a.QoS != 0 {
			out += fmt.Sprintf(" qos %d", a.QoS)
		}
		if protoOf(a.Proto) == units.VLAN8021AD {
			out += " proto 802.1ad"
		}
		return out
	}
	return ""
}

// guidBytes prints a GUID as ip link takes it.
func guidBytes(g ib.GUID) string {
	b := g.Bytes()
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7])
}

// String prints the write to sriov_drivers_autoprobe.
func (o SetAutoprobe) String() string {
	n := 0
	if o.Probe {
		n = 1
	}
	return fmt.Sprintf("echo %d > /sys/bus/%s/devices/%s/sriov_drivers_autoprobe", n, o.Bus, o.Dev)
}

// String prints the writes to sriov_numvfs.
func (o SetVFs) String() string {
	file := fmt.Sprintf("/sys/bus/%s/devices/%s/sriov_numvfs", o.Bus, o.Dev)
	out := fmt.Sprintf("echo %d > %s", o.Count, file)
	if o.Old != 0 && o.Count != 0 {
		out = "echo 0 > " + file + " && " + out
	}
	return out
}

// String prints ip link set ... vf.
func (o SetVF) String() string {
	return fmt.Sprintf("ip link set dev %s vf %d %s", o.On.Link, o.VF, o.Attr)
}

// String prints ip link set ... vf with each GUID, and the writes that make the
// driver probe again.
func (o SetVFGUIDs) String() string {
	var words []string
	for _, a := range o.Attrs() {
		words = append(words, fmt.Sprintf("ip link set dev %s vf %d %s", o.On.Link, o.VF, a))
	}
	return strings.Join(append(words, RebindVF{Bus: o.Bus, Dev: o.Dev}.String()), " && ")
}

// Attrs are the GUIDs to set, one message each.
func (o SetVFGUIDs) Attrs() (out []VFAttr) {
	if o.Node != nil {
		out = append(out, VFAttr{NodeGUID: o.Node})
	}
	if o.Port != nil {
		out = append(out, VFAttr{PortGUID: o.Port})
	}
	return out
}

// String prints the writes to unbind and drivers_probe.
func (o RebindVF) String() string {
	return fmt.Sprintf(
		"echo %s > /sys/bus/%s/devices/%s/driver/unbind && echo %s > /sys/bus/%s/drivers_probe",
		o.Dev,
		o.Bus,
		o.Dev,
		o.Dev,
		o.Bus,
	)
}
