package link

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/units"
)

// Namespace is a network namespace that a unit names.
type Namespace struct {
	Path string `json:"path"`
	ID   int    `json:"id"` // the kernel's number of it here, -1 for none
	// Own reports that it is the daemon's, where nothing can be moved to.
	Own bool `json:"own,omitempty"`
}

// MoveLink moves a P_Key child that was made to another network namespace and brings it
// up there.
type MoveLink struct {
	On
	Parent    int // interface index
	PKey      ib.PKey
	Namespace string // path
}

// DelMoved deletes a link in the network namespace to which it was moved. On is its
// parent.
type DelMoved struct {
	On
	Moved  Moved
	Called string // its name there, empty for that of Moved
}

// NamespaceName is the name of a network namespace for ip(8), or its path.
func NamespaceName(path string) string { return strings.TrimPrefix(path, units.NamespaceDir) }

// InNamespace is the command of ip(8) for a network namespace.
func InNamespace(path, command string) string {
	if name := NamespaceName(path); !strings.Contains(name, "/") {
		return "ip -n " + name + " " + command
	}
	return "nsenter --net=" + path + " ip " + command
}

// takenIn reports whether a link with a name is in a network namespace after the steps so
// far.
func (b *Builder) takenIn(name, namespace string) bool {
	ns := b.Model.snap.Namespace(namespace)
	return ns != nil && slices.ContainsFunc(b.Model.snap.Moved, func(x MovedLink) bool {
		return x.Name == name && x.NSID == ns.ID && x.Index != 0
	})
}

// DropMoved plans to delete a link in the network namespace to which it was moved. One that
// others moved on is left where it is.
func (b *Builder) DropMoved(m Moved) {
	parent, x := b.Link(m.On), b.Base.moved(m.Made)
	op := DelMoved{On: b.Model.Target(parent), Moved: m}
	switch {
	case x != nil && x.Lost != nil:
	case m.Index == 0:
		b.Block(op.On, op, false, b.stillThere(m))
	default:
		if x != nil {
			op.Called = x.Called
		}
		b.Do(op)
	}
}

// lost returns the reason if another program moved a link on from the network namespace of its unit, or
// deleted it there; zero if none did.
func (b *Builder) lost(m Moved) Reason {
	x := b.Base.moved(m.Made)
	if x == nil || x.Lost == nil {
		return Reason{}
	}
	ns, again, name := NamespaceName(m.Namespace), "ibnetctl reconfigure "+b.Link(m.On).Name+" makes another one", cmp.Or(x.Lost.Name, m.Name)
	if m.Kind == KindVLAN { // of which the kernel makes no second one
		again = "to have it made again, delete it there"
	}
	switch at := x.Lost; {
	case at.Index == 0:
		return Reason{Code: CodeMoved, Text: fmt.Sprintf("%s is no longer in network namespace %s: another program deleted it, or moved it "+
			"to a network namespace that ibnetworkd cannot see", m.Name, ns),
			Next: again + "; to find it: lsns --type=net; nsenter --net=/proc/PID/ns/net ip link show type " + m.Kind}
	case at.Path == "":
		return Reason{Code: CodeMoved, Text: fmt.Sprintf("%s is not in network namespace %s: another program moved it to one without a name "+
			"(number %d of ip netns list-id)", m.Name, ns, at.NSID),
			Next: "lsns --type=net; nsenter --net=/proc/PID/ns/net ip link show " + name + "; " + again}
	default:
		return Reason{Code: CodeMoved, Text: fmt.Sprintf("%s is not in network namespace %s: another program moved it to network namespace %s",
			m.Name, ns, NamespaceName(at.Path)),
			Next: InNamespace(at.Path, "link set "+name+" netns "+ns) + "; " + again}
	}
}

// stillThere is the reason why a link whose unit has changed is not made again.
func (b *Builder) stillThere(m Moved) Reason {
	if why := b.lost(m); why != (Reason{}) {
		return why
	}
	return Reason{Code: CodeMoved, Next: DelMoved{Moved: m}.String(),
		Text: fmt.Sprintf("%s is still in network namespace %s", m.Name, NamespaceName(m.Namespace))}
}

// Dropped reports whether DropMoved has planned to delete a link.
func (b *Builder) Dropped(m Moved) bool {
	return slices.ContainsFunc(b.Plan.Steps, func(s Step) bool { o, ok := s.Op.(DelMoved); return ok && o.Moved.Made == m.Made })
}

// Moving is the child of a link with a P_Key that the plan moves to another network
// namespace.
func (b *Builder) Moving(parent int, key ib.PKey) (name string, full ib.PKey, ok bool) {
	for _, s := range b.Plan.Steps {
		if o, move := s.Op.(MoveLink); move && o.Parent == parent && o.PKey.Base() == key.Base() {
			return o.On.Link, o.PKey, true
		}
	}
	return "", 0, false
}

// Sender is an operation after which a link of this daemon is in another network
// namespace, as its unit asks.
type Sender interface {
	Op
	Sends() (m Moved, ok bool)
}

// Sent is the link that a Sender sends to another network namespace.
func Sent(op Op) (m Moved, ok bool) {
	if s, sends := op.(Sender); sends {
		return s.Sends()
	}
	return m, false
}

