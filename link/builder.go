package link

import (
	"fmt"
	"iter"
	"slices"

	"ibnetworkd/units"
)

// Builder collects the steps of a plan and has the system as it will be after
// them. The planners of link, ipoib and roce share one.
type Builder struct {
	Base   *Snapshot // as observed
	Model  *Model    // after the steps so far
	Record *Record   // never changed here
	// Delayed are operations that were refused or failed, by DelayKey, with the
	// reason; they are not planned again until the daemon drops them.
	Delayed map[string]Reason
	Plan    Plan
	// Bound are the links, by index, that go up and down with others' carriers.
	Bound map[int]bool

	// Order are the links, by index, in the order in which they are planned.
	Order []int
	// NewChildren are the P_Key children that the plan makes.
	NewChildren []NewChild
	// ChildWait are links, by index, of which no P_Key child can be made now, with the reason.
	ChildWait map[int]Reason

	// Derivation is what derived addresses depend on.
	Derivation Derivation

	// nextHops are those that the units of the links planned so far want, by ID;
	// routesOver are routes over such, unmade why those that are not made are not.
	nextHops   map[uint32]claim
	routesOver map[routeKey]claim
	unmade     map[uint32]Reason

	unit  string
	attrs map[int][]Attribute
	ports map[PortName]*PortNote
}

// NewChild is a link that the plan makes, with the unit that applies to it.
type NewChild struct {
	Link Link
	Unit *units.Unit
}

// PortName names an RDMA port.
type PortName struct {
	IBDevice string
	Port     int
}

// PortNote is what was planned for a port that has no interface; the notes of a
// link are in its status.
type PortNote struct {
	Attributes []Attribute
	Reasons    []Reason
	Pending    []string
}

// Port is the note of a port, for a planner to write in.
func (b *Builder) Port(n PortName) *PortNote {
	if b.ports[n] == nil {
		if b.ports == nil {
			b.ports = map[PortName]*PortNote{}
		}
		b.ports[n] = &PortNote{}
	}
	return b.ports[n]
}

// Ports are the notes of all ports that have one.
func (b *Builder) Ports() map[PortName]*PortNote { return b.ports }

// DelayKey identifies an operation in Builder.Delayed.
func DelayKey(op Op) string { return op.Target().String() + "\x00" + op.String() }

// NewBuilder starts a plan.
func NewBuilder(s *Snapshot, r *Record, delayed map[string]Reason) *Builder {
	return &Builder{Base: s, Model: NewModel(s), Record: r, Delayed: delayed, attrs: map[int][]Attribute{}}
}

// Fork returns a copy whose steps do not become steps of the plan.
func (b *Builder) Fork() *Builder {
	f := NewBuilder(b.Base, b.Record, b.Delayed)
	f.Model, f.Plan.Steps, f.ChildWait = NewModel(b.Model.snap), slices.Clone(b.Plan.Steps), b.ChildWait
	f.Model.last = b.Model.last
	return f
}

// governed yields links and the units that apply to them, in the order in which they are
// planned, and last the children that the plan makes.
func (b *Builder) governed(unit func(int) *units.Unit) iter.Seq2[*Link, *units.Unit] {
	return func(yield func(*Link, *units.Unit) bool) {
		for _, i := range b.Order {
			if l := b.Link(i); l != nil && !yield(l, unit(i)) {
				return
			}
		}
		for i := range b.NewChildren {
			if c := &b.NewChildren[i]; !yield(&c.Link, c.Unit) {
				return
			}
		}
	}
}

// addresses are those that a unit gives a link as the system will be after the steps
// so far.
func (b *Builder) addresses(index int, u *units.Unit) ([]units.Address, []units.Underived) {
	return b.Derivation.Addresses(b.Model.snap, b.Link(index), u)
}

// For sets the unit that the following steps are for, "" for none.
func (b *Builder) For(u *units.Unit) {
	b.unit = ""
	if u != nil {
		b.unit = u.Path
	}
}

// Link is a link as it will be after the steps so far, nil if there is none.
func (b *Builder) Link(index int) *Link {
	l, ok := b.Model.snap.Link(index)
	if !ok {
		return nil
	}
	return l
}

// Now is a link as it was observed, nil if it is still to be made.
func (b *Builder) Now(index int) *Link {
	l, ok := b.Base.Link(index)
	if !ok {
		return nil
	}
	return l
}

// Do plans an operation and reports whether it is planned: not if it is delayed,
// or if the kernel's rules refuse it, which is then in Blocked.
func (b *Builder) Do(op Op) bool {
	if why, ok := b.Delayed[DelayKey(op)]; ok {
		b.Block(op.Target(), op, why.Code == CodeInProgress, why)
		return false
	}
	if err := b.Model.Apply(op); err != nil {
		b.Block(op.Target(), op, false, Reason{Code: CodeRefused, Text: "the kernel would refuse it: " + err.Error()})
		return false
	}
	step := Step{Op: op, Unit: b.unit}
	if x, ok := op.(Effecter); ok {
		step.Effect = x.Effect(b.Base)
	}
	b.Plan.Steps = append(b.Plan.Steps, step)
	return true
}

// DoFor is Do with the reason for the delay in why, which is empty for a refusal.
func (b *Builder) DoFor(op Op, why *Reason) bool {
	planned := b.Do(op)
	if !planned {
		*why = b.Delayed[DelayKey(op)]
	}
	return planned
}

// Block notes what cannot be done. op may be nil.
func (b *Builder) Block(on Target, op Op, wait bool, why Reason) {
	x := Blocked{On: on, Unit: b.unit, Wait: wait, Reason: why}
	if op != nil {
		x.Op = op.String()
	}
	if !slices.Contains(b.Plan.Blocked, x) {
		b.Plan.Blocked = append(b.Plan.Blocked, x)
	}
}

// Moved returns the reason if a link below another one was made and is in another network namespace,
// zero if it is not.
func (b *Builder) Moved(name string, parent *Link) Reason {
	if b.Record == nil || !slices.ContainsFunc(b.Record.Moved, func(m Moved) bool {
		return m.Namespace == "" && m.Name == name && m.On == parent.Index
	}) {
		return Reason{}
	}
	return Reason{Code: CodeMoved, Text: fmt.Sprintf("%s was moved to another network namespace and is left there", name),
		Next: "move it back (ip -n NAMESPACE link set " + name + " netns 1), or delete it there; ibnetctl reconfigure " + parent.Name +
			" makes another one"}
}

// Attr notes an attribute of a link for its status.
func (b *Builder) Attr(index int, a Attribute) {
	b.attrs[index] = append(b.attrs[index], a)
}

// Attributes are those noted for a link, in the order of noting.
func (b *Builder) Attributes(index int) []Attribute { return b.attrs[index] }
