package roce

import (
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// Codes of GIDIndex=.
const (
	CodeGIDPending  link.Code = "gid-table-pending"  // the kernel has not entered or removed an address yet
	CodeGIDOccupied link.Code = "gid-index-occupied" // by an entry that is not moved
	CodeGIDInUse    link.Code = "gid-in-use"         // a queue pair may refer to what would be moved
)

// member is an address with entries in a GID table.
type member struct {
	on   link.Target
	addr link.Address
}

// indexer plans GIDIndex= of one link.
type indexer struct {
	planner
	unitOf func(index int) *units.Unit
	want   int
	port   Port   // as it will be after the steps so far
	where  string // mlx5_0/1
	attr   link.Attribute
}

// PlanGIDIndex plans that the RoCE v2 GID of a link's first IPv4 address has the index
// that its unit asks for. It comes after the addresses are planned. unitOf gives the
// unit that is applied to a link.
func PlanGIDIndex(b *link.Builder, index int, u *units.Unit, unitOf func(index int) *units.Unit) {
	l := b.Link(index)
	want, ok := u.RoCE.GIDIndex.Get()
	if !ok || l == nil || b.Base.Card == nil || l.IsInfiniBand() || IsSlave(b.Base, l) || link.IsVLAN(l.Kind) && unitOf(l.Parent) == u {
		return
	}
	p := indexer{planner: planner{b: b, st: b.Base.Card, index: index, l: l, u: u, on: b.Model.Target(l)}, unitOf: unitOf, want: want,
		attr: link.Attribute{Name: "GIDIndex", Wanted: fmt.Sprint(want)}}
	p.findPort()
	if p.roce == nil || p.roce.Layer != ib.LinkLayerEthernet {
		p.not(p.noDevice(), false)
		return
	}
	p.port = b.Model.Snapshot().Card.Devices[p.roceOn.IBDevice].Ports[p.roceOn.Port]
	p.where = fmt.Sprintf("%s/%d", p.roceOn.IBDevice, p.roceOn.Port)
	p.plan()
}

// not notes why the index is not as wanted.
func (p *indexer) not(why link.Reason, wait bool) {
	p.attr.Why = why
	p.b.Attr(p.index, p.attr)
	p.b.Block(p.on, nil, wait, why)
}

func (p *indexer) plan() {
	for _, l := range p.sharing() { // of a daemon that was killed
		for _, x := range slices.Clone(l.Addresses) {
			if isHelper(x) {
				p.b.Do(link.DelAddress{On: p.b.Model.Target(l), Address: x})
			}
		}
	}
	base := p.st.Devices[p.roceOn.IBDevice].Ports[p.roceOn.Port]
	a, fresh, why := p.address()
	if !a.addr.Prefix.IsValid() {
		p.not(why, why.Code == CodeGIDPending)
		return
	}
	ip := a.addr.Prefix.Addr()
	before, had := base.GIDOf(ip, p.l.Name, 2)
	if had {
		p.attr.Actual = fmt.Sprint(before.Index)
	}
	if e, ok := p.port.GIDOf(ip, p.l.Name, 2); ok && e.Index == p.want {
		p.b.Attr(p.index, p.attr)
		return
	}
	switch {
	case p.unreachable(&why):
		p.not(why, false)
		return
	case !p.settled(base):
		p.not(link.Reason{Code: CodeGIDPending, Text: fmt.Sprintf("the kernel is still changing the GID table of %s", p.where)}, true)
		return
	case !fresh && !p.ours(p.l, a.addr):
		p.not(link.Reason{
			Code: CodeGIDOccupied,
			Text: fmt.Sprintf("%s was set by another program, so that it is not moved to index %d of %s", ip, p.want, p.where),
			Next: fmt.Sprintf("ip address delete %s dev %s: the unit sets it again", a.addr.Prefix, p.l.Name),
		}, false)
		return
	}
	moved, fillers, ok := p.find(a)
	if !ok {
		p.not(p.occupied(ip), true)
		return
	}
	if len(p.port.GIDUsers) > 0 && (had || len(moved) > 0) {
		p.not(p.inUse(ip), true)
		return
	}
	if slices.Contains(p.port.GIDStuck, p.want) {
		p.not(p.stuck(ip), true)
		return
	}
	op := p.move(a, moved, fillers)
	p.b.DoFor(op, &p.attr.Why)
	p.b.Attr(p.index, p.attr)
}

// address is the link's first IPv4 address of its unit, or that was set for it
// otherwise, and whether it is one that is still to be added.
func (p *indexer) address() (a member, fresh bool, why link.Reason) {
	ofUnit, _ := p.b.Derivation.Addresses(p.b.Model.Snapshot(), p.l, p.u)
	var want []netip.Prefix
	for i := range ofUnit {
		if x := &ofUnit[i]; x.Address.V.Addr().Is4() && !x.Peer.Set {
			want = append(want, x.Address.V)
		}
	}
	if rec := p.b.Record.Of(p.l); len(want) == 0 && rec != nil {
		for _, x := range rec.Addresses {
			if x.Prefix.Addr().Is4() && !x.Peer.IsValid() {
				want = append(want, x.Prefix)
			}
		}
	}
	if len(want) == 0 && p.u.UsesDHCP() {
		return a, false, link.Reason{Code: CodeGIDPending, Text: fmt.Sprintf("%s has no address by DHCP yet", p.l.Name)}
	}
	if len(want) == 0 {
		return a, false, link.Reason{Code: link.CodeUnsupported,
			Text: fmt.Sprintf("GIDIndex= is for the IPv4 address of the unit, which has none for %s", p.l.Name), Next: "write Address= in [Network]"}
	}
	i := slices.IndexFunc(p.l.Addresses, func(x link.Address) bool { return x.Prefix == want[0] })
	if i < 0 {
		return a, false, link.Reason{Code: CodeGIDPending, Text: fmt.Sprintf("%s does not have %s yet", p.l.Name, want[0])}
	}
	a = member{p.on, p.l.Addresses[i]}
	now := p.b.Now(p.index)
	fresh = now == nil || !slices.ContainsFunc(now.Addresses, func(x link.Address) bool { return x.Prefix == want[0] })
	return a, fresh, why
}

// unreachable reports whether no address can ever have the index, with the reason in why.
func (p *indexer) unreachable(why *link.Reason) bool {
	first, versions := p.port.FirstGID(), p.port.Versions()
	n := len(versions)
	say := func(code link.Code, next, format string, args ...any) bool {
		*why = link.Reason{Code: code, Text: fmt.Sprintf(format, args...), Next: next}
		return true
	}
	switch {
	case n == 0:
		return say(CodeGIDPending, "", "the GID table of %s is empty", p.where)
	case versions[n-1] != 2:
		return say(link.CodeUnsupported, "remove GIDIndex=", "%s has no RoCE v2", p.where)
	case p.want < first:
		return say(link.CodeUnsupported, fmt.Sprintf("write GIDIndex=%d", first+n-1),
			"index %d of %s belongs to a default GID; that of an address can have %d and more", p.want, p.where, first+n-1)
	case p.port.GIDSlots != 0 && p.want >= p.port.GIDSlots:
		return say(link.CodeUnsupported, fmt.Sprintf("write GIDIndex=%d", first+n-1),
			"the GID table of %s ends at index %d, wanted %d", p.where, p.port.GIDSlots-1, p.want)
	case (p.want-first)%n != n-1:
		up := p.want + n - 1 - (p.want-first)%n
		next := fmt.Sprintf("write GIDIndex=%d or %d", up-n, up)
		switch {
		case up-n < first:
			next = fmt.Sprintf("write GIDIndex=%d", up)
		case p.port.GIDSlots != 0 && up >= p.port.GIDSlots:
			next = fmt.Sprintf("write GIDIndex=%d", up-n)
		}
		return say(link.CodeUnsupported, next,
			"index %d of %s has entries of RoCE v1: an address has one of each version, v1 first", p.want, p.where)
	}
	return false
}

// settled reports whether the table, as it was read, agrees with the addresses of
// all links that have entries in it. One of before a move does so too.
func (p *indexer) settled(base Port) bool {
	if base.GIDPending {
		return false
	}
	for _, l := range p.sharing() {
		if now, ok := p.b.Base.Link(l.Index); ok && !Settled(base.GIDs, now) {
			return false
		}
	}
	return true
}

// sharing are the links whose addresses are in the table, p.l among them.
func (p *indexer) sharing() (out []*link.Link) {
	s := p.b.Model.Snapshot()
	for i := range s.Links {
		l := &s.Links[i]
		if l.IsInfiniBand() || IsSlave(s, l) {
			continue
		}
		if devs, ports := PortsOn(s, l); slices.ContainsFunc(ports, func(q *link.Port) bool { return q.Num == p.roceOn.Port }) &&
			slices.ContainsFunc(devs, func(d *link.Device) bool { return d.Name == p.roceOn.IBDevice }) {
			out = append(out, l)
		}
	}
	return out
}

// ours reports whether this daemon set an address, or sets it in this plan.
func (p *indexer) ours(l *link.Link, a link.Address) bool {
	same := func(x link.Address) bool { return x.Prefix == a.Prefix && x.Peer == a.Peer }
	if now := p.b.Now(l.Index); now == nil || !slices.ContainsFunc(now.Addresses, same) {
		return true
	}
	rec := p.b.Record.Of(l)
	return rec != nil && slices.ContainsFunc(rec.Addresses, same)
}

// pinned reports whether an entry is where the unit of another link wants it.
func (p *indexer) pinned(l *link.Link, a link.Address) bool {
	if l.Index == p.index {
		return false
	}
	u := p.unitOf(l.Index)
	if u == nil || !u.RoCE.GIDIndex.Set {
		return false
	}
	e, ok := p.port.GIDOf(a.Prefix.Addr(), l.Name, 2)
	return ok && e.Index == u.RoCE.GIDIndex.V
}

// mostMoved bounds the addresses that are considered for a move.
const mostMoved = 8

// movable are the addresses that may be moved with a, in the order of the table: this
// daemon's, and link-local ones that the kernel made.
func (p *indexer) movable(a member) (out []member) {
	index := func(l *link.Link, x link.Address) int {
		e, ok := p.port.GIDOf(x.Prefix.Addr(), l.Name, 2)
		if !ok || e.Index < p.port.FirstGID() {
			return -1
		}
		return e.Index
	}
	at := map[member]int{}
	for _, l := range p.sharing() {
		for _, x := range l.Addresses {
			made := x.Prefix.Addr().IsLinkLocalUnicast() && x.Protocol == protoKernelLinkLocal
			m := member{p.b.Model.Target(l), x}
			if i := index(l, x); i >= 0 && m != a && !x.Peer.IsValid() && (made || p.ours(l, x)) && !p.pinned(l, x) {
				at[m] = i
				out = append(out, m)
			}
		}
	}
	slices.SortFunc(out, func(x, y member) int { return at[x] - at[y] })
	return out
}

// protoKernelLinkLocal is IFAPROT_KERNEL_LL (if_addr.h).
const protoKernelLinkLocal = 3

// find gives the fewest addresses that have to be removed with a, and the number
// of fillers, so that a has the wanted index when it is added again. The addresses
// of this daemon in the same subnet always go along, so that a comes first again.
func (p *indexer) find(a member) (moved []member, fillers int, ok bool) {
	all := p.movable(a)
	var with, rest []member
	for _, m := range all {
		if m.on == a.on && link.SameSubnet(m.addr, a.addr) {
			with = append(with, m)
		} else {
			rest = append(rest, m)
		}
	}
	rest = rest[:min(len(rest), mostMoved)]
	for size := range len(rest) + 1 {
		for set := range uint(1) << len(rest) {
			if bits.OnesCount(set) != size {
				continue
			}
			moved = slices.Clone(with)
			for i, m := range rest {
				if set&(1<<i) != 0 {
					moved = append(moved, m)
				}
			}
			if n, ok := p.lands(a, moved); ok && p.safe(append([]member{a}, moved...)) {
				return moved, n, true
			}
		}
	}
	return nil, 0, false
}

// lands reports whether a has the wanted index if it and others are removed, and a is
// added first, after a number of fillers.
func (p *indexer) lands(a member, moved []member) (fillers int, ok bool) {
	q := p.port.RemoveGID(a.addr.Prefix.Addr(), a.on.Link)
	for _, m := range moved {
		q = q.RemoveGID(m.addr.Prefix.Addr(), m.on.Link)
	}
	n, free := len(q.Versions()), 0
	for i := q.FirstGID(); i < p.want; i++ {
		if _, used := q.GIDAt(i); !used {
			free++
		}
	}
	if free < n-1 || (free-(n-1))%n != 0 {
		return 0, false
	}
	fillers = (free - (n - 1)) / n
	for i := range fillers {
		q = q.EnterGID(netip.AddrFrom4([4]byte{0, 0, byte(i >> 8), byte(i)}), "")
	}
	e, ok := q.EnterGID(a.addr.Prefix.Addr(), a.on.Link).GIDOf(a.addr.Prefix.Addr(), a.on.Link, 2)
	return fillers, ok && e.Index == p.want && fillers <= mostHelpers-2
}

// safe reports whether the kernel removes only what an operation names: without
// promote_secondaries it removes secondary addresses with their primary one.
func (p *indexer) safe(gone []member) bool {
	for _, m := range gone {
		l := p.b.Link(m.on.Ifindex)
		if l == nil {
			return false
		}
		if m.addr.Flags&link.AddrSecondary != 0 || l.Sysctl[promoteSecondaries] == "1" {
			continue
		}
		for _, x := range l.Addresses {
			if link.SameSubnet(x, m.addr) && !slices.ContainsFunc(gone, func(o member) bool { return o.on == m.on && o.addr.Prefix == x.Prefix }) {
				return false
			}
		}
	}
	return true
}

const promoteSecondaries = "ipv4/promote_secondaries"

// occupied returns what already has the index.
func (p *indexer) occupied(ip netip.Addr) link.Reason {
	why := link.Reason{Code: CodeGIDOccupied}
	e, used := p.port.GIDAt(p.want)
	if !used {
		why.Text = fmt.Sprintf("%s cannot be moved to index %d of %s: the entries below it leave an odd one free, or an address of another "+
			"program in the same subnet would be removed with it", ip, p.want, p.where)
		why.Next = fmt.Sprintf("sysctl -w net.ipv4.conf.%s.promote_secondaries=1, or remove the addresses of other programs from the link",
			strings.ReplaceAll(p.l.Name, ".", "/"))
		return why
	}
	whose := "an interface that is not in this network namespace"
	for _, l := range p.sharing() {
		for _, x := range l.Addresses {
			if l.Name != e.Netdev || x.Prefix.Addr().WithZone("") != e.IP() {
				continue
			}
			del := fmt.Sprintf("ip address delete %s dev %s", x.Prefix, l.Name)
			switch {
			case p.pinned(l, x):
				why.Text = fmt.Sprintf("index %d of %s belongs to %s of %s, whose unit also sets it", p.want, p.where, e.IP(), l.Name)
				why.Next = "write another GIDIndex= in one of the units"
				return why
			case x.Flags&link.AddrPermanent == 0 && x.Prefix.Addr().Is6():
				why.Next = del + ": the next router advertisement adds it again"
			default:
				why.Next = del + ", and add it again when " + ip.String() + " has the index"
			}
			whose = l.Name + ", which another program set"
		}
	}
	if why.Next == "" && e.Netdev != "" {
		whose = e.Netdev
	}
	why.Text = fmt.Sprintf("index %d of %s is that of %s of %s", p.want, p.where, e.IP(), whose)
	return why
}

// stuck returns why the last move did not give the index.
func (p *indexer) stuck(ip netip.Addr) link.Reason {
	if e, used := p.port.GIDAt(p.want); used {
		return link.Reason{
			Code: CodeGIDPending,
			Text: fmt.Sprintf("index %d of %s is still that of %s: the kernel has not changed the table since %s was moved",
				p.want, p.where, e.IP(), ip),
			Next: "will retry within a minute; dmesg may have the driver's reason",
		}
	}
	return link.Reason{
		Code: CodeGIDInUse,
		Text: fmt.Sprintf("index %d of %s is empty but cannot be used yet: something that the kernel does not list still uses the GID "+
			"that was removed from it", p.want, p.where),
		Next: "end the programs that use " + p.roceOn.IBDevice + " (rdma resource show); will retry within a minute",
	}
}

// inUse returns which processes keep the table as it is.
func (p *indexer) inUse(ip netip.Addr) link.Reason {
	var who []string
	for i, x := range p.port.GIDUsers {
		if i == 4 {
			who = append(who, fmt.Sprintf("%d more", len(p.port.GIDUsers)-i))
			break
		}
		who = append(who, userText(x))
	}
	text := fmt.Sprintf("%s is not moved to index %d of %s while it may be in use: %s", ip, p.want, p.where, strings.Join(who, ", "))
	if _, used := p.port.GIDAt(p.want); !used {
		text = fmt.Sprintf("index %d of %s is empty, or kept for a removed address; %s is not moved there while these exist: %s",
			p.want, p.where, ip, strings.Join(who, ", "))
	}
	return link.Reason{Code: CodeGIDInUse, Text: text, Next: "end them (rdma resource show qp); the address is moved then"}
}

func userText(x GIDUser) string {
	name := x.Program
	switch {
	case x.PID != 0 && name != "":
		name = fmt.Sprintf("%s (process %d)", name, x.PID)
	case x.PID != 0:
		name = fmt.Sprintf("process %d", x.PID)
	case name == "":
		name = "a process that is not seen here"
	default:
		name = "the kernel's " + name
	}
	var has []string
	for _, n := range []struct {
		n    int
		word string
	}{{x.QueuePairs, "queue pair"}, {x.Bound, "RDMA-CM identifier"}} {
		if n.n == 1 {
			has = append(has, "1 "+n.word)
		} else if n.n > 1 {
			has = append(has, fmt.Sprintf("%d %ss", n.n, n.word))
		}
	}
	return name + " with " + strings.Join(has, " and ")
}
