package link

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"ibnetworkd/ib"
)

// Model is a snapshot that operations can be applied to by the rules of the
// kernel. The planner looks through it at the system as it will be after the
// operations planned so far; tests use it as the kernel itself, with the parts
// that a snapshot does not show in Truth.
type Model struct {
	snap  *Snapshot
	own   map[int]bool // links that are copies of our own
	fresh map[int]bool // links that exist in the model only
	last  int          // highest index given so far
	// Truth is nil in the planner, which then assumes that what is asked is
	// granted.
	Truth *Truth
}

// Truth is what a kernel knows and does not show.
type Truth struct {
	// AdapterMTU is the largest datagram MTU of the adapters (IPOIB_UD_MTU of
	// the port's max_mtu), ConnectedMTU the largest of connected mode.
	AdapterMTU, ConnectedMTU int
	// GroupMTU is the datagram MTU that each partition's broadcast group
	// allows, by base key; absent means that there is no group.
	GroupMTU map[ib.PKey]int
	// Asked is the administrator's datagram MTU, by interface index.
	Asked map[int]int
}

// NewModel starts from a snapshot, which is not changed.
func NewModel(s *Snapshot) *Model {
	c := *s
	c.Links = slices.Clone(s.Links)
	m := &Model{snap: &c, own: map[int]bool{}, fresh: map[int]bool{}}
	for i := range c.Links {
		m.last = max(m.last, c.Links[i].Index)
	}
	return m
}

// Snapshot is the system after the operations. It shares the model's memory.
func (m *Model) Snapshot() *Snapshot { return m.snap }

// Target names a link; one that exists in the model only has no index yet.
func (m *Model) Target(l *Link) Target {
	t := TargetOf(l)
	if m.fresh[l.Index] && m.Truth == nil {
		t.Ifindex = 0
	}
	return t
}

func (m *Model) write(index int) *Link {
	l, ok := m.snap.Link(index)
	if !ok {
		return nil
	}
	if !m.own[index] {
		m.own[index] = true
		l.Addresses, l.Routes = slices.Clone(l.Addresses), slices.Clone(l.Routes)
		if l.IPoIB != nil {
			c := *l.IPoIB
			l.IPoIB = &c
		}
		sys := make(map[string]string, len(l.Sysctl))
		for k, v := range l.Sysctl {
			sys[k] = v
		}
		l.Sysctl = sys
	}
	return l
}

func (m *Model) find(t Target) (*Link, error) {
	if t.Ifindex != 0 {
		if l := m.write(t.Ifindex); l != nil {
			return l, nil
		}
	} else if l, ok := m.snap.LinkByName(t.Link); ok {
		return m.write(l.Index), nil
	}
	return nil, fmt.Errorf("%s: no such device", t.Link)
}

// The refusals of a model, in the kernel's words.
var (
	errInvalid  = errors.New("invalid argument")
	errExist    = errors.New("file exists")
	errBusy     = errors.New("device or resource busy")
	errNoDev    = errors.New("no such device")
	errNoRoute  = errors.New("no such process")
	errNoAddr   = errors.New("cannot assign requested address")
	errUnreach  = errors.New("nexthop has invalid gateway")
	errDown     = errors.New("network is down")
	errNotFound = errors.New("no such file or directory")
)

