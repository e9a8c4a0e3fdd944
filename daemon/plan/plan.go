// Package plan joins the planners of link, ipoib and roce into one ordered
// plan, and combines snapshot and plan into the status of every link and port. It
// is pure: the same snapshot, units and record give the same bytes on every
// machine, whatever the order of the input. Its callers are the daemon's loop
// and ibnetctl plan.
//
// A plan goes link by link, each to its end, a parent before its P_Key
// children: so the first link works long before the last one is begun. The
// planner sees the system as it will be after the steps it has planned, so
// one plan is enough: when it is applied nothing is left to plan. Addresses derived
// from those of other links are planned last; none is derived from a derived one.
package plan

import (
	"fmt"
	"maps"
	"slices"

	"ibnetworkd/ipoib"
	"ibnetworkd/link"
	"ibnetworkd/roce"
	"ibnetworkd/units"
)

// Input is what a plan is made of.
type Input struct {
	Snapshot *link.Snapshot
	Units    *units.Set
	Record   *link.Record
	// Delayed are operations not to be tried now, by link.DelayKey.
	Delayed map[string]link.Reason
	// Scope limits planning to these links and their children and parents;
	// nil is all. Prev are then the units of the other links, from the last
	// Result.
	Scope map[int]bool
	Prev  map[int]link.Governed
	// Partial reports that the links outside the scope have not been read yet:
	// what belongs to the host and none in the scope wants stays.
	Partial bool
	// NoPorts leaves out Result.Ports and Governing.Ports, for a caller that plans
	// more often than it reports.
	NoPorts bool
}

// Result is a plan and what is to be reported of the links in its scope.
type Result struct {
	Plan link.Plan
	// Links are the statuses of the links in scope, by index.
	Links []link.Status
	// Ports are the statuses of all RDMA ports.
	Ports []link.PortStatus
	// PortNotes is what planning left behind of ports without an interface, for
	// link.PortStatus.Add. They are planned whatever the scope.
	PortNotes map[link.PortName]*link.PortNote
	// Keep reports for the links in scope that have a unit whether it keeps what is
	// ours when it goes, for link.Record.Remember.
	Keep map[int]bool
	// Governing has the unit that governs each link, also outside the scope, and each
	// RDMA port.
	Governing link.Governing
}

type planner struct {
	in    Input
	b     *link.Builder
	units map[int]*units.Unit
	notes map[int]*note
	order []int
}

// note is what planning one link left behind.
type note struct {
	unit    *units.Unit // that matches
	parent  *units.Unit // applied to the parent of a child
	ignored link.Reason
	pending bool // the unit is not known yet, or udev has not finished
	notYet  bool // the unit is not known yet
	steps   []link.Step
	blocked []link.Blocked
	part    *units.Partition
	leaves  bool // for the network namespace of part; no unit is applied
	// networkLast reports that addresses are derived from those of other links.
	networkLast bool
}

// Make plans.
func Make(in Input) Result {
	if in.Units == nil {
		in.Units = &units.Set{}
	}
	p := &planner{in: in, b: link.NewBuilder(in.Snapshot, in.Record, in.Delayed), units: map[int]*units.Unit{}, notes: map[int]*note{}}
	p.b.Derivation = link.NewDerivation(in.Units, p.unitOf())
	scope := p.scope()
	for i, g := range in.Prev {
		if _, ok := in.Snapshot.Link(i); ok && !scope[i] && g.Unit != nil {
			p.units[i] = g.Unit
		}
	}
	tops := p.tops()
	for _, i := range tops {
		if !scope[i] {
			continue
		}
		p.decide(i, nil)
		for _, c := range p.b.Model.Snapshot().Children(i) {
			p.decide(c.Index, p.applied(i))
		}
	}
	p.b.Bound = map[int]bool{}
	for i := range p.units {
		if u := p.applied(i); u != nil && u.Activation() == units.ActivationBound {
			p.b.Bound[i] = true
		}
	}
	p.b.Order = p.order
	// First everything that goes, on all links: what goes here may come there.
	for _, i := range p.order {
		p.removals(i)
	}
	p.b.NewChildren = p.newChildren()
	for _, i := range p.order {
		p.noted(i, func(*note) { link.PlanMasterOrphan(p.b, i, p.masterAsked) })
	}
	roce.PlanRemovals(p.b, p.settled)
	for _, i := range tops {
		if !scope[i] {
			continue
		}
		p.additions(i)
		for _, c := range p.b.Model.Snapshot().Children(i) {
			if p.notes[c.Index] == nil {
				p.decide(c.Index, p.applied(i))
			}
			p.additions(c.Index)
		}
	}
	for _, l := range slices.Clone(p.b.Model.Snapshot().Links) {
		if (l.Bond != nil || l.VRF != nil) && p.b.Now(l.Index) == nil {
			p.decide(l.Index, nil)
			p.additions(l.Index)
		}
	}
	for _, i := range p.order {
		if p.notes[i].networkLast {
			p.noted(i, func(n *note) { p.network(i, n.unit) })
		}
	}
	for _, groups := range []bool{false, true} {
		for _, i := range slices.Sorted(slices.Values(p.order)) {
			p.noted(i, func(n *note) { link.PlanNextHops(p.b, i, n.unit, groups) })
		}
	}
	for _, i := range slices.Sorted(slices.Values(p.order)) {
		p.noted(i, func(n *note) { link.PlanRoutesOver(p.b, i, n.unit) })
	}
	link.PlanNextHopRemovals(p.b, p.settled, p.in.Partial)
	link.PlanOrphans(p.b, p.applied, p.in.Partial)
	link.PlanRules(p.b, p.rules(), p.in.Partial)
	roce.PlanPorts(p.b, func(d *link.Device, q *link.Port) *units.Unit {
		return link.GovernPort(in.Snapshot, in.Units, d, q).Unit
	})
	return p.result()
}