// Elsewhere is a link below another one that a unit asks for in a network namespace.
type Elsewhere struct {
	Parent    *Link
	Name      string
	Namespace string // path, empty for that of the parent
	Section   string // of the unit
	Kind      string // IFLA_INFO_KIND
	PKey      string // empty for none
	// Is reports a link that is the one asked for, Clashes one beside which that cannot be.
	Is, Clashes func(Moved) bool
	// Text describes it as it is.
	Text func(Moved, *MovedLink) string
}

// Away is a link that is in another network namespace, or is to be there.
type Away struct {
	Name      string `json:"name"`            // there
	Asked     string `json:"asked,omitempty"` // the name that it was made with, if it has another one
	Kind      string `json:"kind"`
	PKey      string `json:"pkey,omitempty"`
	Namespace string `json:"namespace,omitempty"` // its name for ip(8), or its path; empty if another program moved the link
	Ifindex   int    `json:"ifindex,omitempty"`   // there
	MTU       int    `json:"mtu,omitempty"`
	State     string `json:"state"` // up, down, absent or not checked
}

// Place returns where the link is, in words that follow "is".
func (x Away) Place() string {
	if x.Namespace == "" {
		return "in another network namespace"
	}
	return "in network namespace " + x.Namespace
}

// Command is a command of ip(8) in that network namespace, for what cannot be observed
// from here.
func (x Away) Command(command string) string {
	if x.Namespace == "" {
		return "lsns --type=net; nsenter --net=/proc/PID/ns/net ip " + command
	}
	return InNamespace(x.Namespace, command)
}

// Has reports whether a link in another network namespace has a name, there or by its unit.
func (x Away) Has(name string) bool { return name != "" && (x.Name == name || x.Asked == name) }

// away is what is known of a link that was moved or made in another network namespace.
func (b *Builder) away(m Moved) Away {
	out := Away{Name: m.Name, Kind: m.Kind, Namespace: NamespaceName(m.Namespace), Ifindex: m.Index, State: "not checked"}
	if m.PKey != 0 {
		out.PKey = m.PKey.String()
	}
	ns := b.Base.Namespace(m.Namespace)
	switch x := b.Base.moved(m.Made); {
	case x != nil && x.Lost != nil:
		out.State, out.Ifindex = "absent", 0
	case x == nil || ns == nil || ns.ID != x.NSID:
	case x.Index == 0:
		out.State, out.Ifindex = "absent", 0
	case x.Up:
		out.State, out.MTU = "up", x.MTU
	default:
		out.State, out.MTU = "down", x.MTU
	}
	if x := b.Base.moved(m.Made); out.Ifindex != 0 && x != nil && x.Called != "" {
		out.Name, out.Asked = x.Called, m.Name
	}
	return out
}

// PlanElsewhere notes a link that is in another network namespace, or that waits for one.
// It reports false if the link is to be made.
func (b *Builder) PlanElsewhere(e Elsewhere, a *Attribute, block func(Reason)) (done bool) {
	for _, m := range b.Record.MovedFrom(e.Parent.Index) {
		state, why := b.movedState(m)
		away := b.away(m)
		switch {
		case e.Is(m):
			if state != "" {
				a.Actual = e.Text(m, b.Base.moved(m.Made)) + state
			} else if b.Base.moved(m.Made) == nil && b.Base.Namespace(m.Namespace) == nil {
				away.State = "absent"
			}
		case e.Clashes(m) && !b.Dropped(m):
			why = b.stillThere(m)
		default:
			continue
		}
		if a.Away = away; why != (Reason{}) {
			block(why)
		}
		return true
	}
	away := Away{Name: e.Name, Kind: e.Kind, PKey: e.PKey, Namespace: NamespaceName(e.Namespace), State: "absent"}
	why := b.Moved(e.Name, e.Parent)
	switch {
	case why != Reason{}:
		away.Namespace, away.State = "", "not checked"
	case b.takenIn(e.Name, e.Namespace):
		why = Reason{Code: CodeNameTaken, Next: "write another Name= in [" + e.Section + "]",
			Text: fmt.Sprintf("the name %s is taken by another child in network namespace %s", e.Name, NamespaceName(e.Namespace))}
	default:
		why = b.NoNamespace(e.Name, e.Namespace)
	}
	if why == (Reason{}) {
		return false
	}
	a.Away = away
	block(why)
	return true
}

// NoNamespace is the reason why a link waits for the network namespace at a path, or cannot be
// made for it, zero if there is none.
func (b *Builder) NoNamespace(name, path string) Reason {
	switch n := b.Base.Namespace(path); {
	case path == "" || n != nil && !n.Own:
		return Reason{}
	case n != nil:
		return Reason{Code: CodeNoNamespace, Next: "remove NetworkNamespace=, or write another one",
			Text: fmt.Sprintf("%s is for network namespace %s, which is that of ibnetworkd", name, NamespaceName(path))}
	}
	ns, next := NamespaceName(path), "create it, or correct NetworkNamespace="
	if ns != path {
		next = "ip netns add " + ns
	}
	return Reason{Code: CodeNoNamespace, Next: next,
		Text: fmt.Sprintf("%s waits for network namespace %s: there is none at %s", name, ns, path)}
}