// Apply carries one operation out, or refuses it as the kernel would. An
// operation of another room is taken to have no effect on the snapshot unless
// it has a method ApplyTo(*Model) error.
func (m *Model) Apply(op Op) error {
	if o, ok := op.(interface{ ApplyTo(*Model) error }); ok {
		return o.ApplyTo(m)
	}
	switch o := op.(type) {
	case AddChild:
		return m.addChild(o)
	case AddRule:
		add := o.Rule
		if add.Priority == 0 {
			// fib_default_rule_pref: one below the second rule of the family.
			add.Priority = 32766
			for _, r := range m.snap.Rules {
				if r.Family == add.Family && r.Priority != 0 {
					add.Priority = min(add.Priority, r.Priority)
				}
			}
			add.Priority--
		}
		for _, r := range m.snap.Rules {
			if SameRule(r, add) {
				return errExist
			}
		}
		m.snap.Rules = append(slices.Clone(m.snap.Rules), add)
		return nil
	case DelRule:
		n := len(m.snap.Rules)
		m.snap.Rules = slices.DeleteFunc(slices.Clone(m.snap.Rules), func(r Rule) bool { return SameRule(r, o.Rule) })
		if n == len(m.snap.Rules) {
			return errNotFound
		}
		return nil
	}
	t := op.Target()
	if t.Link == "" && t.Ifindex == 0 {
		return nil
	}
	l, err := m.find(t)
	if err != nil {
		return err
	}
	switch o := op.(type) {
	case SetUp:
		m.setUp(l, o.Up)
	case SetMTU:
		return m.setMTU(l, o.MTU)
	case SetMode:
		return m.setMode(l, o.Mode)
	case SetUmcast:
		if l.IPoIB == nil {
			return errInvalid
		}
		l.IPoIB.IgnoreUserspaceMulticast = o.Set
	case SetFlag:
		l.Flags &^= o.Flag
		if o.Set {
			l.Flags |= o.Flag
		}
	case SetGroup:
		l.Group = o.Group
	case SetGUID:
		// ipoib_set_mac: the first 12 bytes stay, the GUID is not zero; the
		// core refuses while the link is up.
		if l.Up() {
			return errBusy
		}
		if o.Addr.GUID() == 0 || !o.Addr.IsIPoIB() || !slices.Equal(o.Addr.Bytes()[:12], l.HWAddr.Bytes()[:12]) {
			return errInvalid
		}
		l.HWAddr = o.Addr
	case DelLink:
		if !l.IsChild() {
			return nil // the kernel ignores it without an error
		}
		m.delete(l.Index)
	case AddAddress:
		return m.addAddress(l, o)
	case DelAddress:
		return m.delAddress(l, o.Address)
	case AddRoute:
		return m.addRoute(l, o)
	case DelRoute:
		n := len(m.routesLike(l, o.Route))
		for _, l := range m.homes(l, o.Route) {
			l.Routes = removeRoute(l.Routes, o.Route)
		}
		if n == len(m.routesLike(l, o.Route)) {
			return errNoRoute
		}
	case SetSysctl:
		l.Sysctl[o.Key] = o.Value
	}
	return nil
}

func (m *Model) delete(index int) {
	// A copy, because callers hold pointers into the slice.
	m.snap.Links = slices.DeleteFunc(slices.Clone(m.snap.Links), func(l Link) bool { return l.Index == index })
	m.dropRoutes(func(r Route) bool { return r.leadsOver(index) })
}

// dropRoutes removes routes over several links from each of them.
func (m *Model) dropRoutes(drop func(Route) bool) {
	for i := range m.snap.Links {
		multi := func(r Route) bool { return len(r.NextHops) > 0 && drop(r) }
		if slices.ContainsFunc(m.snap.Links[i].Routes, multi) {
			w := m.write(m.snap.Links[i].Index)
			w.Routes = slices.DeleteFunc(w.Routes, multi)
		}
	}
}

// leadsOver reports whether a next hop is on a link.
func (r Route) leadsOver(index int) bool {
	return slices.ContainsFunc(r.NextHops, func(h NextHop) bool { return h.Ifindex == index })
}

// addChild follows ipoib_new_child_link and __ipoib_vlan_add. A second child
// with the same key is accepted, as by the kernel.
func (m *Model) addChild(o AddChild) error {
	p, ok := m.snap.Link(o.Parent.Ifindex)
	if !ok {
		return errNoDev
	}
	if p.IPoIB == nil {
		return errNoDev
	}
	if p.IsChild() || !o.PKey.IsValid() || o.On.Link == "" || len(o.On.Link) > 15 {
		return errInvalid
	}
	if _, taken := m.snap.LinkByName(o.On.Link); taken {
		return errExist
	}
	m.last++
	c := Link{
		Index: m.last, Name: o.On.Link, Type: ARPHRDInfiniBand, Kind: "ipoib", Parent: p.Index,
		Flags: FlagMulti, MTU: p.MTU, HWAddr: p.HWAddr, IBDevice: p.IBDevice, Port: p.Port,
		IPoIB: &IPoIB{PKey: o.PKey.AsFull(), Mode: ModeDatagram}, Driver: p.Driver, NetDriver: p.NetDriver, Path: p.Path,
		Sysctl: map[string]string{},
	}
	if m.Truth != nil {
		c.MTU = m.Truth.AdapterMTU
	}
	// The planner cannot know when udev is done with the new interface; a test
	// says it itself.
	m.fresh[c.Index], m.own[c.Index] = true, true
	m.snap.Links = append(m.snap.Links, c)
	return nil
}

