package bus

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"

	"ibnetworkd/ib"
	"ibnetworkd/internal/busconn"
	"ibnetworkd/link"
	"ibnetworkd/smctl"
)

// reason is the D-Bus form of link.Reason: code, text, next.
type reason struct{ Code, Text, Next string }

// setting is the D-Bus form of link.Attribute.
type setting struct{ Name, Wanted, Actual, Code, Text, Next string }

// smInfo is the D-Bus form of smctl.Master; GUID 0 means none has answered.
type smInfo struct {
	GUID     uint64
	LID      uint16
	Priority uint8
	State    string
}

// property describes one property of an interface.
type property[T any] struct {
	name, sig, doc string
	get            func(T) any
}

func reasonOf(r link.Reason) reason { return reason{string(r.Code), r.Text, r.Next} }

func list(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

func settings(as []link.Attribute) []setting {
	out := make([]setting, len(as))
	for i, a := range as {
		out[i] = setting{a.Name, a.Wanted, a.Actual, string(a.Why.Code), a.Why.Text, a.Why.Next}
	}
	return out
}

// otherLink is a link in another network namespace.
type otherLink struct{ Name, Kind, Namespace, State, Wanted, Actual, Code, Text, Next string }

func elsewhere(as []link.Attribute) []otherLink {
	out := []otherLink{}
	for _, a := range as {
		if x := a.Away; x.Name != "" {
			out = append(out, otherLink{x.Name, x.Kind, x.Namespace, x.State, a.Wanted, a.Actual, string(a.Why.Code), a.Why.Text, a.Why.Next})
		}
	}
	return out
}

func attribute(s link.Status, name string) link.Attribute {
	for _, a := range s.Attributes {
		if a.Name == name {
			return a
		}
	}
	return link.Attribute{}
}

func number(s string) uint32 {
	n, _ := strconv.ParseUint(strings.TrimSpace(s), 10, 32)
	return uint32(n)
}

func guid(s string) uint64 {
	g, _ := ib.ParseGUID(s)
	return uint64(g)
}

func pkey(s string) uint16 {
	k, _ := ib.ParsePKey(s)
	return uint16(k)
}

func prefix(s string) uint64 {
	if s == "" {
		return 0
	}
	if g, err := ib.ParseGID(strings.TrimSuffix(s, "/64")); err == nil {
		return g.Prefix()
	}
	n, _ := strconv.ParseUint(s, 0, 64)
	return n
}

func usec(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(t.UnixMicro())
}

// lease is the D-Bus form of a DHCP client.
type lease struct {
	State, Address, Server string
	Lifetime               uint32
	Granted                uint64
}

func leaseOf(d *link.DHCP) (out lease) {
	if d == nil {
		return out
	}
	out.State = string(d.State)
	if l := d.Lease; l != nil {
		out.Server, out.Lifetime, out.Granted = l.Server.String(), l.Lifetime, l.Granted
		if l.Address.IsValid() {
			out.Address = l.Address.String()
		}
	}
	return out
}

// linkProps is org.ibnetwork1.Link.
var linkProps = []property[link.Status]{
	{"Name", "s", "The interface name.", func(s link.Status) any { return s.Name }},
	{"Ifindex", "i", "The interface index; 0 for a link that is wanted and does not exist yet.",
		func(s link.Status) any { return int32(s.Ifindex) }},
	{"Kind", "s", "The kind of interface: ipoib, ether ...", func(s link.Status) any { return s.Kind }},
	{"IBDevice", "s", "The RDMA device below, such as mlx5_0.", func(s link.Status) any { return s.IBDevice }},
	{"Port", "u", "The port of the RDMA device, from 1; 0 for none.", func(s link.Status) any { return uint32(s.Port) }},
	{"PartitionKey", "q", "The P_Key of an IPoIB interface with its membership bit; 0 for none.",
		func(s link.Status) any { return pkey(s.PKey) }},
	{"Parent", "s", "For a P_Key child, the interface it was made on.", func(s link.Status) any { return s.Parent }},
	{"HardwareAddress", "s", "The link-layer address in hexadecimal bytes with colons.", func(s link.Status) any { return s.HWAddr }},
	{"Unit", "s", "The path of the unit file that applies, empty for none.", func(s link.Status) any { return s.Unit }},
	{"DropIns", "as", "The drop-ins of the unit in the order they apply.", func(s link.Status) any { return list(s.DropIns) }},
	{"MadeByUs", "b", "Whether ibnetworkd made this interface.", func(s link.Status) any { return s.MadeByUs }},
	{"State", "s", "The administrative state: pending, configuring, configured, unmanaged or failed.",
		func(s link.Status) any { return string(s.State) }},
	{"OperationalState", "s", "The operational state: missing, off, no-carrier, dormant, degraded-carrier, carrier, degraded, " +
		"enslaved, routable.", func(s link.Status) any { return string(s.Oper) }},
	{"Carrier", "b", "Whether the link has carrier: port Active and broadcast group joined.", func(s link.Status) any { return s.Carrier }},
	{"RequiredForOnline", "b", "Whether the host counts as online only with this link.", func(s link.Status) any { return s.Required }},
	{"RequiredOperationalState", "(ss)", "The least and the greatest operational state that count as online.", func(s link.Status) any {
		return struct{ Min, Max string }{string(s.RequiredMin), string(s.RequiredMax)}
	}},
	{"Online", "b", "Whether the link is as online as its unit requires.", func(s link.Status) any { return s.Online }},
	{"Reasons", "a(sss)", "Why State is not configured or there is no carrier, most important first: stable code, sentence, next step.",
		func(s link.Status) any {
			out := make([]reason, len(s.Reasons))
			for i, r := range s.Reasons {
				out[i] = reasonOf(r)
			}
			return out
		}},
	{"Mode", "s", "The IPoIB transport mode that is set.", func(s link.Status) any { return attribute(s, "Mode").Actual }},
	{"ModeWanted", "s", "The mode in the unit, empty for none.", func(s link.Status) any { return attribute(s, "Mode").Wanted }},
	{"ModeReason", "(sss)", "Why Mode is not as wanted: code, sentence, next step; empty where it is.",
		func(s link.Status) any { return reasonOf(attribute(s, "Mode").Why) }},
	{"MTUBytes", "u", "The MTU in bytes.", func(s link.Status) any { return number(attribute(s, "MTUBytes").Actual) }},
	{"MTUBytesWanted", "s", "The MTU in the unit: a number of bytes, max, or empty for none.",
		func(s link.Status) any { return attribute(s, "MTUBytes").Wanted }},
	{"MTUBytesReason", "(sss)", "Why MTUBytes is not as wanted: code, sentence, next step; empty where it is.",
		func(s link.Status) any { return reasonOf(attribute(s, "MTUBytes").Why) }},
	{"GIDIndex", "i", "The index of the RoCE v2 GID of the link's IPv4 address in the GID table of its RDMA port, -1 for none. " +
		"A signal reports when it moves.", func(s link.Status) any {
		if a := attribute(s, "GIDIndexIPv4").Actual; a != "" {
			return int32(number(a))
		}
		return int32(-1)
	}},
	{"GIDIndexReason", "(sss)", "Why GIDIndex is not that of the unit: code, sentence, next step; empty where it is.",
		func(s link.Status) any { return reasonOf(attribute(s, "GIDIndex").Why) }},
	{"Settings", "a(ssssss)", "Every setting: the unit file's key, wanted, actual, and why they differ as code, sentence, next step.",
		func(s link.Status) any {
			return settings(s.Attributes)
		}},
	{"OtherNamespaces", "a(sssssssss)", "The links below this one that its unit configures and that are in another network namespace, " +
		"or are to be there: name, kind, network namespace (empty if another program moved the link), state (up, down, absent or " +
		"not checked), wanted, actual, and why they differ as code, sentence, next step.",
		func(s link.Status) any { return elsewhere(s.Attributes) }},
	{"Lease", "(sssut)", "The DHCP client: its state, the address with its prefix length, the server, the lifetime in seconds " +
		"(4294967295 for no end), and the seconds since boot when it was granted; empty and 0 where there is none.",
		func(s link.Status) any { return leaseOf(s.DHCP) }},
	{"Lease6", "(sssut)", "The DHCPv6 client, in the same form; the address is empty where it has information alone.",
		func(s link.Status) any { return leaseOf(s.DHCP6) }},
	{"DHCP", "a{sv}", "The DHCP clients by family, ipv4 and ipv6: for each a dictionary (a{sv}) with the keys of dhcp and dhcp6 in the " +
		"JSON form of the status. Strings are s, numbers t, lists of addresses and domains as, routes aa{sv}.",
		func(s link.Status) any { return dhcpOf(s) }},
	{"IPv4Probes", "aa{sv}", "What ARP probes have found about IPv4 addresses, with the keys of probes in the JSON form of the status.",
		func(s link.Status) any { return probesOf(s) }},
	{"Addresses", "as", "The IP addresses with their prefix lengths.", func(s link.Status) any { return list(s.Addresses) }},
	{"IPv4AddressState", "s", "How far the IPv4 addresses reach: off, degraded (link-local only) or routable.",
		func(s link.Status) any { return string(s.IPv4State) }},
	{"IPv6AddressState", "s", "How far the IPv6 addresses reach, in the same words.", func(s link.Status) any { return string(s.IPv6State) }},
	{"PendingOperations", "as", "What is still to be done, as the commands an administrator would type.",
		func(s link.Status) any { return list(s.Pending) }},
	{"Problems", "as", "The mistakes in the unit's files with their places.", func(s link.Status) any { return list(s.Problems) }},
}

// portProps is org.ibnetwork1.Port.
var portProps = []property[link.PortStatus]{
	{"IBDevice", "s", "The RDMA device, such as mlx5_0.", func(p link.PortStatus) any { return p.IBDevice }},
	{"Port", "u", "The port number, from 1.", func(p link.PortStatus) any { return uint32(p.Port) }},
	{"LinkLayer", "s", "InfiniBand or Ethernet.", func(p link.PortStatus) any { return p.LinkLayer }},
	{"State", "s", "The logical state: Down, Initializing, Armed, Active.", func(p link.PortStatus) any { return p.State }},
	{"PhysicalState", "s", "The physical state: Polling, LinkUp, Disabled ...", func(p link.PortStatus) any { return p.PhysState }},
	{"LID", "q", "The base LID; 0 for none.", func(p link.PortStatus) any { return p.LID }},
	{"SMLID", "q", "The LID of the subnet manager that configured the port; 0 for none.", func(p link.PortStatus) any { return p.SMLID }},
	{"PortGUID", "t", "The port GUID.", func(p link.PortStatus) any { return guid(p.PortGUID) }},
	{"NodeGUID", "t", "The node GUID.", func(p link.PortStatus) any { return guid(p.NodeGUID) }},
	{"SubnetPrefix", "t", "The first half of the port's GIDs.", func(p link.PortStatus) any { return prefix(p.SubnetPrefix) }},
	{"Rate", "s", "The rate in sysfs's words: 100 Gb/sec (4X EDR).", func(p link.PortStatus) any { return p.Rate }},
	{"PartitionKeys", "aq", "The P_Key table without its empty entries.", func(p link.PortStatus) any {
		out := make([]uint16, len(p.PKeys))
		for i, k := range p.PKeys {
			out[i] = pkey(k)
		}
		return out
	}},
	{"Links", "as", "The interfaces over the port.", func(p link.PortStatus) any { return list(p.Links) }},
	{"Unit", "s", "The unit file that matches the port's main interface.", func(p link.PortStatus) any { return p.Unit }},
	{"Reason", "(sss)", "Why the port is not Active, has no interface, or differs from its unit: code, sentence, next step.",
		func(p link.PortStatus) any { return reasonOf(p.Reason) }},
	{"Settings", "a(ssssss)", "Every setting of a port without an interface, as those of a link: the unit file's key, wanted, " +
		"actual, and why they differ as code, sentence, next step.", func(p link.PortStatus) any { return settings(p.Attributes) }},
	{"PendingOperations", "as", "What is still to be done on a port without an interface, as the commands an administrator would type.",
		func(p link.PortStatus) any { return list(p.Pending) }},
}

// smProps is org.ibnetwork1.SubnetManager.
var smProps = []property[smctl.Status]{
	{"PortGUID", "t", "The GUID of the port.", func(s smctl.Status) any { return guid(s.PortGUID) }},
	{"IBDevice", "s", "The RDMA device of the port.", func(s smctl.Status) any { return s.IBDevice }},
	{"Port", "u", "The port number, from 1.", func(s smctl.Status) any { return uint32(s.Port) }},
	{"Manage", "s", "The unit's Manage=: auto, always or no.", func(s smctl.Status) any { return s.Manage }},
	{"Engine", "s", "The unit's Engine=: builtin or opensm.", func(s smctl.Status) any { return s.Engine }},
	{"Unit", "s", "The unit file with these settings.", func(s smctl.Status) any { return s.Unit }},
	{"Phase", "s", "The state: off, no-link, served, settling, asking, unserved, blocked, starting, running, master, standby, " +
		"stopping, backing-off, stopped, no-qp0, sm-disabled, nvswitch, omni-path.", func(s smctl.Status) any { return string(s.Phase) }},
	{"Reason", "s", "Why, as a sentence.", func(s smctl.Status) any { return s.Reason }},
	{"NextStep", "s", "What can be done about it, a command or an imperative; empty for nothing.", func(s smctl.Status) any { return s.Next }},
	{"FileProblem", "s", "What is wrong with a file that the unit's settings name; empty for nothing.",
		func(s smctl.Status) any { return s.FileProblem }},
	{"NextCheckUSec", "t", "When it is decided again although nothing happens, in microseconds since 1970; 0 for never. One that has " +
		"passed was put off without a signal.", func(s smctl.Status) any { return usec(s.NextCheck) }},
	{"Worker", "s", "The systemd unit that runs the program.", func(s smctl.Status) any { return s.Worker }},
	{"WorkerState", "s", "Its state: inactive, activating, active, deactivating, failed, or empty if it is not known.",
		func(s smctl.Status) any { return s.WorkerState }},
	{"WorkerText", "s", "The program's own status text (STATUS= of sd_notify).", func(s smctl.Status) any { return s.WorkerText }},
	{"WorkerSinceUSec", "t", "Since when, in microseconds since 1970.", func(s smctl.Status) any { return usec(s.WorkerSince) }},
	{"ByHand", "s", "start or stop when a person has overruled the unit.", func(s smctl.Status) any { return s.Override }},
	{"Master", "(tqys)", "The subnet manager that answered last: GUID, LID, priority, state.", func(s smctl.Status) any {
		if s.Master == nil {
			return smInfo{}
		}
		return smInfo{guid(s.Master.GUID), s.Master.LID, s.Master.Priority, s.Master.State}
	}},
	{"Starts", "u", "How often this daemon has started it.", func(s smctl.Status) any { return uint32(s.Starts) }},
}

// managerState is what the manager's own properties are made from.
type managerState struct {
	version, online, logLevel string
	problems                  []string
	notices                   []link.Notice
	links, ports              int
}

type notice struct{ Unit, Code, Text, Next string }

// managerProps is org.ibnetwork1.Manager.
var managerProps = []property[managerState]{
	{"Version", "s", "The version of the daemon.", func(m managerState) any { return m.version }},
	{"OnlineState", "s", "The state of the links that are required for online, as wait-online evaluates it: online, partial or offline; " +
		"offline too while a unit requires a link and none that it matches exists.", func(m managerState) any { return m.online }},
	{"LogLevel", "s", "debug, info, warn or error.", func(m managerState) any { return m.logLevel }},
	{"Problems", "as", "The mistakes in all unit files with their places.", func(m managerState) any { return list(m.problems) }},
	{"Notices", "a(ssss)", "Notices about units and about the host as a whole: a unit's path or an empty string, a code, a sentence " +
		"and the next step.", func(m managerState) any {
		out := make([]notice, 0, len(m.notices))
		for _, n := range m.notices {
			out = append(out, notice{busconn.Clean(n.Unit), string(n.Code), busconn.Clean(n.Text), busconn.Clean(n.Next)})
		}
		return out
	}},
	{"NLinks", "u", "The number of links.", func(m managerState) any { return uint32(m.links) }},
	{"NPorts", "u", "The number of RDMA ports.", func(m managerState) any { return uint32(m.ports) }},
}

// state is what an object's properties are made from. It does not change: another
// state has another value.
type state interface {
	// same reports whether old is this state.
	same(old state) bool
	// value is a property, and whether there is one of that name.
	value(name string) (dbus.Variant, bool)
	// values are all properties.
	values() map[string]dbus.Variant
	// since are the properties that differ from those of old.
	since(old state) map[string]dbus.Variant
}

// stateOf is a state and the table of its properties. A property is made for each
// reader: hundreds of links have tens of them each.
type stateOf[T any] struct {
	table []property[T]
	v     T
}

func (s *stateOf[T]) same(old state) bool {
	o, ok := old.(*stateOf[T])
	return ok && reflect.DeepEqual(o.v, s.v)
}

func (s *stateOf[T]) value(name string) (v dbus.Variant, ok bool) {
	for _, p := range s.table {
		if p.name == name {
			return dbus.MakeVariant(clean(p.get(s.v))), true
		}
	}
	return v, false
}

func (s *stateOf[T]) values() map[string]dbus.Variant {
	out := make(map[string]dbus.Variant, len(s.table))
	for _, p := range s.table {
		out[p.name] = dbus.MakeVariant(clean(p.get(s.v)))
	}
	return out
}

func (s *stateOf[T]) since(old state) map[string]dbus.Variant {
	o, ok := old.(*stateOf[T])
	if !ok {
		return s.values()
	}
	out := map[string]dbus.Variant{}
	for _, p := range s.table {
		if v := p.get(s.v); !reflect.DeepEqual(v, p.get(o.v)) {
			out[p.name] = dbus.MakeVariant(clean(v))
		}
	}
	return out
}

// describe turns a table into introspection data.
func describeProps[T any](b *strings.Builder, iface string, table []property[T]) {
	for _, p := range table {
		access := "read"
		if _, ok := setters[iface+"."+p.name]; ok {
			access = "readwrite"
		}
		fmt.Fprintf(b, "  <property name=%q type=%q access=%q>\n%s  </property>\n", p.name, p.sig, access, doc(p.doc, "   "))
	}
}
