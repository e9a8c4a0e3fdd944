package link

import (
	"fmt"
	"net/netip"
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

// On is the target of an operation, which embeds it.
type On = Target

// Target implements Op for what embeds an On.
func (t Target) Target() Target { return t }

// TargetOf names a link.
func TargetOf(l *Link) Target {
	return Target{Link: l.Name, Ifindex: l.Index, IBDevice: l.IBDevice, Port: l.Port}
}

// Op is one change of the system. String is the command that does the same in
// a shell; it identifies the operation among those of its target (back-off and
// refusals are kept by it), so equal operations print equal text. Packages other
// than link (ipoib, roce) define their own; the daemon's executor knows how
// each type is carried out.
type Op interface {
	String() string
	Target() Target
}

// Made is a thing that an operation of another package made on a link, which goes
// when no unit asks for it any more.
type Made struct {
	Kind string `json:"kind"` // of that package: soft, vlan
	Name string `json:"name"`
	On   int    `json:"on"` // index of the link
}

// Maker is an operation of another package that makes or removes such a thing.
type Maker interface {
	Op
	Makes() (m Made, remove bool)
}

// SetUp sets the administrative state.
type SetUp struct {
	On
	Up bool
}

// SetMTU sets the MTU, in bytes.
type SetMTU struct {
	On
	MTU int
}

// SetMode changes the IPoIB transport mode.
type SetMode struct {
	On
	Mode ib.IPoIBMode
}

// SetUmcast changes IFLA_IPOIB_UMCAST.
type SetUmcast struct {
	On
	Set bool
}

// SetFlag sets or clears IFF_ALLMULTI, IFF_MULTICAST, IFF_PROMISC or IFF_NOARP.
type SetFlag struct {
	On
	Flag uint32
	Set  bool
}

// SetGroup sets the group of a link.
type SetGroup struct {
	On
	Group uint32
}

// SetToken sets the token of addresses by router advertisements; :: removes it.
type SetToken struct {
	On
	Token netip.Addr
}

// SetGUID replaces the last 8 bytes of the hardware address. Addr is the
// whole new address; the link must be down.
type SetGUID struct {
	On
	Addr ib.HWAddr
}

// AddChild makes a P_Key child. On names the child (Ifindex 0) with the RDMA
// port of its parent.
type AddChild struct {
	On
	Parent Target
	PKey   ib.PKey
}

// DelLink deletes an interface that this program made.
type DelLink struct{ On }

// AddAddress adds an address or (Replace) changes the changeable parts of one
// that is there.
type AddAddress struct {
	On
	Address Address
	Replace bool
}

// DelAddress deletes an address.
type DelAddress struct {
	On
	Address Address
}

// RestoreAddress adds an address again if it was deleted with its primary one. It
// is not recorded.
type RestoreAddress struct {
	On
	Address Address
}

// AddRoute adds a route. Replace is set only where the existing route with the
// same key is recorded; another program's is never replaced.
type AddRoute struct {
	On
	Route   Route
	Replace bool
}

// DelRoute deletes a route.
type DelRoute struct {
	On
	Route Route
}

// SetNeighbor makes an entry of the neighbour table permanent, with the link-layer
// address given. Replace is set where a recorded permanent entry exists.
type SetNeighbor struct {
	On
	Neighbor Neighbor
	Replace  bool
}

// SetNextHop sets a nexthop object; one with a gateway is on the target. Replace is set
// where one with its ID is recorded; another program's is never replaced.
type SetNextHop struct {
	On
	NextHop NextHopObject
	Replace bool
}

// DelNextHop deletes a nexthop object, which a unit of the target made. The kernel
// deletes routes over it.
type DelNextHop struct {
	On
	NextHop NextHopObject
}

// DelNeighbor deletes an entry of the neighbour table.
type DelNeighbor struct {
	On
	Neighbor Neighbor
}

// AddRule adds a routing policy rule. On says which link's unit asks for it.
type AddRule struct {
	On
	Rule Rule
}

// DelRule deletes a routing policy rule.
type DelRule struct {
	On
	Rule Rule
}

// SetSysctl writes a setting of a link. Key is as in Link.Sysctl; keys that
// start with a slash are host-wide, below /proc/sys/net.
type SetSysctl struct {
	On
	Key, Value string
}

// SetDNS sends name servers and domains to systemd-resolved; with both empty and
// Revert set it reverts what was sent.
type SetDNS struct {
	On
	Servers []string
	Domains []string
	Default Tristate
	Revert  bool
	// RevertFirst reverts first what was sent before and is not in this operation.
	RevertFirst bool
	Resolve
	// Resolved is the systemd-resolved that receives it; see Host.Resolved.
	Resolved string
}

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

// String prints ip token set TOKEN dev NAME.
func (o SetToken) String() string { return "ip token set " + o.Token.String() + " dev " + o.On.Link }

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

// String prints ip neighbour replace NEIGHBOUR dev NAME nud permanent: the kernel may
// have an entry of its own.
func (o SetNeighbor) String() string {
	return "ip neighbour replace " + o.Neighbor.String() + " dev " + o.On.Link + " nud permanent"
}

// String prints ip nexthop add or replace.
func (o SetNextHop) String() string {
	if o.Replace {
		return o.NextHop.command("replace")
	}
	return o.NextHop.command("add")
}

// String prints ip nexthop delete id ID.
func (o DelNextHop) String() string { return fmt.Sprintf("ip nexthop delete id %d", o.NextHop.ID) }

// String prints ip neighbour delete ADDRESS dev NAME.
func (o DelNeighbor) String() string {
	return "ip neighbour delete " + o.Neighbor.IP.String() + " dev " + o.On.Link
}

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
	if o.RevertFirst {
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

// Effect implements Effecter. Enhanced IPoIB of mlx5 opens its channels again for
// each MTU (mlx5i_change_mtu, between netif_carrier_off and netif_carrier_on of
// ipoib_change_mtu).
func (o SetMTU) Effect(s *Snapshot) string {
	l, ok := s.Link(o.On.Ifindex)
	if !ok || !l.EnhancedIPoIB() {
		return ""
	}
	return o.On.Link + " loses its carrier for a moment: enhanced IPoIB opens its queues again"
}
