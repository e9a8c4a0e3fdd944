package roce

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// The operations. Each says what is to be, not what changes, so that doing one
// twice is the same as once.
type (
	// SetPortType makes a port InfiniBand or Ethernet. The card's RDMA device
	// and network interfaces are made anew.
	SetPortType struct {
		On   link.Target
		Port PortType // where
		Type units.PortType
	}
	// SetNodeDesc sets the node description.
	SetNodeDesc struct {
		On   link.Target
		Desc string
	}
	// SetVersion sets the RoCE version of RDMA-CM's new connections.
	SetVersion struct {
		On      link.Target
		Version int
	}
	// SetToS sets the type of service of RDMA-CM's new connections.
	SetToS struct {
		On  link.Target
		ToS uint8
	}
	// SetDCBX puts the host in charge of the link's DCB. Driver is the link's.
	SetDCBX struct {
		On     link.Target
		Flags  uint8
		Driver string
	}
	// SetPFC sets the priorities with flow control.
	SetPFC struct {
		On       link.Target
		Priority uint8  // bit n is priority n
		Delay    uint16 // 0 leaves it
	}
	// SetECN turns congestion notification of a priority on or off, at both
	// ends of it: notification point and reaction point.
	SetECN struct {
		On       link.Target
		Priority uint8
		Enable   bool
	}
	// SetModprobe writes ModprobeFile.
	SetModprobe struct {
		On   link.Target
		Text string
	}
	// SetETS sets transmission selection.
	SetETS struct {
		On      link.Target
		Classes Classes
	}
	// MapDSCP gives a DSCP its priority, and no other one: the table may have
	// several, of which the driver takes the highest. Replace says that there is
	// one.
	MapDSCP struct {
		On             link.Target
		DSCP, Priority uint8
		Replace        bool
	}
	// ClearDSCP takes all DSCPs out of the table.
	ClearDSCP struct {
		On link.Target
	}
	// SetTrust says which header field tells a packet's priority.
	SetTrust struct {
		On    link.Target
		Trust units.Trust
	}
	// SetBuffers sets the receive buffers.
	SetBuffers struct {
		On      link.Target
		Buffers Buffers
	}
	// AddVLAN makes a VLAN interface. On is the parent.
	AddVLAN struct {
		On   link.Target
		Name string
		VLAN units.VLAN
	}
	// AddSoft makes a software RDMA device.
	AddSoft struct {
		On     link.Target
		Name   string
		Driver units.SoftDriver
	}
	// SetVLAN sets flags and maps of a VLAN interface to what VLAN says. On is the
	// parent; DropIngress and DropEgress are entries of the maps that go.
	SetVLAN struct {
		On                      link.Target
		Name                    string
		VLAN                    units.VLAN
		DropIngress, DropEgress []uint32
	}
	// DelVLAN removes a VLAN interface that we made. On is the parent.
	DelVLAN struct {
		On   link.Target
		Name string
	}
	// DelSoft removes a software RDMA device that we made.
	DelSoft struct {
		On    link.Target
		Name  string
		Index uint32
	}
	// SetAutoprobe says whether drivers bind to new virtual functions.
	SetAutoprobe struct {
		On       link.Target
		Bus, Dev string
		Probe    bool
	}
	// SetVFs makes and removes virtual functions. From one number to another the
	// way leads through none; if the card then does not make the new number, Old,
	// the number that there was, is made again.
	SetVFs struct {
		On         link.Target
		Bus, Dev   string
		Old, Count int
	}
	// SetVF sets one attribute of a virtual function, and puts back Old, what
	// it was, if the function then has neither the one nor the other.
	SetVF struct {
		On        link.Target
		VF        int
		Attr, Old VFAttr
	}
	// SetVFGUIDs gives a virtual function new GUIDs as one thing: they are set
	// at the physical function, the function's driver probes anew, because it
	// takes a GUID at no other time, and what the function then says of itself
	// is compared. If any of it fails, the former GUIDs come back. A nil GUID
	// is left alone.
	SetVFGUIDs struct {
		On               link.Target
		VF               int
		Node, Port       *ib.GUID
		OldNode, OldPort *ib.GUID
		Bus, Dev         string // of the function
	}
	// RebindVF takes a virtual function from its driver and gives it back, so
	// that it takes the GUID that it has at the physical function already.
	RebindVF struct {
		On       link.Target
		VF       int
		Bus, Dev string
		Node     ib.GUID // that it is to have then
	}
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

// Holds reports whether a virtual function has the attribute as it is here, as
// far as its driver tells.
func (a VFAttr) Holds(v *VF) bool {
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

// Of is the same attribute as a function has it now; zero if its driver does not
// tell.
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

func protoOf(p units.VLANProtocol) units.VLANProtocol {
	if p == 0 {
		return units.VLAN8021Q
	}
	return p
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

func onOff(v bool) string {
	if v {
		return "on"
	}
	return "off"
}

// Target implements link.Op for all of them.
func (o SetPortType) Target() link.Target  { return o.On }
func (o SetNodeDesc) Target() link.Target  { return o.On }
func (o SetVersion) Target() link.Target   { return o.On }
func (o SetToS) Target() link.Target       { return o.On }
func (o SetDCBX) Target() link.Target      { return o.On }
func (o SetPFC) Target() link.Target       { return o.On }
func (o SetECN) Target() link.Target       { return o.On }
func (o SetModprobe) Target() link.Target  { return o.On }
func (o SetETS) Target() link.Target       { return o.On }
func (o MapDSCP) Target() link.Target      { return o.On }
func (o ClearDSCP) Target() link.Target    { return o.On }
func (o SetTrust) Target() link.Target     { return o.On }
func (o SetBuffers) Target() link.Target   { return o.On }
func (o AddVLAN) Target() link.Target      { return o.On }
func (o AddSoft) Target() link.Target      { return o.On }
func (o SetVLAN) Target() link.Target      { return o.On }
func (o DelVLAN) Target() link.Target      { return o.On }
func (o DelSoft) Target() link.Target      { return o.On }
func (o SetAutoprobe) Target() link.Target { return o.On }
func (o SetVFs) Target() link.Target       { return o.On }
func (o SetVF) Target() link.Target        { return o.On }
func (o SetVFGUIDs) Target() link.Target   { return o.On }
func (o RebindVF) Target() link.Target     { return o.On }

// String prints devlink port set, or the write to the driver's file.
func (o SetPortType) String() string {
	if o.Port.File != "" {
		return fmt.Sprintf("echo %s > /sys/bus/%s/devices/%s/%s", o.Type, o.Port.Bus, o.Port.Dev, o.Port.File)
	}
	return fmt.Sprintf("devlink port set %s/%s/%d type %s", o.Port.Bus, o.Port.Dev, o.Port.Index, o.Type)
}

// String prints the write to node_desc.
func (o SetNodeDesc) String() string {
	return fmt.Sprintf("echo %s > /sys/class/infiniband/%s/node_desc", quote(o.Desc), o.On.IBDevice)
}

// quote writes a word as a shell needs it.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func (o SetVersion) word() string {
	if o.Version == 1 {
		return "IB/RoCE v1"
	}
	return "RoCE v2"
}

func cmPort(t link.Target) string {
	return fmt.Sprintf("/sys/kernel/config/rdma_cm/%s/ports/%d", t.IBDevice, t.Port)
}

// String prints the write below configfs; the directory of the device has to be
// made first, which the shell line does too.
func (o SetVersion) String() string {
	return fmt.Sprintf("mkdir -p /sys/kernel/config/rdma_cm/%s && echo %s > %s/default_roce_mode", o.On.IBDevice, quote(o.word()), cmPort(o.On))
}

// String prints the write below configfs.
func (o SetToS) String() string {
	return fmt.Sprintf("mkdir -p /sys/kernel/config/rdma_cm/%s && echo %d > %s/default_roce_tos", o.On.IBDevice, o.ToS, cmPort(o.On))
}

// String prints dcb dcbx set.
func (o SetDCBX) String() string {
	var words []string
	for _, f := range []struct {
		bit  uint8
		word string
	}{{0x01, "host"}, {0x02, "lld-managed"}, {0x04, "cee"}, {0x08, "ieee"}, {0x10, "static"}} {
		if o.Flags&f.bit != 0 {
			words = append(words, f.word)
		}
	}
	return fmt.Sprintf("dcb dcbx set dev %s %s", o.On.Link, strings.Join(words, " "))
}

// String prints dcb pfc set with all priorities.
func (o SetPFC) String() string {
	var words []string
	for p := range Priorities {
		words = append(words, fmt.Sprintf("%d:%s", p, onOff(o.Priority&(1<<p) != 0)))
	}
	out := fmt.Sprintf("dcb pfc set dev %s prio-pfc %s", o.On.Link, strings.Join(words, " "))
	if o.Delay != 0 {
		out += fmt.Sprintf(" delay %d", o.Delay)
	}
	return out
}

// String prints the writes to the driver's files.
func (o SetECN) String() string {
	n := 0
	if o.Enable {
		n = 1
	}
	dir := "/sys/class/net/" + o.On.Link + "/ecn"
	return fmt.Sprintf("echo %d > %s/roce_np/enable/%d && echo %d > %s/roce_rp/enable/%d", n, dir, o.Priority, n, dir, o.Priority)
}

// String prints the write of the file.
func (o SetModprobe) String() string {
	return fmt.Sprintf("echo %s > %s", quote(strings.TrimSuffix(o.Text, "\n")), ModprobeFile)
}

// String prints dcb ets set with all classes.
func (o SetETS) String() string {
	var tsa, bw, tc []string
	for i := range Priorities {
		tsa = append(tsa, fmt.Sprintf("%d:%s", i, o.Classes.TSA[i]))
		bw = append(bw, fmt.Sprintf("%d:%d", i, o.Classes.Percent[i]))
		tc = append(tc, fmt.Sprintf("%d:%d", i, o.Classes.Class[i]))
	}
	return fmt.Sprintf("dcb ets set dev %s tc-tsa %s tc-bw %s prio-tc %s", o.On.Link, strings.Join(tsa, " "), strings.Join(bw, " "), strings.Join(tc, " "))
}

// String prints dcb app add, or replace, which adds and then deletes the other
// priorities of the DSCP.
func (o MapDSCP) String() string {
	verb := "add"
	if o.Replace {
		verb = "replace"
	}
	return fmt.Sprintf("dcb app %s dev %s dscp-prio %d:%d", verb, o.On.Link, o.DSCP, o.Priority)
}

// String prints dcb app flush.
func (o ClearDSCP) String() string { return fmt.Sprintf("dcb app flush dev %s dscp-prio", o.On.Link) }

// String prints dcb apptrust set.
func (o SetTrust) String() string {
	return fmt.Sprintf("dcb apptrust set dev %s order %s", o.On.Link, o.Trust)
}

// String prints dcb buffer set with all buffers.
func (o SetBuffers) String() string {
	var prio, size []string
	for i := range Priorities {
		prio = append(prio, fmt.Sprintf("%d:%d", i, o.Buffers.Buffer[i]))
		size = append(size, fmt.Sprintf("%d:%d", i, o.Buffers.Size[i]))
	}
	return fmt.Sprintf("dcb buffer set dev %s prio-buffer %s buffer-size %s", o.On.Link, strings.Join(prio, " "), strings.Join(size, " "))
}

// String prints ip link add ... type vlan.
func (o AddVLAN) String() string {
	out := fmt.Sprintf("ip link add link %s name %s", o.On.Link, o.Name)
	if m, ok := o.VLAN.MTUBytes.Get(); ok && !m.Max {
		out += fmt.Sprintf(" mtu %d", m.Bytes)
	}
	out += " type vlan"
	if o.VLAN.Protocol.Or(units.VLAN8021Q) == units.VLAN8021AD {
		out += " protocol 802.1ad"
	}
	return out + fmt.Sprintf(" id %d", o.VLAN.Id.V) + vlanWords(&o.VLAN, nil, nil)
}

// String prints ip link set ... type vlan; a priority that is mapped to 0 is not
// mapped any more.
func (o SetVLAN) String() string {
	return "ip link set dev " + o.Name + " type vlan" + vlanWords(&o.VLAN, o.DropIngress, o.DropEgress)
}

// vlanWords are flags and maps of a VLAN in the words of ip link, with a blank
// before each.
func vlanWords(v *units.VLAN, dropIngress, dropEgress []uint32) string {
	var b strings.Builder
	for _, f := range vlanFlags(v) {
		if f.want.Set {
			b.WriteString(" " + f.word + " " + onOff(f.want.V))
		}
	}
	maps := func(word string, m map[uint32]uint32, drop []uint32) {
		for _, from := range drop {
			m[from] = 0
		}
		if text := qosText(m); text != "" {
			b.WriteString(" " + word + " " + text)
		}
	}
	maps("ingress-qos-map", qosMap(v.IngressQOSMaps), dropIngress)
	maps("egress-qos-map", qosMap(v.EgressQOSMaps), dropEgress)
	return b.String()
}

type vlanFlag struct {
	word string
	want units.Value[bool]
	bit  uint32
}

func vlanFlags(v *units.VLAN) []vlanFlag {
	return []vlanFlag{{"reorder_hdr", v.ReorderHeader, link.VLANReorderHeader}, {"gvrp", v.GVRP, link.VLANGVRP}, {"mvrp", v.MVRP, link.VLANMVRP}, {"loose_binding", v.LooseBinding, link.VLANLooseBinding}}
}

// qosMap is a unit's map of priorities; of an assignment that is repeated the
// last one counts.
func qosMap(ms []units.Value[units.QOSMap]) map[uint32]uint32 {
	out := map[uint32]uint32{}
	for _, m := range ms {
		out[m.V.From] = m.V.To
	}
	return out
}

func qosText(m map[uint32]uint32) string {
	var out []string
	for _, from := range slices.Sorted(maps.Keys(m)) {
		out = append(out, fmt.Sprintf("%d:%d", from, m[from]))
	}
	return strings.Join(out, " ")
}

// String prints rdma link add.
func (o AddSoft) String() string {
	return fmt.Sprintf("rdma link add %s type %s netdev %s", o.Name, o.Driver, o.On.Link)
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
// driver probe anew.
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
	return fmt.Sprintf("echo %s > /sys/bus/%s/devices/%s/driver/unbind && echo %s > /sys/bus/%s/drivers_probe", o.Dev, o.Bus, o.Dev, o.Dev, o.Bus)
}

// setting names what an operation sets, without the value, for Fought.
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

// FoughtKey identifies the setting of an operation in State.Fought; "" for
// operations that nobody fights over.
func FoughtKey(op link.Op) string {
	s := setting(op)
	if s == "" {
		return ""
	}
	return op.Target().String() + "\x00" + s
}

// sortedDSCP lists a map's keys in order.
func sortedDSCP(m map[uint8]uint8) []uint8 {
	out := make([]uint8, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// Kinds of what is kept in the record as made.
const (
	kindVLAN = "vlan"
	kindSoft = "soft"
)

// Makes implements link.Maker.
func (o AddVLAN) Makes() (link.Made, bool) {
	return link.Made{Kind: kindVLAN, Name: o.Name, On: o.On.Ifindex}, false
}

// Makes implements link.Maker.
func (o DelVLAN) Makes() (link.Made, bool) {
	return link.Made{Kind: kindVLAN, Name: o.Name, On: o.On.Ifindex}, true
}

// Makes implements link.Maker.
func (o AddSoft) Makes() (link.Made, bool) {
	return link.Made{Kind: kindSoft, Name: o.Name, On: o.On.Ifindex}, false
}

// Makes implements link.Maker.
func (o DelSoft) Makes() (link.Made, bool) {
	return link.Made{Kind: kindSoft, Name: o.Name, On: o.On.Ifindex}, true
}

// String prints ip link delete.
func (o DelVLAN) String() string { return "ip link delete " + o.Name }

// String prints rdma link delete.
func (o DelSoft) String() string { return "rdma link delete " + o.Name }