// movedState returns what is known of a link in the network namespace of its unit, and
// why that is not what the unit asks for.
func (b *Builder) movedState(m Moved) (state string, why Reason) {
	name, parent := NamespaceName(m.Namespace), b.Link(m.On)
	state = " in network namespace " + name
	x, ns := b.Base.moved(m.Made), b.Base.Namespace(m.Namespace)
	if x != nil && x.Called != "" {
		state += ", where its name is " + x.Called
	}
	switch {
	case x != nil && x.Lost != nil:
		return "", b.lost(m)
	case m.Index != 0 && x == nil && IsVLAN(m.Kind):
		return "", Reason{Code: CodeMoved, Text: fmt.Sprintf("the kernel deletes %s with network namespace %s", m.Name, name)}
	case m.Index != 0 && x == nil:
		return "", Reason{Code: CodeMoved, Text: fmt.Sprintf("%s did not come back from network namespace %s, which has ended", m.Name, name),
			Next: "ibnetctl reconfigure " + parent.Name + " makes another one"}
	case m.Index != 0 && (ns == nil || ns.ID != m.NSID):
		then := "the link then comes back"
		if IsVLAN(m.Kind) {
			then = "the link is then made again"
		}
		return "", Reason{Code: CodeMoved, Text: fmt.Sprintf("%s is in a network namespace that had the name %s before", m.Name, name),
			Next: "end the processes in it (lsns --type=net); " + then}
	case x != nil && !x.Up:
		why = Reason{Code: CodeLinkDown, Text: fmt.Sprintf("%s is down in network namespace %s", m.Name, name),
			Next: InNamespace(m.Namespace, "link set "+cmp.Or(x.Called, m.Name)+" up")}
		if m.Kind == KindVLAN && !parent.Up() {
			why.Next = "ip link set " + parent.Name + " up"
		}
	}
	return state, why
}

// UnitRefusal is the reason why a unit is not applied to a link below another one: that
// is in another network namespace.
func UnitRefusal(name, path, instead string, u *units.Unit) Reason {
	ns, add := NamespaceName(path), InNamespace(path, "address add ADDRESS dev "+name)
	return Reason{Code: CodeOtherNamespace,
		Text: fmt.Sprintf("%s matches %s, which is for network namespace %s: the unit is not applied", u.Path, name, ns),
		Next: instead + "; for addresses: " + add + ", or an ibnetworkd there"}
}

// String prints ip link set NAME netns NAMESPACE up.
func (o MoveLink) String() string {
	return "ip link set " + o.On.Link + " netns " + NamespaceName(o.Namespace) + " up"
}

// String prints ip -n NAMESPACE link delete NAME.
func (o DelMoved) String() string {
	return InNamespace(o.Moved.Namespace, "link delete "+cmp.Or(o.Called, o.Moved.Name))
}

// Sends implements Sender.
func (o MoveLink) Sends() (Moved, bool) {
	return Moved{Made: Made{Kind: "ipoib", Name: o.On.Link, On: o.Parent}, NSID: -1, Namespace: o.Namespace, PKey: o.PKey}, true
}

// Namespace is the network namespace with a path, nil if there is none.
func (s *Snapshot) Namespace(path string) *Namespace {
	if i := slices.IndexFunc(s.Namespaces, func(n Namespace) bool { return n.Path == path }); i >= 0 {
		return &s.Namespaces[i]
	}
	return nil
}

// ApplyTo implements what Model.Apply asks for.
func (o MoveLink) ApplyTo(m *Model) error {
	l, err := m.find(o.On)
	if err != nil {
		return err
	}
	made, _ := o.Sends()
	if err := m.Send(made, MovedLink{Index: l.Index, MTU: l.MTU, Up: true}); err != nil {
		return err
	}
	m.delete(l.Index)
	return nil
}

// Send has a link in the network namespace of its unit.
func (m *Model) Send(made Moved, as MovedLink) error {
	m.snap.Namespaces = slices.Clone(m.snap.Namespaces)
	ns := m.snap.Namespace(made.Namespace)
	switch {
	case ns == nil:
		return errNotFound
	case slices.ContainsFunc(m.snap.Moved, func(x MovedLink) bool { return x.Name == made.Name && x.NSID == ns.ID && x.Index != 0 }):
		return errExist
	}
	ns.ID = max(ns.ID, 0)
	as.Made, as.NSID = made.Made, ns.ID
	gone := func(x MovedLink) bool { return x.Made == made.Made }
	m.snap.Moved = append(slices.DeleteFunc(slices.Clone(m.snap.Moved), gone), as)
	return nil
}

// ApplyTo implements what Model.Apply asks for.
func (o DelMoved) ApplyTo(m *Model) error {
	if m.snap.moved(o.Moved.Made) == nil {
		return errNoDev
	}
	m.snap.Moved = slices.DeleteFunc(slices.Clone(m.snap.Moved), func(x MovedLink) bool { return x.Made == o.Moved.Made })
	return nil
}
