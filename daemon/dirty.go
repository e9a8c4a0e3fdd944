package daemon

import (
	"maps"
	"reflect"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/roce"
)

// at is the link of a target, nil for none: one that came back has its name and
// another index.
func (d *Daemon) at(t link.Target) *link.Link {
	if d.snap == nil {
		return nil
	}
	if l, ok := d.snap.Link(t.Ifindex); ok {
		return l
	}
	if l, ok := d.snap.LinkByName(t.Link); ok {
		return l
	}
	// A child that could not be made is its parent's business: any link of the
	// port will do, the scope is closed over parents and children.
	for i := range d.snap.Links {
		if l := &d.snap.Links[i]; l.IBDevice != "" && l.IBDevice == t.IBDevice && l.Port == t.Port {
			return l
		}
	}
	return nil
}

// dirty is what the next round plans.
type dirty struct {
	links map[int]bool // by interface index
	// ports are the RDMA ports without a link, which are planned in each
	// round that plans anything, and for what a link that is gone has left behind.
	ports bool
}

// target adds what an operation is on.
func (d *dirty) target(t link.Target) {
	if t.Ifindex == 0 {
		d.ports = true
		return
	}
	d.add(t.Ifindex)
}

// has reports whether what an operation is on is dirty.
func (d *dirty) has(t link.Target) bool {
	if t.Ifindex == 0 {
		return d.ports
	}
	return d.links[t.Ifindex]
}

// add adds a link by its interface index.
func (d *dirty) add(index int) {
	if d.links == nil {
		d.links = map[int]bool{}
	}
	d.links[index] = true
}

func (d *dirty) addAll(links map[int]bool) {
	for i := range links {
		d.add(i)
	}
}

func (d *dirty) empty() bool { return len(d.links) == 0 && !d.ports }

// adopt makes a snapshot the present one and adds the links that changed, and
// those on ports that changed, to dirty. now is when the observation began.
func (d *Daemon) adopt(s *link.Snapshot, dirty *dirty, now time.Time) {
	old := d.snap
	links, gone, rdma := changedLinks(old, s)
	d.snap = s
	dirty.addAll(links)
	dirty.ports = dirty.ports || gone
	states := map[string]linkState{}
	for i := range links {
		if l, ok := s.Link(i); ok && len(d.delayed.m) > 0 {
			states[l.Name] = stateOf(l)
		}
	}
	d.delayed.caused(states)
	for i := range links {
		l, ok := s.Link(i)
		if o := oldLink(old, i); ok && (l.Bond != nil || l.VRF != nil) && (o == nil || o.Name != l.Name) {
			dirty.addAll(d.joining(l.Name))
		}
	}
	if len(links) > 0 || gone {
		for i, st := range d.status {
			if st.Obstructed() {
				dirty.add(i)
			}
		}
	}
	if old != nil {
		changed, ports := roce.Changed(old.Card, s.Card)
		dirty.addAll(changed)
		dirty.ports = dirty.ports || ports
	}
	if old != nil && !reflect.DeepEqual(old.NextHops, s.NextHops) {
		for i, g := range d.governing.Links {
			if g.Unit != nil && g.Unit.UsesNextHops() {
				dirty.add(i)
			}
		}
		dirty.ports = true // of a unit that is gone
		d.delayed.forget(overNextHops)
	}
	if old != nil && !(reflect.DeepEqual(old.Namespaces, s.Namespaces) && reflect.DeepEqual(old.Moved, s.Moved)) {
		for i := range s.Links {
			dirty.add(s.Links[i].Index)
		}
		d.delayed.forget(sends)
	}
	if rdma {
		d.moved = now
		moved := map[string]bool{}
		for i := range s.Links {
			l := &s.Links[i]
			if l.IBDevice == "" {
				continue
			}
			if old == nil || !samePort(old, s, l) {
				dirty.add(l.Index)
				_, p := s.PortOf(l)
				moved[l.Name] = p != nil && p.Layer == ib.LinkLayerInfiniBand
			}
		}
		// What was refused may be granted by a port in another state.
		dirty.ports = true
		d.delayed.ports(moved, now)
	}
	if old != nil && !reflect.DeepEqual(old.Host, s.Host) {
		if old.Host.Resolved != s.Host.Resolved {
			d.delayed.forget(func(op link.Op) bool { _, dns := op.(link.SetDNS); return dns })
		}
		for i := range s.Links {
			dirty.add(s.Links[i].Index)
		}
	}
	d.delayed.changed(states, now)
	maps.DeleteFunc(dirty.links, func(i int, _ bool) bool { _, ok := s.Link(i); return !ok })
}

// overNextHops reports an operation that may have been refused for what other nexthops
// were.
func overNextHops(op link.Op) bool {
	switch o := op.(type) {
	case link.SetNextHop:
		return len(o.NextHop.Group) > 0
	case link.AddRoute:
		return o.Route.NextHopID != 0
	}
	return false
}

// joining are the links whose units put them into the bond or VRF of a name.
func (d *Daemon) joining(name string) map[int]bool {
	out := map[int]bool{}
	for i, g := range d.governing.Links {
		bond, _ := g.Unit.MasterBond()
		vrf, _ := g.Unit.VRFName()
		if name != "" && (bond == name || vrf == name) {
			out[i] = true
		}
	}
	return out
}

func oldLink(s *link.Snapshot, index int) *link.Link {
	if s == nil {
		return nil
	}
	l, _ := s.Link(index)
	return l
}

func samePort(a, b *link.Snapshot, l *link.Link) bool {
	_, p := a.PortOf(l)
	_, q := b.PortOf(l)
	return p == nil && q == nil || p != nil && q != nil && reflect.DeepEqual(p, q)
}

// changedLinks lists the links that differ between two snapshots, also those
// that came, the parents of those that went and of VLANs that are others now. It
// reports whether any went and whether RDMA devices differ.
func changedLinks(a, b *link.Snapshot) (links map[int]bool, gone, rdma bool) {
	links = map[int]bool{}
	if a == nil {
		for i := range b.Links {
			links[b.Links[i].Index] = true
		}
		return links, false, true
	}
	if len(a.Links) != len(b.Links) || len(a.Links) > 0 && &a.Links[0] != &b.Links[0] {
		for i := range b.Links {
			l := &b.Links[i]
			o, ok := a.Link(l.Index)
			if !ok || !reflect.DeepEqual(o, l) {
				links[l.Index] = true
				if l.VLAN != nil && (!ok || !reflect.DeepEqual(o.VLAN, l.VLAN)) {
					links[l.Parent] = true // whose unit says what it is to be
				}
			}
		}
		for i := range a.Links {
			if _, ok := b.Link(a.Links[i].Index); !ok {
				gone = true
				if p := a.Links[i].Parent; p != 0 {
					links[p] = true
				}
			}
		}
	}
	rdma = len(a.Devices) != len(b.Devices) || len(a.Devices) > 0 && &a.Devices[0] != &b.Devices[0] && !reflect.DeepEqual(a.Devices, b.Devices)
	return links, gone, rdma
}
