package link

import (
	"fmt"
	"strings"

	"ibnetworkd/ib"
)

// Target names what an operation or a message is about. The zero parts do not
// apply.
type Target struct {
	Link     string `json:"link,omitempty"`    // interface name
	Ifindex  int    `json:"ifindex,omitempty"` // 0 for one that is still to be made
	IBDevice string `json:"ib_device,omitempty"`
	Port     int    `json:"port,omitempty"`
}

// String prints the link's name, else mlx5_0/1, else "host".
func (t Target) String() string {
	switch {
	case t.Link != "":
		return t.Link
	case t.IBDevice != "" && t.Port != 0:
		return fmt.Sprintf("%s/%d", t.IBDevice, t.Port)
	case t.IBDevice != "":
		return t.IBDevice
	}
	return "host"
}

// TargetOf names a link.
func TargetOf(l *Link) Target {
	return Target{Link: l.Name, Ifindex: l.Index, IBDevice: l.IBDevice, Port: l.Port}
}

// Op is one change of the system. String is the command that does the same in
// a shell; it identifies the operation among those of its target (back-off and
// refusals are kept by it), so equal operations print equal text. Rooms other
// than link (ipoib, roce) define their own; the daemon's executor knows how
// each type is carried out.
type Op interface {
	String() string
	Target() Target
}

// Made is a thing that an operation of another room made on a link, which goes
// when no unit asks for it any more.
type Made struct {
	Kind string `json:"kind"` // of that room: soft, vlan
	Name string `json:"name"`
	On   int    `json:"on"` // index of the link
}

// Maker is an operation of another room that makes or removes such a thing.
type Maker interface {
	Op
	Makes() (m Made, remove bool)
}

// SetUp sets the administrative state.
type SetUp struct {
	On Target
	Up bool
}

// SetMTU asks for an MTU in bytes.
type SetMTU struct {
	On  Target
	MTU int
}

// SetMode changes the IPoIB transport mode.
type SetMode struct {
	On   Target
	Mode Mode
}

// SetUmcast changes IFLA_IPOIB_UMCAST.
type SetUmcast struct {
	On  Target
	Set bool
}

// SetFlag sets or clears IFF_ALLMULTI, IFF_MULTICAST, IFF_PROMISC or IFF_NOARP.
type SetFlag struct {
	On   Target
	Flag uint32
	Set  bool
}

// SetGroup sets the group of a link.
type SetGroup struct {
	On    Target
	Group uint32
}

// SetGUID replaces the last 8 bytes of the hardware address. Addr is the
// whole new address; the link must be down.
type SetGUID struct {
	On   Target
	Addr ib.HWAddr
}

// AddChild makes a P_Key child. On names the child (Ifindex 0) with the RDMA
// port of its parent.
type AddChild struct {
	On     Target
	Parent Target
	PKey   ib.PKey
}

// DelLink deletes an interface that this program made.
type DelLink struct{ On Target }

// AddAddress adds an address or (Replace) changes the changeable parts of one
// that is there.
type AddAddress struct {
	On      Target
	Address Address
	Replace bool
}

// DelAddress deletes an address.
type DelAddress struct {
	On      Target
	Address Address
}

// AddRoute adds a route. Replace is set only where the route that stands
// there with the same key is ours; a foreign one is never replaced.
type AddRoute struct {
	On      Target
	Route   Route
	Replace bool
}

// DelRoute deletes a route.
type DelRoute struct {
	On    Target
	Route Route
}

// AddRule adds a routing policy rule. On says which link's unit asks for it.
type AddRule struct {
	On   Target
	Rule Rule
}

// DelRule deletes a routing policy rule.
type DelRule struct {
	On   Target
	Rule Rule
}

// SetSysctl writes a setting of a link. Key is as in Link.Sysctl; keys that
// start with a slash are host-wide, below /proc/sys/net.
type SetSysctl struct {
	On         Target
	Key, Value string
}

// SetDNS hands name servers and domains to systemd-resolved. Both empty and
// Revert set means "take ours back".
type SetDNS struct {
	On      Target
	Servers []string
	Domains []string
	Default Tristate
	Revert  bool
	// Afresh says that what was handed over before and is not named now has to
	// go first.
	Afresh bool
	Resolve
	// Resolved is the systemd-resolved that is told; see Host.Resolved.
	Resolved string
}