// masterAsked reports whether any unit has a bond or VRF made of that name.
func (p *planner) masterAsked(name string) bool {
	return slices.ContainsFunc(p.in.Units.Units, func(u *units.Unit) bool {
		bond, makes := u.MasterBond()
		vrf, makesVRF := u.VRFName()
		return makes && bond == name || makesVRF && vrf == name
	})
}

// scope closes the asked scope over parents and children, because the kernel
// takes children up and down with their parent.
func (p *planner) scope() map[int]bool {
	out := map[int]bool{}
	s := p.in.Snapshot
	for i := range s.Links {
		l := &s.Links[i]
		// A link that follows others' carriers, addresses or nexthops is planned with them.
		u := p.in.Prev[l.Index].Unit
		follows := u != nil && (len(u.Network.BindCarrier) > 0 || u.FollowsLinks() || u.UsesNextHops())
		if p.in.Scope == nil || p.in.Scope[l.Index] || follows {
			out[l.Index] = true
			if l.IsChild() {
				out[l.Parent] = true
			}
			if l.Master != 0 {
				out[l.Master] = true // its status says whether a failover would do
			}
		}
	}
	for i := range s.Links {
		if l := &s.Links[i]; l.IsChild() && out[l.Parent] {
			out[l.Index] = true
		}
	}
	return out
}

// tops lists the links that are no children, by index; a child whose
// parent is in another namespace counts as one.
func (p *planner) tops() []int {
	var out []int
	for i := range p.in.Snapshot.Links {
		l := &p.in.Snapshot.Links[i]
		if l.IsChild() {
			if _, ok := p.in.Snapshot.Link(l.Parent); ok {
				continue
			}
		}
		out = append(out, l.Index)
	}
	return out
}

// newChildren returns the P_Key children that this plan makes and that a unit applies to, if
// a link may join the bond or VRF that such a unit makes.
func (p *planner) newChildren() (out []link.NewChild) {
	joins := func(u *units.Unit) bool { return u.Network.Bond.Set || u.Network.VRF.Set }
	if !slices.ContainsFunc(p.in.Units.Units, joins) {
		return nil
	}
	f := p.b.Fork()
	for _, i := range p.order {
		u, l := p.applied(i), p.b.Link(i)
		if u == nil || l.IPoIB == nil || p.notes[i].owner() == nil {
			continue
		}
		ipoib.AddChildren(f, i, u)
		for _, c := range f.Model.Snapshot().Children(i) {
			if n := p.govern(c, u); p.b.Link(c.Index) == nil && !n.pending && n.ignored == (link.Reason{}) && n.owner() != nil {
				out = append(out, link.NewChild{Link: *c, Unit: n.unit})
			}
		}
	}
	return out
}

// noted keeps what f plans as the link's.
func (p *planner) noted(index int, f func(n *note)) {
	n := p.notes[index]
	if n == nil || !p.applies(index) {
		return
	}
	steps, blocked := len(p.b.Plan.Steps), len(p.b.Plan.Blocked)
	f(n)
	n.steps = append(n.steps, p.b.Plan.Steps[steps:]...)
	n.blocked = append(n.blocked, p.b.Plan.Blocked[blocked:]...)
}

func (p *planner) removals(index int) {
	p.noted(index, func(n *note) {
		if p.b.Link(index).IPoIB != nil {
			ipoib.DropChildren(p.b, index, n.owner())
		}
		link.PlanRemovals(p.b, index, n.unit)
		link.PlanMasterRemoval(p.b, index, n.owner(), n.unit)
		if n.leaves {
			p.b.For(n.parent)
			ipoib.PlanLeave(p.b, index, n.part)
		}
	})
}

