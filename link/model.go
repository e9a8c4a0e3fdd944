package link

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"ibnetworkd/ib"
)

// Model is a snapshot to which operations can be applied by the kernel's rules.
// The planner reads from it the system as it will be after the operations planned
// so far; tests use it as the kernel, with what a snapshot does not show in Truth.
type Model struct {
	snap  *Snapshot
	own   map[int]bool // links that are copies of our own
	fresh map[int]bool // links that exist in the model only
	last  int          // highest index given so far
	// cycled are links that an operation took down: their carrier comes back later.
	cycled map[int]bool
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
	m := &Model{snap: &c, own: map[int]bool{}, fresh: map[int]bool{}, cycled: map[int]bool{}}
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
		l.Addresses, l.Routes, l.Neighbors = slices.Clone(l.Addresses), slices.Clone(l.Routes), slices.Clone(l.Neighbors)
		if l.IPoIB != nil {
			c := *l.IPoIB
			l.IPoIB = &c
		}
		if l.Bond != nil {
			c := *l.Bond
			l.Bond = &c
		}
		if l.Sysctl = maps.Clone(l.Sysctl); l.Sysctl == nil {
			l.Sysctl = map[string]string{}
		}
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
	errInvalid    = errors.New("invalid argument")
	errExist      = errors.New("file exists")
	errBusy       = errors.New("device or resource busy")
	errNoDev      = errors.New("no such device")
	errNoRoute    = errors.New("no such process")
	errNoAddr     = errors.New("cannot assign requested address")
	errUnreach    = errors.New("nexthop has invalid gateway")
	errDown       = errors.New("network is down")
	errPermission = errors.New("permission denied")
	errNotFound   = errors.New("no such file or directory")
	errNoFamily   = errors.New("address family not supported by protocol")
)

// Apply carries one operation out, or refuses it as the kernel would. An
// operation of another package is taken to have no effect on the snapshot unless
// it has a method ApplyTo(*Model) error.
func (m *Model) Apply(op Op) error {
	if o, ok := op.(interface{ ApplyTo(*Model) error }); ok {
		return o.ApplyTo(m)
	}
	switch o := op.(type) {
	case AddChild:
		return m.addChild(o)
	case AddBond:
		return m.addBond(o)
	case AddVRF:
		return m.addVRF(o)
	case AddRule:
		return m.addRule(o.Rule)
	case DelRule:
		return m.delRule(o.Rule)
	case DelNextHop: // the link may be gone
		if m.snap.NextHop(o.NextHop.ID) == nil {
			return errNotFound
		}
		m.dropNextHops(func(n NextHopObject) bool { return n.ID == o.NextHop.ID })
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
	case SetMaster:
		return m.setMaster(l, o)
	case SetBond, SetPrimary:
		return m.setBond(l, op)
	case DelLink:
		if l.Bond != nil || l.VRF != nil {
			m.deleteMaster(l.Index)
			return nil
		}
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
	case SetNextHop:
		return m.setNextHop(l, o)
	case SetNeighbor:
		return m.setNeighbor(l, o.Neighbor)
	case DelNeighbor:
		if !slices.ContainsFunc(l.Neighbors, o.Neighbor.sameIP) {
			return errNotFound
		}
		l.Neighbors = removeNeighbor(l.Neighbors, o.Neighbor)
	case SetSysctl:
		l.Sysctl[o.Key] = o.Value
	}
	return nil
}

func (m *Model) delete(index int) {
	// A copy: callers have pointers into the slice.
	m.snap.Links = slices.DeleteFunc(slices.Clone(m.snap.Links), func(l Link) bool { return l.Index == index })
	m.dropRoutes(func(r Route) bool { return r.leadsOver(index) })
	m.nextHopsLeave(index)
}

func (m *Model) setUp(l *Link, up bool) {
	index := l.Index
	switch {
	case up && !l.Up():
		l.Flags |= FlagUp
		m.join(l)
	case !up && l.Up():
		l.Flags &^= FlagUp | FlagLowerUp
		m.cycled[index] = true
		l.Neighbors = nil // neigh_ifdown
		m.nextHopsLeave(index)
		// A route over several links lives as long as one of them is up
		// (fib_sync_down_dev).
		l.Routes = slices.DeleteFunc(l.Routes, func(r Route) bool { return len(r.NextHops) == 0 && r.NextHopID == 0 })
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
	if l.IPoIB.Mode == ib.ModeDatagram {
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
			m.nextHopsLeave(l.Index)
		}
	}
}

func cmpOr(a, b int) int {
	if a != 0 {
		return a
	}
	return b
}