// ready reports whether the link has what carrier needs of the fabric: an
// Active port with the link's partition, and (in truth) a broadcast group.
func (m *Model) ready(l *Link) bool {
	if l.IPoIB == nil {
		return true
	}
	if !PortReady(m.snap, l) {
		return false
	}
	if m.Truth != nil {
		return m.Truth.GroupMTU[l.IPoIB.PKey.Base()] != 0
	}
	return true
}

func (m *Model) setUp(l *Link, up bool) {
	index := l.Index
	switch {
	case up && !l.Up():
		l.Flags |= FlagUp
		m.join(l)
	case !up && l.Up():
		l.Flags &^= FlagUp | FlagLowerUp
		// A route over several links lives as long as one of them is up
		// (fib_sync_down_dev).
		l.Routes = slices.DeleteFunc(l.Routes, func(r Route) bool { return len(r.NextHops) == 0 })
		m.dropRoutes(func(r Route) bool {
			return !slices.ContainsFunc(m.snap.Links, func(o Link) bool { return o.Up() && r.leadsOver(o.Index) })
		})
		if v := l.Sysctl["ipv6/keep_addr_on_down"]; v == "" || v == "0" {
			l.Addresses = slices.DeleteFunc(l.Addresses, func(a Address) bool { return a.Prefix.Addr().Is6() })
		}
	default:
		return
	}
	if l.IPoIB == nil || l.IsChild() {
		return
	}
	// ipoib_open and ipoib_stop take the children along.
	for _, c := range m.snap.Children(index) {
		m.setUp(m.write(c.Index), up)
	}
}

// join is what a link does when it is up and the fabric is ready.
func (m *Model) join(l *Link) {
	if !l.Up() || !m.ready(l) {
		return
	}
	l.Flags |= FlagLowerUp
	if m.Truth == nil || l.IPoIB == nil {
		return
	}
	g := m.Truth.GroupMTU[l.IPoIB.PKey.Base()]
	if l.IPoIB.Mode == ModeDatagram {
		l.MTU = min(g, cmpOr(m.Truth.Asked[l.Index], g))
	}
}

// Settle lets every link do by itself what follows from the state of the
// fabric, as after a port became Active. It is for tests.
func (m *Model) Settle() {
	for i := range m.snap.Links {
		l := m.write(m.snap.Links[i].Index)
		if m.ready(l) {
			m.join(l)
		} else {
			l.Flags &^= FlagLowerUp
		}
	}
}

func cmpOr(a, b int) int {
	if a != 0 {
		return a
	}
	return b
}

func (m *Model) setMTU(l *Link, mtu int) error {
	if mtu < 68 {
		return errInvalid
	}
	got := mtu
	switch {
	case l.IPoIB == nil:
		if l.MaxMTU != 0 && mtu > l.MaxMTU {
			return errInvalid
		}
	case l.IPoIB.Mode == ModeConnected:
		if mtu > ib.ConnectedMTU || m.Truth != nil && mtu > m.Truth.ConnectedMTU {
			return errInvalid
		}
	default:
		// ipoib_change_mtu: the request is remembered, the smaller one of it
		// and the group's rules.
		if mtu > m.snap.MaxDatagram(l) || mtu < 72 || m.Truth != nil && mtu > m.Truth.AdapterMTU {
			return errInvalid
		}
		if m.Truth != nil {
			m.Truth.Asked[l.Index] = mtu
			if g := m.Truth.GroupMTU[l.IPoIB.PKey.Base()]; g != 0 && l.Carrier() {
				got = min(mtu, g)
			}
		}
	}
	l.MTU = got
	if got < 1280 {
		l.Addresses = slices.DeleteFunc(l.Addresses, func(a Address) bool { return a.Prefix.Addr().Is6() })
		l.Routes = slices.DeleteFunc(l.Routes, func(r Route) bool { return r.Dst.Addr().Is6() })
	}
	return nil
}

