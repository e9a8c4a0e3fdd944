// Package ipoib plans the InfiniBand part of an IPoIB link: its GUID, transport
// mode, MTU, multicast filter and P_Key children. It is pure: it appends operations
// to a link.Builder, whose caller is daemon/plan.
//
// The kernel's rules that it predicts are in drivers/infiniband/ulp/ipoib
// (ipoib_main.c, ipoib_vlan.c, ipoib_cm.c, ipoib_multicast.c).
package ipoib

import (
	"fmt"
	"slices"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// Want is what is asked of one IPoIB link, whether by its own unit or by the
// [Partition] of its parent's.
type Want struct {
	Mode   units.Value[units.Mode]
	MTU    units.Value[units.MTU]
	Umcast units.Value[bool]
	GUID   units.Value[ib.GUID]
}

// WantOf joins a link's own unit (nil for none) with the [Partition] that made
// it (nil for none); what the unit says counts more.
func WantOf(u *units.Unit, p *units.Partition) (w Want) {
	if p != nil {
		w.Mode, w.MTU, w.Umcast = p.Mode, p.MTUBytes, p.IgnoreUserspaceMulticastGroups
	}
	if u == nil {
		return w
	}
	if u.IPoIB.Mode.Set {
		w.Mode = u.IPoIB.Mode
	}
	if u.Link.MTUBytes.Set {
		w.MTU = u.Link.MTUBytes
	}
	if u.IPoIB.IgnoreUserspaceMulticastGroups.Set {
		w.Umcast = u.IPoIB.IgnoreUserspaceMulticastGroups
	}
	w.GUID = u.Link.GUID
	return w
}

// Plan plans the InfiniBand part of a link, before it is brought up.
func Plan(b *link.Builder, index int, w Want) {
	planGUID(b, index, w)
	planMode(b, index, w)
	planMTU(b, index, w)
	planUmcast(b, index, w)
}

func planGUID(b *link.Builder, index int, w Want) {
	g, ok := w.GUID.Get()
	if !ok {
		return
	}
	l := b.Link(index)
	a := link.Attribute{Name: "GUID", Wanted: g.String(), Actual: b.Link(index).HWAddr.GUID().String()}
	defer func() { b.Attr(index, a) }()
	if l.HWAddr.GUID() == g {
		return
	}
	raw := l.HWAddr.Bytes()
	gb := g.Bytes()
	if len(raw) != 20 {
		a.Why = link.Reason{Code: link.CodeNotIPoIB, Text: l.Name + " has no 20-byte InfiniBand address"}
		b.Block(b.Model.Target(l), nil, false, a.Why)
		return
	}
	copy(raw[12:], gb[:])
	addr, err := ib.HWAddrFrom(raw)
	if err != nil {
		return
	}
	op := link.SetGUID{On: b.Model.Target(l), Addr: addr}
	if why, delayed := b.Delayed[link.DelayKey(op)]; delayed {
		// The link stays up: the address was refused before.
		a.Why = why
		b.Block(op.On, op, false, why)
		return
	}
	if l.Up() && !b.Do(link.SetUp{On: op.On, Up: false}) {
		return
	}
	b.Do(op)
	// Up again is the business of ActivationPolicy=, which must not take this
	// for an administrator's doing.
	if now := b.Now(index); now != nil && now.Up() {
		b.Do(link.SetUp{On: op.On, Up: true})
	}
}

func planMode(b *link.Builder, index int, w Want) {
	m, ok := w.Mode.Get()
	if !ok {
		return
	}
	l := b.Link(index)
	a := link.Attribute{Name: "Mode", Wanted: m.String(), Actual: l.IPoIB.Mode.String()}
	defer func() { b.Attr(index, a) }()
	want := ib.ModeDatagram
	if m == units.ModeConnected || m == units.ModeAuto {
		want = ib.ModeConnected
	}
	op := link.SetMode{On: b.Model.Target(l), Mode: want}
	if want == ib.ModeConnected && !l.HWAddr.SupportsConnected() {
		if m == units.ModeAuto {
			want, op.Mode = ib.ModeDatagram, ib.ModeDatagram
		} else {
			a.Why = noConnected(b.Base, l)
			b.Block(op.On, op, false, a.Why)
			return
		}
	}
	if l.IPoIB.Mode == want {
		return
	}
	if b.Do(op) {
		return
	}
	a.Why = b.Delayed[link.DelayKey(op)]
	if m == units.ModeAuto {
		a.Why = link.Reason{}
	}
}

// noConnected is the reason why a link stays in datagram mode although
// connected mode is asked for.
func noConnected(s *link.Snapshot, l *link.Link) link.Reason {
	most := s.MaxDatagram(l)
	next := fmt.Sprintf(
		"write Mode=auto to accept datagram: its MTU is %d at most, where the group of the partition has an MTU of %d (MTUBytes=max)",
		most,
		most+4,
	)
	if s.Host.EnhancedSwitch {
		next = "write Mode=auto to accept datagram, or load the driver with \"options ib_ipoib ipoib_enhanced=0\" in modprobe.d"
	}
	cause := "enhanced IPoIB, or a kernel without CONFIG_INFINIBAND_IPOIB_CM"
	if l.NetDriver != "" && l.EnhancedIPoIB() {
		cause = "the enhanced IPoIB of " + l.Driver + " has datagram mode only"
	}
	return link.Reason{Code: link.CodeNoConnected,
		Text: fmt.Sprintf("%s does not offer connected mode (no RC flag in its address %.11s...): %s", l.Name, l.HWAddr, cause),
		Next: next}
}

// datagramMTUs are the netdev MTUs of datagram mode for the InfiniBand MTUs
// 4096 to 256, the limits that an InfiniBand adapter or group can set, with the
// larger ones of Omni-Path.
var datagramMTUs = [...]int{link.MaxOmniPathMTU, 8188, 4092, 2044, 1020, 508, 252}

// candidates are the MTUs to ask for in turn, best first: the adapter refuses
// those above its own limit, which the kernel shows nowhere.
func candidates(mode ib.IPoIBMode, limit int) []int {
	var out []int
	if mode == ib.ModeConnected {
		out = link.ConnectedMTUs()
	} else {
		out = append(out, datagramMTUs[:]...)
	}
	var fit []int
	if limit < out[0] {
		fit = append(fit, limit)
	}
	for _, c := range out {
		if c <= limit {
			if len(fit) == 0 || fit[len(fit)-1] != c {
				fit = append(fit, c)
			}
		}
	}
	return fit
}

func planMTU(b *link.Builder, index int, w Want) {
	m, ok := w.MTU.Get()
	if !ok {
		return
	}
	l, now := b.Link(index), b.Now(index)
	rec := b.Record.Of(l)
	t := b.Model.Target(l)
	a := link.Attribute{Name: "MTUBytes", Wanted: m.String()}
	changed := now == nil || now.IPoIB.Mode != l.IPoIB.Mode
	if now != nil {
		a.Actual = fmt.Sprint(now.MTU)
	}
	defer func() { b.Attr(index, a) }()

	mode := l.IPoIB.Mode
	limit := b.Base.MaxDatagram(l)
	if mode == ib.ModeConnected {
		limit = ib.ConnectedMTU
	}
	asked := limit
	if !m.Max {
		asked = m.Bytes
	}
	if asked > limit {
		if mode == ib.ModeDatagram {
			a.Why = link.Reason{Code: link.CodeMTUMode,
				Text: fmt.Sprintf("wanted %d, datagram mode takes at most %d; more needs connected mode", asked, limit),
				Next: "write Mode=connected in [IPoIB], or MTUBytes=max"}
			if !l.HWAddr.SupportsConnected() {
				a.Why.Next = "write MTUBytes=max: the link has no connected mode"
			}
		} else {
			a.Why = link.Reason{Code: link.CodeMTUAdapter,
				Text: fmt.Sprintf("wanted %d, connected mode takes at most %d", asked, limit), Next: "write MTUBytes=max"}
		}
		b.Block(t, link.SetMTU{On: t, MTU: asked}, false, a.Why)
		asked = limit
	}
	for _, c := range candidates(mode, asked) {
		op := link.SetMTU{On: t, MTU: c}
		if _, delayed := b.Delayed[link.DelayKey(op)]; delayed {
			if !m.Max && a.Why.Code == link.CodeNone {
				a.Why = link.Reason{
					Code: link.CodeMTUAdapter,
					Text: fmt.Sprintf("wanted %d, the adapter refuses more than a smaller MTU (%s)", asked, b.Delayed[link.DelayKey(op)].Text),
					Next: "write MTUBytes=max to take the largest that it allows",
				}
				b.Block(t, op, false, a.Why)
			}
			continue
		}
		if !changed && l.MTU == c {
			return
		}
		// The kernel keeps the request and shows the smaller of it and the group's
		// MTU. An MTU that is not so is another program's.
		byGroup := l.MTU < c && slices.Contains(datagramMTUs[:], l.MTU)
		if !changed && mode == ib.ModeDatagram && rec != nil && rec.AskedMTU == c && (rec.GotMTU == 0 || rec.GotMTU == l.MTU && byGroup) {
			if !m.Max && a.Why.Code == link.CodeNone {
				a.Why = groupReason(c, l, b.Base)
			}
			return
		}
		b.Do(op)
		return
	}
}

func groupReason(asked int, l *link.Link, s *link.Snapshot) link.Reason {
	if !l.Carrier() {
		return link.Reason{Code: link.CodeMTUGroup,
			Text: fmt.Sprintf("wanted %d, it is %d until the broadcast group is joined, whose MTU the subnet manager sets", asked, l.MTU)}
	}
	next := ""
	if _, p := s.PortOf(l); p != nil {
		next = p.MTUStep(l.IPoIB.PKey)
	}
	return link.Reason{Code: link.CodeMTUGroup,
		Text: fmt.Sprintf("wanted %d, the fabric's broadcast group allows %d (group MTU %d; the subnet manager sets it)",
			asked, l.MTU, l.MTU+ib.IPoIBEncap),
		Next: next}
}

func planUmcast(b *link.Builder, index int, w Want) {
	v, ok := w.Umcast.Get()
	if !ok {
		return
	}
	l := b.Link(index)
	a := link.Attribute{Name: "IgnoreUserspaceMulticastGroups", Wanted: units.YesNo(v), Actual: units.YesNo(l.IPoIB.IgnoreUserspaceMulticast)}
	if l.IPoIB.IgnoreUserspaceMulticast != v {
		op := link.SetUmcast{On: b.Model.Target(l), Set: v}
		if !b.Do(op) {
			a.Why = b.Delayed[link.DelayKey(op)]
		}
	}
	b.Attr(index, a)
}

// PartitionOf is the [Partition] of the parent's unit that a child answers to,
// nil if it answers to none.
func PartitionOf(child *link.Link, parent *units.Unit) *units.Partition {
	if parent == nil || child.IPoIB == nil {
		return nil
	}
	for i := range parent.Partitions {
		if parent.Partitions[i].PartitionKey.V.Base() == child.IPoIB.PKey.Base() {
			return &parent.Partitions[i]
		}
	}
	return nil
}

// DropChildren deletes the recorded P_Key children that no [Partition] asks for.
// u is nil where no unit applies to the link any more. It comes before children
// are made anywhere, because a name may move between parents.
func DropChildren(b *link.Builder, index int, u *units.Unit) {
	b.For(u)
	parent := b.Link(index)
	var parts []units.Partition
	if u != nil {
		parts = u.Partitions
	}
	for _, m := range b.Record.MovedFrom(index) {
		if !slices.ContainsFunc(parts, func(p units.Partition) bool { return isMoved(m, &p, parent) }) {
			b.DropMoved(m)
		}
	}
	for _, c := range b.Model.Snapshot().Children(index) {
		if !b.Record.MadeChild(c) {
			continue
		}
		keep := false
		name := nameAsked(b.Record.Of(c).Name, parent, c.IPoIB.PKey)
		for i := range parts {
			// A child that was renamed from outside stays; one whose Name= or key was
			// edited is re-created.
			keep = keep || parts[i].PartitionKey.V.Base() == c.IPoIB.PKey.Base() && parts[i].ChildName(parent.Name) == name
		}
		if !keep {
			b.Do(link.DelLink{On: b.Model.Target(c)})
		}
	}
}

// AddChildren makes the P_Key children that a unit asks for.
func AddChildren(b *link.Builder, index int, u *units.Unit) {
	b.For(u)
	for i := range u.Partitions {
		planChild(b, index, &u.Partitions[i], u.Partitions[:i])
	}
}

// keyRefusal returns why a link cannot have a child with a P_Key, whatever other
// children it has; zero if it can.
func keyRefusal(parent *link.Link, key ib.PKey) link.Reason {
	switch {
	case !key.IsValid():
		return link.Reason{
			Code: link.CodePKeyInvalid,
			Text: fmt.Sprintf("P_Key %s names no partition", key),
			Next: "write a key from 0x0001 to 0x7fff, with or without 0x8000",
		}
	case parent.Bond != nil && parent.IsInfiniBand():
		// ipoib_new_child_link would take the bond's memory for an IPoIB interface's.
		return link.Reason{Code: link.CodeNotIPoIB,
			Text: fmt.Sprintf("%s is a bond: P_Key children exist on ports only", parent.Name),
			Next: "write [Partition] in the units of its slaves, and bond the children by a unit with [Match] PartitionKey=" + key.AsFull().String()}
	case parent.IPoIB == nil:
		return link.Reason{Code: link.CodeNotIPoIB, Text: parent.Name + " is not an InfiniBand interface: P_Key children exist on those only"}
	case parent.IsChild():
		return link.Reason{
			Code: link.CodeChildOfChild,
			Text: parent.Name + " is a P_Key child itself and can have none",
			Next: "move the [Partition] section to the unit of its parent",
		}
	case parent.IPoIB.PKey.Base() == key.Base():
		return link.Reason{
			Code: link.CodePKeyDuplicate,
			Text: fmt.Sprintf("P_Key %s is %s's own", key, parent.Name),
			Next: fmt.Sprintf("remove the [Partition] section with PartitionKey=%s", key),
		}
	}
	return link.Reason{}
}

// nameAsked is the name under which a child was made; where the parent was
// renamed since, a name that followed the parent's follows it.
func nameAsked(made string, parent *link.Link, key ib.PKey) string {
	if p, suffix, ok := strings.Cut(made, "."); ok && p != parent.Name && suffix == fmt.Sprintf("%04x", uint16(key.AsFull())) {
		return parent.Name + "." + suffix
	}
	return made
}

func planChild(b *link.Builder, index int, p *units.Partition, before []units.Partition) {
	parent := b.Link(index)
	key := p.PartitionKey.V
	name := p.ChildName(parent.Name)
	on := link.Target{Link: name, IBDevice: parent.IBDevice, Port: parent.Port}
	op := link.AddChild{On: on, Parent: b.Model.Target(parent), PKey: key.AsFull()}
	a := link.Attribute{Name: "Partition", Wanted: key.AsFull().String() + " " + name}
	if p.NetworkNamespace.Set {
		a.Wanted += " in network namespace " + link.NamespaceName(p.Namespace())
	}
	defer func() { b.Attr(index, a) }()
	block := func(why link.Reason) {
		a.Why = why
		b.Block(on, op, false, why)
	}
	for i := range before {
		if before[i].PartitionKey.V.Base() == key.Base() {
			block(link.Reason{Code: link.CodePKeyDuplicate,
				Text: fmt.Sprintf("P_Key %s is configured twice on %s; "+
					"the kernel would make a second interface on the same partition that receives no traffic",
					key, parent.Name),
				Next: "keep one of the two [Partition] sections"})
			return
		}
	}
	if why := keyRefusal(parent, key); why != (link.Reason{}) {
		block(why)
		return
	}
	for _, c := range b.Model.Snapshot().Children(index) {
		if c.IPoIB.PKey.Base() != key.Base() {
			continue
		}
		a.Actual = c.IPoIB.PKey.String() + " " + c.Name
		if why := b.NoNamespace(c.Name, p.Namespace()); why != (link.Reason{}) {
			block(why)
		} else if p.NetworkNamespace.Set && c.Name == name && !Leaves(b, c, p) {
			block(link.Reason{Code: link.CodePKeyForeign,
				Text: fmt.Sprintf("%s was not made by ibnetworkd: it is not moved to a network namespace", name),
				Next: "ip link delete " + name + ", or ip link set " + name + " netns " + link.NamespaceName(p.Namespace())})
		}
		if c.Name != name && !b.Record.MadeChild(c) {
			block(link.Reason{
				Code: link.CodePKeyForeign,
				Text: fmt.Sprintf("P_Key %s has the interface %s on %s already, which ibnetworkd has not made; a second one would not work",
					key, c.Name, parent.Name),
				Next: "write Name=" + c.Name + ", or ip link delete " + c.Name,
			})
		}
		return
	}
	if done := planMoved(b, parent, p, &a, block); done {
		return
	}
	if other, taken := b.Model.Snapshot().LinkByName(name); taken {
		block(link.Reason{
			Code: link.CodeNameTaken,
			Text: fmt.Sprintf("the name %s is taken by another interface (index %d)", name, other.Index),
			Next: "write another Name= in [Partition]",
		})
		return
	}
	if len(name) > 15 {
		block(link.Reason{
			Code: link.CodeNameTaken,
			Text: fmt.Sprintf("the name %s has %d characters, an interface name has at most 15", name, len(name)),
			Next: "write a shorter Name= in [Partition]",
		})
		return
	}
	if why, wait := b.ChildWait[index]; wait {
		a.Why = why
		b.Block(on, op, true, why)
		return
	}
	if !b.Do(op) {
		a.Why = b.Delayed[link.DelayKey(op)]
	}
}