func (p *planner) additions(index int) {
	p.noted(index, func(n *note) {
		u := n.unit
		if n.leaves {
			if p.b.Now(index) == nil {
				ipoib.PlanLeave(p.b, index, n.part)
			}
			return
		}
		if u == nil && n.part == nil {
			link.PlanNetwork(p.b, index, nil)
			return
		}
		p.b.For(u)
		switch {
		case p.b.Link(index).IPoIB != nil:
			w := ipoib.WantOf(u, n.part)
			if !w.MTU.Set {
				w.MTU = link.LeaseMTU(p.b.Link(index), u)
			}
			if u != nil && u == n.parent {
				// One unit for a link and its children: the GUID is the port's,
				// and a child's follows it.
				w.GUID.Set = false
			}
			ipoib.Plan(p.b, index, w)
		case u != nil:
			planPlainMTU(p.b, index, u)
		}
		if u == nil {
			link.PlanActivation(p.b, index, units.ActivationUp)
			link.PlanNetwork(p.b, index, nil)
			return
		}
		if o := n.owner(); o != nil {
			link.PlanBond(p.b, index, o, p.applied)
		}
		link.PlanVRF(p.b, index, u, p.applied)
		link.PlanFailover(p.b, index)
		if again := roce.Plan(p.b, index, u); again {
			return // its steps re-create the link
		}
		link.PlanSettings(p.b, index, u)
		link.PlanLink(p.b, index, u)
		if n.networkLast = u.FollowsLinks(); !n.networkLast {
			p.network(index, u)
		}
		if o := n.owner(); o != nil {
			ipoib.AddChildren(p.b, index, o)
			p.refuseAway(index, o)
		}
	})
}

func (p *planner) network(index int, u *units.Unit) {
	link.PlanNetwork(p.b, index, u)
	roce.PlanGIDIndex(p.b, index, u, p.applied)
}

func planPlainMTU(b *link.Builder, index int, u *units.Unit) {
	l := b.Link(index)
	m, ok := u.Link.MTUBytes.Get()
	if !ok {
		m, ok = link.LeaseMTU(l, u).Get()
	}
	slaves := b.Model.Snapshot().BondMTU(l)
	if !ok && slaves == 0 {
		return
	}
	a := link.Attribute{Name: "MTUBytes", Actual: fmt.Sprint(l.MTU)}
	if ok {
		a.Wanted = m.String()
	}
	want := m.Bytes
	switch {
	case slaves != 0 && (m.Max || !ok):
		want = slaves
	case m.Max:
		want = l.MaxMTU
	}
	op := link.SetMTU{On: b.Model.Target(l), MTU: want}
	switch {
	case want == 0 || want == l.MTU:
	case l.MaxMTU != 0 && want > l.MaxMTU:
		a.Why = link.Reason{
			Code: link.CodeMTUAdapter,
			Text: fmt.Sprintf("wanted %d, %s takes at most %d", want, l.Name, l.MaxMTU),
			Next: "write MTUBytes=max",
		}
		b.Block(op.On, op, false, a.Why)
	default:
		b.DoFor(op, &a.Why)
	}
	b.Attr(index, a)
}

// rules are those of all units that are applied to a link that is there.
func (p *planner) rules() []link.Rule {
	var out []link.Rule
	for _, i := range slices.Sorted(maps.Keys(p.units)) {
		if p.applies(i) {
			out = append(out, link.WantedRules(p.units[i])...)
		}
	}
	return out
}

func (p *planner) result() Result {
	s := p.in.Snapshot
	r := Result{Plan: p.b.Plan, PortNotes: p.b.Ports(), Keep: map[int]bool{}, Governing: link.Governing{Links: p.governed()}}
	slices.Sort(p.order)
	for _, i := range p.order {
		l, ok := s.Link(i)
		if !ok {
			continue // still to be made
		}
		n := p.notes[i]
		if n.unit != nil && !n.pending && n.ignored == (link.Reason{}) {
			r.Keep[i] = n.unit.KeepsStatic()
		}
		in := link.StatusInput{
			Snapshot: s, Link: l, Unit: p.units[i], Ignored: n.ignored, Pending: n.pending,
			Made:       p.in.Record.MadeChild(l) || p.in.Record.MadeMaster(l),
			Attributes: p.b.Attributes(i), Steps: n.steps, Blocked: n.blocked,
		}
		for _, b := range n.blocked {
			if b.Reason.Code == link.CodeRefused || b.Reason.Code == link.CodeRetry {
				in.Failed = append(in.Failed, b.Reason)
			}
		}
		st := link.BuildStatus(in)
		st.Required = st.Required && !n.leaves
		r.Links = append(r.Links, st)
	}
	if !p.in.NoPorts {
		r.Governing.Ports = link.GovernPorts(s, p.in.Units, r.Governing.Links, p.in.Record)
		r.Ports = link.BuildPortStatus(s, r.Governing.Ports, r.PortNotes)
	}
	return r
}