// setMode follows ipoib_set_mode: a change raises the MTU to what connected
// mode takes, or lowers it to what the group takes.
func (m *Model) setMode(l *Link, mode Mode) error {
	if l.IPoIB == nil {
		return errInvalid
	}
	if l.IPoIB.Mode == mode {
		return nil
	}
	if mode == ModeConnected {
		if !l.HWAddr.SupportsConnected() {
			return errInvalid
		}
		l.IPoIB.Mode, l.MTU = mode, ib.ConnectedMTU
		if m.Truth != nil {
			l.MTU = m.Truth.ConnectedMTU
		}
		return nil
	}
	l.IPoIB.Mode, l.MTU = mode, min(l.MTU, m.snap.MaxDatagram(l))
	if m.Truth != nil {
		l.MTU = min(l.MTU, m.Truth.AdapterMTU)
		if g := m.Truth.GroupMTU[l.IPoIB.PKey.Base()]; g != 0 && l.Carrier() {
			l.MTU = min(l.MTU, g)
		}
	}
	return nil
}

func (m *Model) addAddress(l *Link, o AddAddress) error {
	a := o.Address
	is6 := a.Prefix.Addr().Is6()
	if is6 && (m.snap.Host.NoIPv6 || l.Sysctl["ipv6/disable_ipv6"] == "1" || l.MTU < 1280) {
		return errInvalid
	}
	for i, x := range l.Addresses {
		if !sameAddress(x, a) {
			continue
		}
		if !o.Replace {
			return errExist
		}
		l.Addresses[i].Valid, l.Addresses[i].Preferred = a.Valid, a.Preferred
		if a.Metric != 0 {
			l.Addresses[i].Metric = a.Metric
		}
		if is6 {
			l.Addresses[i].Flags = x.Flags&^addrFlagsSettable | a.Flags&addrFlagsSettable
		}
		return nil
	}
	if !is6 {
		for _, x := range l.Addresses {
			if sameSubnet(x, a) {
				a.Flags |= AddrSecondary
			}
		}
	}
	l.Addresses = append(l.Addresses, a)
	return nil
}

// sameSubnet reports whether the kernel makes one of two IPv4 addresses a
// secondary of the other (inet_insert_ifa).
func sameSubnet(a, b Address) bool {
	return a.Prefix.Addr().Is4() && b.Prefix.Addr().Is4() && a.Prefix.Masked() == b.Prefix.Masked()
}

func (m *Model) delAddress(l *Link, a Address) error {
	i := slices.IndexFunc(l.Addresses, func(x Address) bool { return sameAddress(x, a) })
	if i < 0 {
		return errNoAddr
	}
	gone := l.Addresses[i]
	l.Addresses = slices.Delete(l.Addresses, i, i+1)
	if gone.Prefix.Addr().Is4() && gone.Flags&AddrSecondary == 0 {
		// Without promote_secondaries the secondaries go with their primary.
		l.Addresses = slices.DeleteFunc(l.Addresses, func(x Address) bool {
			return sameSubnet(x, gone) && x.Flags&AddrSecondary != 0 && m.Truth != nil
		})
	}
	has := func(ip netip.Addr) bool {
		return slices.ContainsFunc(l.Addresses, func(x Address) bool { return x.Prefix.Addr() == ip })
	}
	from := func(r Route) bool {
		return r.PrefSrc.IsValid() && r.PrefSrc == gone.Prefix.Addr() && !has(r.PrefSrc)
	}
	l.Routes = slices.DeleteFunc(l.Routes, from)
	m.dropRoutes(from)
	return nil
}

// loopbackIndex is the index of lo in every network namespace.
const loopbackIndex = 1

