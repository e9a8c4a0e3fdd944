package link

import (
	"net/netip"
	"slices"

	"ibnetworkd/ib"
)

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
	c := ChildOf(p, o.On.Link, o.PKey)
	c.Index = m.last
	if m.Truth != nil {
		c.MTU = m.Truth.AdapterMTU
	}
	// The planner cannot know when udev is done with the new interface; a test
	// says it itself.
	m.fresh[c.Index], m.own[c.Index] = true, true
	m.snap.Links = append(m.snap.Links, c)
	return nil
}

// ChildOf is a P_Key child as the kernel makes it, without an index. Its MTU is that of the adapter (ipoib_ndo_init),
// of 2044 or more, however small the parent's is.
func ChildOf(p *Link, name string, key ib.PKey) Link {
	return Link{
		Name: name, Type: ARPHRDInfiniBand, Kind: "ipoib", Parent: p.Index,
		Flags: FlagMulti, MTU: max(p.MTU, 2044), HWAddr: p.HWAddr, IBDevice: p.IBDevice, Port: p.Port,
		IPoIB: &IPoIB{PKey: key.AsFull(), Mode: ib.ModeDatagram}, Driver: p.Driver, NetDriver: p.NetDriver, Path: p.Path,
		Sysctl: map[string]string{},
	}
}

// ready reports whether the link has what carrier needs of the fabric: an
// Active port with the link's partition, and (in truth) a broadcast group.
func (m *Model) ready(l *Link) bool {
	if l.IPoIB == nil {
		return true
	}
	if !portReady(m.snap, l) {
		return false
	}
	if m.Truth != nil {
		return m.Truth.GroupMTU[l.IPoIB.PKey.Base()] != 0
	}
	return true
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
	case l.IPoIB.Mode == ib.ModeConnected:
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
	slaves := m.snap.Slaves(l.Index)
	for i, s := range slaves {
		if err := m.setMTU(m.write(s.Index), mtu); err != nil {
			for _, done := range slaves[:i] { // bond_change_mtu
				_ = m.setMTU(m.write(done.Index), l.MTU)
			}
			return err
		}
	}
	l.MTU = got
	if got < 1280 {
		l.Token = netip.Addr{}
		l.Addresses = slices.DeleteFunc(l.Addresses, func(a Address) bool { return a.Prefix.Addr().Is6() })
		l.Routes = slices.DeleteFunc(l.Routes, func(r Route) bool { return r.Dst.Addr().Is6() })
		l.Neighbors = slices.DeleteFunc(l.Neighbors, func(n Neighbor) bool { return n.IP.Is6() })
	}
	return nil
}

// setMode follows ipoib_set_mode: a change raises the MTU to what connected
// mode takes, or lowers it to what the group takes.
func (m *Model) setMode(l *Link, mode ib.IPoIBMode) error {
	if l.IPoIB == nil {
		return errInvalid
	}
	if l.IPoIB.Mode == mode {
		return nil
	}
	if mode == ib.ModeConnected {
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

// MaxDatagramMTU is the netdev MTU in bytes of datagram mode with the largest
// InfiniBand MTU.
const MaxDatagramMTU = 4092

// MaxOmniPathMTU is the same for Omni-Path, whose largest MTU is 10240 bytes
// (hfi1, rdma_mtu_from_attr).
const MaxOmniPathMTU = 10236

// portReady reports whether the port below an IPoIB link is Active and has the
// link's partition in its table.
func portReady(s *Snapshot, l *Link) bool {
	_, p := s.PortOf(l)
	if p == nil || l.IPoIB == nil {
		return false
	}
	return (p.State == ib.PortActive || p.State == ib.PortActiveDefer) && p.HasPKey(l.IPoIB.PKey)
}
