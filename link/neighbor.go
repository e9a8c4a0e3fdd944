package link

import (
	"fmt"
	"net/netip"
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/units"
)

// Neighbor is a permanent entry of the neighbour table of a link.
type Neighbor struct {
	IP     netip.Addr `json:"ip"`
	HWAddr ib.HWAddr  `json:"hw_addr"`
}

// String prints the entry as ip neighbour takes it.
func (n Neighbor) String() string { return n.IP.String() + " lladdr " + n.HWAddr.String() }

// sameIP reports whether two entries of a link are for one address, so that the
// kernel has one of them.
func (n Neighbor) sameIP(o Neighbor) bool { return n.IP == o.IP }

func removeNeighbor(list []Neighbor, n Neighbor) []Neighbor {
	return slices.DeleteFunc(slices.Clone(list), n.sameIP)
}

// planNeighborRemovals deletes the recorded entries that are not wanted any more.
func planNeighborRemovals(b *Builder, index int, rec *LinkRecord, want []units.Neighbor) {
	for _, n := range rec.Neighbors {
		wanted := slices.ContainsFunc(want, func(w units.Neighbor) bool { return w.Address.V == n.IP })
		if !wanted && slices.ContainsFunc(b.Link(index).Neighbors, n.sameIP) {
			b.Do(DelNeighbor{On: b.Model.Target(b.Link(index)), Neighbor: n})
		}
	}
}

func planNeighbors(b *Builder, index int, u *units.Unit, rec *LinkRecord) {
	vrf := vrfWait(b, b.Link(index), u)
	for i := range u.Neighbors {
		planNeighbor(b, index, Neighbor{u.Neighbors[i].Address.V, u.Neighbors[i].LinkLayerAddress.V}, rec, vrf)
	}
}

func planNeighbor(b *Builder, index int, n Neighbor, rec *LinkRecord, vrf Reason) {
	l := b.Link(index)
	op := SetNeighbor{On: b.Model.Target(l), Neighbor: n}
	a := Attribute{Name: "Neighbor", Wanted: n.String()}
	if now := b.Now(index); now != nil {
		if i := slices.IndexFunc(now.Neighbors, n.sameIP); i >= 0 {
			a.Actual = now.Neighbors[i].String()
		}
	}
	block := func(wait bool, why Reason) {
		a.Why = why
		b.Block(op.On, op, wait, why)
	}
	bytes, kind := 6, "an Ethernet"
	if l.IsInfiniBand() {
		bytes, kind = 20, "an IPoIB"
	}
	i, no6 := slices.IndexFunc(l.Neighbors, n.sameIP), noInet6(b.Base.Host.NoIPv6, l)
	switch {
	case n.HWAddr.Len() != bytes:
		block(false, Reason{
			Code: CodeUnsupported,
			Text: fmt.Sprintf("%s is %s link: the address of neighbour %s has %d bytes, not %d", l.Name, kind, n.IP, n.HWAddr.Len(), bytes),
			Next: "correct LinkLayerAddress= in [Neighbor]; \"ip link show\" prints it on the other host",
		})
	case i >= 0 && l.Neighbors[i] == n:
	case i >= 0 && (rec == nil || !slices.ContainsFunc(rec.Neighbors, n.sameIP)):
		block(false, Reason{
			Code: CodeAddressConflict,
			Text: fmt.Sprintf("a permanent neighbour %s exists on %s already, and was not made by ibnetworkd", n.IP, l.Name),
			Next: DelNeighbor{On: op.On, Neighbor: n}.String(),
		})
	case vrf != (Reason{}):
		block(true, vrf)
	case !l.Up():
		block(true, Reason{Code: CodeLinkDown, Text: l.Name + " is down: a neighbour needs it up", Next: "ip link set " + l.Name + " up"})
	case n.IP.Is6() && no6 != (Reason{}):
		block(false, no6)
	default:
		op.Replace = i >= 0
		b.DoFor(op, &a.Why)
	}
	b.Attr(index, a)
}

// setNeighbor does what neigh_add does, and what the interface's IPv6 part needs.
func (m *Model) setNeighbor(l *Link, n Neighbor) error {
	switch {
	case n.IP.Is6() && (m.snap.Host.NoIPv6 || l.MTU < 1280):
		return errInvalid
	case l.IsInfiniBand() && n.HWAddr.Len() != 20, !l.IsInfiniBand() && n.HWAddr.Len() < 6:
		return errInvalid
	}
	l.Neighbors = append(removeNeighbor(l.Neighbors, n), n)
	slices.SortFunc(l.Neighbors, func(a, b Neighbor) int { return a.IP.Compare(b.IP) })
	return nil
}
