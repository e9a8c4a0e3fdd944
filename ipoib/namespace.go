package ipoib

import (
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
	return b.PlanElsewhere(link.Elsewhere{Parent: parent, Name: p.ChildName(parent.Name), Namespace: p.Namespace(), Section: "Partition",
		Kind: "ipoib", PKey: p.PartitionKey.V.AsFull().String(),
		Is:      func(m link.Moved) bool { return isMoved(m, p, parent) },
		Clashes: func(m link.Moved) bool { return m.PKey.Base() == p.PartitionKey.V.Base() },
		Text:    func(m link.Moved, _ *link.MovedLink) string { return m.PKey.String() + " " + m.Name },
	}, a, block)
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
	if a.Why = b.NoNamespace(l.Name, p.Namespace()); a.Why != (link.Reason{}) {
		b.Block(op.On, op, true, a.Why)
	} else {
		b.DoFor(op, &a.Why)
	}
	b.Attr(index, a)
}