// Resolve are the protocols of systemd-resolved on a link, in resolvectl's words;
// "" leaves its own choice.
type Resolve struct {
	LLMNR        string   `json:"llmnr,omitempty"`
	MulticastDNS string   `json:"mdns,omitempty"`
	DNSOverTLS   string   `json:"dns_over_tls,omitempty"`
	DNSSEC       string   `json:"dnssec,omitempty"`
	NTA          []string `json:"nta,omitempty"`
}

// Words are resolvectl's verbs with their values.
func (r Resolve) Words() (out [][2]string) {
	for _, x := range [][2]string{{"llmnr", r.LLMNR}, {"mdns", r.MulticastDNS}, {"dnsovertls", r.DNSOverTLS}, {"dnssec", r.DNSSEC}, {"nta", strings.Join(r.NTA, " ")}} {
		if x[1] != "" {
			out = append(out, x)
		}
	}
	return out
}

// Tristate is a boolean that may be unset.
type Tristate uint8

// The values of Tristate.
const (
	Unset Tristate = iota
	No
	Yes
)

// TristateOf converts a pointer to a boolean.
func TristateOf(b *bool) Tristate {
	switch {
	case b == nil:
		return Unset
	case *b:
		return Yes
	}
	return No
}

// String prints unset, no or yes.
func (t Tristate) String() string {
	switch t {
	case No:
		return "no"
	case Yes:
		return "yes"
	}
	return "unset"
}

// Target implements Op.
func (o SetUp) Target() Target { return o.On }

// Target implements Op.
func (o SetMTU) Target() Target { return o.On }

// Target implements Op.
func (o SetMode) Target() Target { return o.On }

// Target implements Op.
func (o SetUmcast) Target() Target { return o.On }

// Target implements Op.
func (o SetFlag) Target() Target { return o.On }

// Target implements Op.
func (o SetGroup) Target() Target { return o.On }

// Target implements Op.
func (o SetGUID) Target() Target { return o.On }

// Target implements Op.
func (o AddChild) Target() Target { return o.On }

// Target implements Op.
func (o DelLink) Target() Target { return o.On }

// Target implements Op.
func (o AddAddress) Target() Target { return o.On }

// Target implements Op.
func (o DelAddress) Target() Target { return o.On }

// Target implements Op.
func (o AddRoute) Target() Target { return o.On }

// Target implements Op.
func (o DelRoute) Target() Target { return o.On }

// Target implements Op.
func (o AddRule) Target() Target { return o.On }

// Target implements Op.
func (o DelRule) Target() Target { return o.On }

// Target implements Op.
func (o SetSysctl) Target() Target { return o.On }

// Target implements Op.
func (o SetDNS) Target() Target { return o.On }

// String prints ip link set NAME up.
func (o SetUp) String() string {
	if o.Up {
		return "ip link set " + o.On.Link + " up"
	}
	return "ip link set " + o.On.Link + " down"
}

// String prints ip link set NAME mtu N.
func (o SetMTU) String() string { return fmt.Sprintf("ip link set %s mtu %d", o.On.Link, o.MTU) }

// String prints ip link set NAME type ipoib mode MODE, which does for links of
// every kind what the daemon does by a file in sysfs where there is one.
func (o SetMode) String() string {
	return fmt.Sprintf("ip link set %s type ipoib mode %s", o.On.Link, o.Mode)
}

// String prints ip link set NAME type ipoib umcast N.
func (o SetUmcast) String() string {
	n := 0
	if o.Set {
		n = 1
	}
	return fmt.Sprintf("ip link set %s type ipoib umcast %d", o.On.Link, n)
}

// String prints ip link set NAME allmulticast on.
func (o SetFlag) String() string {
	word, v := "allmulticast", "off"
	set := o.Set
	switch o.Flag {
	case FlagMulti:
		word = "multicast"
	case FlagPromisc:
		word = "promisc"
	case FlagNoARP:
		word, set = "arp", !o.Set
	}
	if set {
		v = "on"
	}
	return fmt.Sprintf("ip link set %s %s %s", o.On.Link, word, v)
}

// String prints ip link set NAME group NUMBER.
func (o SetGroup) String() string {
	return fmt.Sprintf("ip link set %s group %d", o.On.Link, o.Group)
}

// String prints ip link set NAME address HWADDR.
func (o SetGUID) String() string {
	return fmt.Sprintf("ip link set %s address %s", o.On.Link, o.Addr)
}