// routesLike are the routes among which one that a link's unit asks for is found:
// those of the link, or of one that it leads over; for a route that leads nowhere
// those of the loopback, with which an observer keeps all of that kind.
func (m *Model) routesLike(l *Link, r Route) []Route {
	return m.at(l, r)[0].Routes
}

// at are the links that have a route which the unit of l asks for, one at least.
func (m *Model) at(l *Link, r Route) (out []*Link) {
	add := func(index int) {
		if x, ok := m.snap.Link(index); ok && !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	switch {
	case r.nowhere():
		add(loopbackIndex)
	case len(r.NextHops) > 0:
		for _, h := range r.NextHops {
			add(h.Ifindex)
		}
	}
	if len(out) == 0 {
		out = append(out, l)
	}
	return out
}

// homes are the same to be written to.
func (m *Model) homes(l *Link, r Route) []*Link {
	out := m.at(l, r)
	for i := range out {
		out[i] = m.write(out[i].Index)
	}
	return out
}

func (m *Model) addRoute(l *Link, o AddRoute) error {
	if !l.Up() {
		return errDown
	}
	if o.Route.Dst.Addr().Is6() && (m.snap.Host.NoIPv6 || l.MTU < 1280) {
		return errInvalid
	}
	if !GatewayReachable(l, o.Route) {
		return errUnreach
	}
	for i := range m.snap.Links {
		k := &m.snap.Links[i]
		for _, x := range k.Routes {
			if !sameRoute(x, o.Route) {
				continue
			}
			if !o.Replace {
				return errExist
			}
			w := m.write(k.Index)
			w.Routes = removeRoute(w.Routes, o.Route)
		}
	}
	for _, h := range o.Route.NextHops {
		switch x, ok := m.snap.Link(h.Ifindex); {
		case !ok:
			return errNoDev
		case !x.Up():
			return errDown
		}
	}
	for _, l := range m.homes(l, o.Route) {
		l.Routes = append(l.Routes, o.Route)
	}
	return nil
}

// MaxDatagramMTU is the netdev MTU in bytes of datagram mode with the largest
// InfiniBand MTU.
const MaxDatagramMTU = 4092

// MaxOmniPathMTU is the same for Omni-Path, whose largest MTU is 10240 bytes
// (hfi1, rdma_mtu_from_attr).
const MaxOmniPathMTU = 10236

// PortReady reports whether the port below an IPoIB link is Active and has the
// link's partition in its table.
func PortReady(s *Snapshot, l *Link) bool {
	_, p := s.PortOf(l)
	if p == nil || l.IPoIB == nil {
		return false
	}
	return (p.State == ib.PortActive || p.State == ib.PortActiveDefer) && p.HasPKey(l.IPoIB.PKey)
}

// GatewayReachable reports whether the kernel would find the gateways of a
// route on the link: in the subnet of an address or behind an on-link route, or
// link-local, or declared on-link.
func GatewayReachable(l *Link, r Route) bool {
	if !r.Gateway.IsValid() || r.OnLink || r.Gateway.IsLinkLocalUnicast() && r.Gateway.Is6() {
		return true
	}
	for _, a := range l.Addresses {
		if a.Peer.IsValid() {
			if a.Peer.Contains(r.Gateway) {
				return true
			}
			continue
		}
		if a.Prefix.Contains(r.Gateway) && a.Prefix.Addr() != r.Gateway && a.Flags&AddrNoPrefixRoute == 0 {
			return true
		}
	}
	for _, x := range l.Routes {
		if !x.Gateway.IsValid() && len(x.NextHops) == 0 && !x.nowhere() && x.Dst.Bits() > 0 && x.Dst.Contains(r.Gateway) {
			return true
		}
	}
	return false
}

// Fits reports whether x is the rule that r asks for: without a priority it is
// any, because the kernel then gives one of its choice.
func (r Rule) Fits(x Rule) bool {
	if r.Priority == 0 {
		x.Priority = 0
	}
	return SameRule(r, x)
}

// SameRule compares what identifies a rule in the kernel: everything but who
// made it.
func SameRule(a, b Rule) bool {
	a.Protocol, b.Protocol = 0, 0
	return a == b
}
