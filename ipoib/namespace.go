package ipoib

import (
	"fmt"

	"ibnetworkd/link"
	"ibnetworkd/units"
)

// isMoved reports whether a child that was moved is the one that a [Partition] asks for.
func isMoved(m link.Moved, p *units.Partition, parent *link.Link) bool {
	return p.NetworkNamespace.Set && p.Namespace() == m.Namespace && p.PartitionKey.V.Base() == m.PKey.Base() &&
		p.ChildName(parent.Name) == nameAsked(m.Name, parent, m.PKey)
}

// planMoved notes a child that is in another network namespace, or that waits for one. It
// reports false if the child is to be made.
func planMoved(b *link.Builder, parent *link.Link, p *units.Partition, a *link.Attribute, block func(link.Reason)) (done bool) {
	if name, key, ok := b.Moving(parent.Index, p.PartitionKey.V); ok {
		a.Actual = key.String() + " " + name
		return true
	}
	for _, m := range b.Record.MovedFrom(parent.Index) {
		state, why := b.MovedState(m)
		switch {
		case isMoved(m, p, parent):
			if state != "" {
				a.Actual = m.PKey.String() + " " + m.Name + state
			}
		case m.PKey.Base() == p.PartitionKey.V.Base() && !b.Dropped(m):
			why = b.StillThere(m)
		default:
			continue
		}
		if why != (link.Reason{}) {
			block(why)
		}
		return true
	}
	name := p.ChildName(parent.Name)
	if why := b.Moved(name, parent); why != (link.Reason{}) {
		block(why)
		return true
	}
	if b.TakenIn(name, p.Namespace()) {
		block(link.Reason{Code: link.CodeNameTaken, Next: "write another Name= in [Partition]",
			Text: fmt.Sprintf("the name %s is taken by another child in network namespace %s", name, link.NamespaceName(p.Namespace()))})
		return true
	}
	if why := noNamespace(b, name, p); why != (link.Reason{}) {
		block(why)
		return true
	}
	return false
}

// noNamespace is the reason why a child waits for its network namespace, zero if it does
// not.
func noNamespace(b *link.Builder, name string, p *units.Partition) link.Reason {
	path := p.Namespace()
	if path == "" || b.Base.Namespace(path) != nil {
		return link.Reason{}
	}
	ns, next := link.NamespaceName(path), "create it, or correct NetworkNamespace="
	if ns != path {
		next = "ip netns add " + ns
	}
	return link.Reason{Code: link.CodeNoNamespace, Next: next,
		Text: fmt.Sprintf("%s waits for network namespace %s: there is none at %s", name, ns, path)}
}

// Leaves reports whether a child is to be moved to the network namespace of its
// [Partition], nil for none: one that another program made is not.
func Leaves(b *link.Builder, child *link.Link, p *units.Partition) bool {
	return p != nil && p.NetworkNamespace.Set && (b.Now(child.Index) == nil || b.Record.MadeChild(child))
}

// PlanLeave plans the InfiniBand part of a child and then moves it to its network
// namespace: what is refused of the former leads to other values, so the move is in a
// plan of its own.
func PlanLeave(b *link.Builder, index int, p *units.Partition) {
	steps := len(b.Plan.Steps)
	Plan(b, index, WantOf(nil, p))
	l := b.Link(index)
	if len(b.Plan.Steps) > steps || b.Now(index) == nil {
		return
	}
	op := link.MoveLink{On: b.Model.Target(l), Parent: l.Parent, PKey: l.IPoIB.PKey.AsFull(), Namespace: p.Namespace()}
	a := link.Attribute{Name: "NetworkNamespace", Wanted: link.NamespaceName(op.Namespace)}
	if a.Why = noNamespace(b, l.Name, p); a.Why != (link.Reason{}) {
		b.Block(op.On, op, true, a.Why)
	} else {
		b.DoFor(op, &a.Why)
	}
	b.Attr(index, a)
}

// UnitRefusal is the reason why a unit is not applied to a child of a link: the child is in
// another network namespace.
func UnitRefusal(child string, u *units.Unit, p *units.Partition) link.Reason {
	name, add := link.NamespaceName(p.Namespace()), link.InNamespace(p.Namespace(), "address add ADDRESS dev "+child)
	return link.Reason{Code: link.CodeOtherNamespace,
		Text: fmt.Sprintf("%s matches %s, which is for network namespace %s: the unit is not applied", u.Path, child, name),
		Next: "write Mode= and MTUBytes= in [Partition]; for addresses: " + add + ", or an ibnetworkd there"}
}