// String prints ip link add link PARENT name NAME type ipoib pkey KEY.
func (o AddChild) String() string {
	return fmt.Sprintf("ip link add link %s name %s type ipoib pkey %s", o.Parent.Link, o.On.Link, o.PKey)
}

// String prints ip link delete NAME.
func (o DelLink) String() string { return "ip link delete " + o.On.Link }

// String prints ip address add ADDRESS dev NAME.
func (o AddAddress) String() string {
	verb := "add"
	if o.Replace {
		verb = "replace"
	}
	return "ip address " + verb + " " + o.Address.String() + " dev " + o.On.Link
}

// String prints ip address delete ADDRESS dev NAME.
func (o DelAddress) String() string {
	s := "ip address delete " + o.Address.Prefix.String()
	if o.Address.Peer.IsValid() {
		s = "ip address delete " + o.Address.Prefix.Addr().String() + " peer " + o.Address.Peer.String()
	}
	return s + " dev " + o.On.Link
}

// String prints ip route add ROUTE dev NAME.
func (o AddRoute) String() string {
	verb := "add "
	if o.Replace {
		verb = "replace "
	}
	return "ip route " + verb + o.Route.text(o.On.Link)
}

// String prints ip route delete ROUTE dev NAME.
func (o DelRoute) String() string { return "ip route delete " + o.Route.text(o.On.Link) }

// String prints ip rule add RULE.
func (o AddRule) String() string { return "ip " + o.Rule.familyFlag() + "rule add " + o.Rule.String() }

// String prints ip rule delete RULE.
func (o DelRule) String() string {
	return "ip " + o.Rule.familyFlag() + "rule delete " + o.Rule.String()
}

// String prints sysctl -w net.ipv6.conf.NAME.KEY=VALUE, with slashes as
// separators where the name has a dot, as sysctl.d(5) wants it.
func (o SetSysctl) String() string {
	return "sysctl -w " + sysctlName(o.On.Link, o.Key) + "=" + o.Value
}

// String prints resolvectl's commands.
func (o SetDNS) String() string {
	if o.Revert {
		return "resolvectl revert " + o.On.Link
	}
	var parts []string
	if o.Afresh {
		parts = append(parts, "resolvectl revert "+o.On.Link)
	}
	parts = append(parts, strings.TrimSpace("resolvectl dns "+o.On.Link+" "+strings.Join(o.Servers, " ")))
	if len(o.Domains) > 0 {
		parts = append(parts, "resolvectl domain "+o.On.Link+" "+strings.Join(o.Domains, " "))
	}
	if o.Default != Unset {
		parts = append(parts, "resolvectl default-route "+o.On.Link+" "+o.Default.String())
	}
	for _, w := range o.Words() {
		parts = append(parts, "resolvectl "+w[0]+" "+o.On.Link+" "+w[1])
	}
	return strings.Join(parts, " && ")
}

func sysctlName(link, key string) string {
	if strings.HasPrefix(key, "/") {
		return "net" + strings.ReplaceAll(key, "/", ".")
	}
	family, leaf, _ := strings.Cut(key, "/")
	if strings.Contains(link, ".") {
		return "net/" + family + "/conf/" + link + "/" + leaf
	}
	return "net." + family + ".conf." + link + "." + leaf
}

// String prints the address as ip address add takes it.
func (a Address) String() string {
	var b strings.Builder
	if a.Peer.IsValid() {
		b.WriteString(a.Prefix.Addr().String() + " peer " + a.Peer.String())
	} else {
		b.WriteString(a.Prefix.String())
	}
	if a.Broadcast.IsValid() {
		b.WriteString(" broadcast " + a.Broadcast.String())
	}
	if a.Label != "" {
		b.WriteString(" label " + a.Label)
	}
	if a.Scope != 0 {
		b.WriteString(" scope " + ScopeName(a.Scope))
	}
	if a.Metric != 0 {
		fmt.Fprintf(&b, " metric %d", a.Metric)
	}
	for _, f := range addressFlagWords {
		if a.Flags&f.bit != 0 {
			b.WriteString(" " + f.word)
		}
	}
	if a.Valid != Forever && a.Valid != 0 {
		fmt.Fprintf(&b, " valid_lft %d", a.Valid)
	}
	if a.Preferred != Forever && (a.Preferred != 0 || a.Valid != 0) {
		fmt.Fprintf(&b, " preferred_lft %d", a.Preferred)
	}
	return b.String()
}

var addressFlagWords = []struct {
	bit  uint32
	word string
}{
	{AddrNoDAD, "nodad"}, {AddrHome, "home"}, {AddrManageTemp, "mngtmpaddr"},
	{AddrNoPrefixRoute, "noprefixroute"}, {AddrMulticastJoin, "autojoin"},
}

// text prints the route as ip route replace takes it.
func (r Route) text(dev string) string {
	var b strings.Builder
	if r.Type != 0 && r.Type != RouteUnicast {
		b.WriteString(RouteTypeName(r.Type) + " ")
	}
	if r.Dst.Bits() == 0 {
		if r.Dst.Addr().Is6() {
			b.WriteString("::/0")
		} else {
			b.WriteString("default")
		}
	} else {
		b.WriteString(r.Dst.String())
	}
	if r.Src.IsValid() {
		b.WriteString(" from " + r.Src.String())
	}
	if r.Gateway.IsValid() {
		if r.Gateway.Is6() != r.Dst.Addr().Is6() {
			b.WriteString(" via inet6 " + r.Gateway.String())
		} else {
			b.WriteString(" via " + r.Gateway.String())
		}
	}
	if dev != "" && !r.nowhere() && len(r.NextHops) == 0 {
		b.WriteString(" dev " + dev)
	}
	if r.TOS != 0 {
		fmt.Fprintf(&b, " tos 0x%02x", r.TOS)
	}
	if r.Table != 0 && r.Table != TableMain {
		fmt.Fprintf(&b, " table %d", r.Table)
	}
	if r.Protocol != 0 {
		b.WriteString(" proto " + ProtocolName(r.Protocol))
	}
	if r.Scope != 0 {
		b.WriteString(" scope " + ScopeName(r.Scope))
	}
	if r.PrefSrc.IsValid() {
		b.WriteString(" src " + r.PrefSrc.String())
	}
	if r.Metric != 0 {
		fmt.Fprintf(&b, " metric %d", r.Metric)
	}
	for _, m := range []struct {
		word string
		v    uint32
	}{{"mtu", r.MTU}, {"advmss", r.AdvMSS}, {"hoplimit", r.HopLimit}, {"initcwnd", r.InitCwnd}, {"initrwnd", r.InitRwnd}} {
		if m.v != 0 {
			fmt.Fprintf(&b, " %s %d", m.word, m.v)
		}
	}
	if r.RTOMin != 0 {
		fmt.Fprintf(&b, " rto_min %dms", r.RTOMin)
	}
	if r.Congestion != "" {
		b.WriteString(" congctl " + r.Congestion)
	}
	if r.QuickAck {
		b.WriteString(" quickack 1")
	}
	if r.FastOpenNoCookie {
		b.WriteString(" fastopen_no_cookie 1")
	}
	if r.Pref != 0 {
		b.WriteString(" pref " + map[uint8]string{1: "high", 3: "low"}[r.Pref])
	}
	for _, h := range r.NextHops {
		b.WriteString(" nexthop")
		if h.Gateway.IsValid() {
			b.WriteString(" via " + h.Gateway.String())
		}
		if h.Dev != "" {
			b.WriteString(" dev " + h.Dev)
		}
		fmt.Fprintf(&b, " weight %d", h.Weight)
	}
	if r.OnLink {
		b.WriteString(" onlink")
	}
	return b.String()
}

func (r Rule) familyFlag() string {
	if r.Family == 6 {
		return "-6 "
	}
	return ""
}

// String prints the rule as ip rule add takes it.
func (r Rule) String() string {
	var w []string
	add := func(format string, a ...any) { w = append(w, fmt.Sprintf(format, a...)) }
	if r.Invert {
		add("not")
	}
	if r.From.IsValid() {
		add("from %s", r.From)
	} else {
		add("from all")
	}
	if r.To.IsValid() {
		add("to %s", r.To)
	}
	if r.TOS != 0 {
		add("tos 0x%02x", r.TOS)
	}
	if r.FWMark != 0 {
		if r.FWMask != 0 && r.FWMask != ^uint32(0) {
			add("fwmark 0x%x/0x%x", r.FWMark, r.FWMask)
		} else {
			add("fwmark 0x%x", r.FWMark)
		}
	}
	if r.IIF != "" {
		add("iif %s", r.IIF)
	}
	if r.OIF != "" {
		add("oif %s", r.OIF)
	}
	if r.HasUIDRange {
		add("uidrange %d-%d", r.UIDRange[0], r.UIDRange[1])
	}
	if r.IPProto != 0 {
		add("ipproto %d", r.IPProto)
	}
	for _, p := range []struct {
		word string
		r    [2]uint16
	}{{"sport", r.SrcPort}, {"dport", r.DstPort}} {
		switch {
		case p.r[0] == 0:
		case p.r[0] == p.r[1]:
			add("%s %d", p.word, p.r[0])
		default:
			add("%s %d-%d", p.word, p.r[0], p.r[1])
		}
	}
	add("priority %d", r.Priority)
	if r.Protocol != 0 {
		add("protocol %s", ProtocolName(r.Protocol))
	}
	switch {
	case r.L3MDev:
		add("l3mdev")
	case r.Type == RuleGoto:
		add("goto %d", r.Goto)
	case r.Type == RuleBlackhole:
		add("blackhole")
	case r.Type == RuleUnreachable:
		add("unreachable")
	case r.Type == RuleProhibit:
		add("prohibit")
	default:
		if r.Table != 0 {
			add("table %d", r.Table)
		}
	}
	if r.SuppressPrefix >= 0 {
		add("suppress_prefixlength %d", r.SuppressPrefix)
	}
	if r.SuppressIfGroup >= 0 {
		add("suppress_ifgroup %d", r.SuppressIfGroup)
	}
	return strings.Join(w, " ")
}

// Numbers of include/uapi/linux/rtnetlink.h and fib_rules.h.
const (
	TableMain  uint32 = 254
	TableLocal uint32 = 255

	RouteUnicast     uint8 = 1
	RouteLocal       uint8 = 2
	RouteBroadcast   uint8 = 3
	RouteAnycast     uint8 = 4
	RouteMulticast   uint8 = 5
	RouteBlackhole   uint8 = 6
	RouteUnreachable uint8 = 7
	RouteProhibit    uint8 = 8
	RouteThrow       uint8 = 9

	ScopeGlobal uint8 = 0
	ScopeSite   uint8 = 200
	ScopeLink   uint8 = 253
	ScopeHost   uint8 = 254

	ProtoRedirect uint8 = 1
	ProtoKernel   uint8 = 2
	ProtoBoot     uint8 = 3
	ProtoStatic   uint8 = 4
	ProtoRA       uint8 = 9
	ProtoDHCP     uint8 = 16

	RuleToTable     uint8 = 1
	RuleGoto        uint8 = 2
	RuleNop         uint8 = 3
	RuleBlackhole   uint8 = 6
	RuleUnreachable uint8 = 7
	RuleProhibit    uint8 = 8
)

func (r Route) nowhere() bool {
	return r.Type == RouteBlackhole || r.Type == RouteUnreachable || r.Type == RouteProhibit || r.Type == RouteThrow
}

// ScopeName is ip's word for a scope, the number where it has none.
func ScopeName(s uint8) string {
	switch s {
	case ScopeGlobal:
		return "global"
	case ScopeSite:
		return "site"
	case ScopeLink:
		return "link"
	case ScopeHost:
		return "host"
	}
	return fmt.Sprint(s)
}

// RouteTypeName is ip's word for a route type, the number where it has none.
func RouteTypeName(t uint8) string {
	names := [...]string{"none", "unicast", "local", "broadcast", "anycast", "multicast", "blackhole", "unreachable", "prohibit", "throw", "nat", "xresolve"}
	if int(t) < len(names) {
		return names[t]
	}
	return fmt.Sprint(t)
}

// ProtocolName is ip's word for a routing protocol, the number where it has
// none.
func ProtocolName(p uint8) string {
	switch p {
	case ProtoRedirect:
		return "redirect"
	case ProtoKernel:
		return "kernel"
	case ProtoBoot:
		return "boot"
	case ProtoStatic:
		return "static"
	case ProtoRA:
		return "ra"
	case ProtoDHCP:
		return "dhcp"
	}
	return fmt.Sprint(p)
}

// Effect implements Effecter. Enhanced IPoIB of mlx5 opens its channels again for
// each MTU (mlx5i_change_mtu, between netif_carrier_off and netif_carrier_on of
// ipoib_change_mtu).
func (o SetMTU) Effect(s *Snapshot) string {
	l, ok := s.Link(o.On.Ifindex)
	if !ok || l.IPoIB == nil || l.Driver != "mlx5_core" || l.HWAddr.SupportsConnected() {
		return ""
	}
	return o.On.Link + " loses its carrier for a moment: enhanced IPoIB opens its queues again"
}
