package link

import (
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
}

// Away is a P_Key child that was made and moved to the network namespace of its unit.
type Away struct {
	Made
	Namespace string  `json:"namespace"` // path
	PKey      ib.PKey `json:"pkey"`
	// ID is the kernel's number of the namespace, Index the link's index there, 0 if
	// they are not known.
	ID    int `json:"id,omitempty"`
	Index int `json:"index,omitempty"`
}

// AwayLink is what was read of an Away.
type AwayLink struct {
	Made
	ID    int  `json:"id"`
	Index int  `json:"index,omitempty"` // 0 if there is no such link any more
	MTU   int  `json:"mtu,omitempty"`
	Up    bool `json:"up,omitempty"`
}

// MoveLink moves a P_Key child that was made to another network namespace and brings it
// up there.
type MoveLink struct {
	On
	Parent    int // interface index
	PKey      ib.PKey
	Namespace string // path
}

// DelAway deletes a link in the network namespace to which it was moved. On is its
// parent.
type DelAway struct {
	On
	Away Away
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

// AwayNamed reports whether another link with a name will have been moved to a network
// namespace.
func (b *Builder) AwayNamed(name, namespace string) bool {
	ns := b.Model.snap.Namespace(namespace)
	return ns != nil && slices.ContainsFunc(b.Model.snap.Away, func(x AwayLink) bool {
		return x.Name == name && x.ID == ns.ID && x.Index != 0
	})
}

// DropAway plans to delete a link in the network namespace to which it was moved, and
// reports whether it is planned.
func (b *Builder) DropAway(a Away) bool {
	parent := b.Link(a.On)
	op := DelAway{On: b.Model.Target(parent), Away: a}
	if a.Index == 0 {
		b.Block(op.On, op, false, b.StillAway(a))
		return false
	}
	return b.Do(op)
}

// StillAway is the reason why a link whose unit has changed is not made again.
func (b *Builder) StillAway(a Away) Reason {
	return Reason{Code: CodeMoved, Next: DelAway{Away: a}.String(),
		Text: fmt.Sprintf("%s is still in network namespace %s", a.Name, NamespaceName(a.Namespace))}
}

// Dropped reports whether DropAway has planned to delete a link.
func (b *Builder) Dropped(a Away) bool {
	return slices.ContainsFunc(b.Plan.Steps, func(s Step) bool { o, ok := s.Op.(DelAway); return ok && o.Away.Made == a.Made })
}

// AwayState says what is known of a link in the network namespace of its unit, and
// why that is not what the unit asks for.
func (b *Builder) AwayState(a Away) (state string, why Reason) {
	name := NamespaceName(a.Namespace)
	state = " in network namespace " + name
	x, ns := b.Base.awayLink(a.Made), b.Base.Namespace(a.Namespace)
	switch {
	case a.Index != 0 && x == nil:
		return "", Reason{Code: CodeMoved, Text: fmt.Sprintf("%s did not come back from network namespace %s, which has ended", a.Name, name),
			Next: "ibnetctl reconfigure " + b.Link(a.On).Name + " makes another one"}
	case a.Index != 0 && (ns == nil || ns.ID != a.ID):
		return "", Reason{Code: CodeMoved, Text: fmt.Sprintf("%s is in a network namespace that had the name %s before", a.Name, name),
			Next: "end the processes in it (lsns --type=net), with which it comes back"}
	case x != nil && !x.Up:
		why = Reason{Code: CodeLinkDown, Text: fmt.Sprintf("%s is down in network namespace %s", a.Name, name),
			Next: InNamespace(a.Namespace, "link set "+a.Name+" up")}
	}
	return state, why
}

// String prints ip link set NAME netns NAMESPACE up.
func (o MoveLink) String() string {
	return "ip link set " + o.On.Link + " netns " + NamespaceName(o.Namespace) + " up"
}

// String prints ip -n NAMESPACE link delete NAME.
func (o DelAway) String() string { return InNamespace(o.Away.Namespace, "link delete "+o.Away.Name) }

func (o MoveLink) away() Away {
	return Away{Made: Made{Kind: "ipoib", Name: o.On.Link, On: o.Parent}, Namespace: o.Namespace, PKey: o.PKey}
}

// Namespace is the network namespace with a path, nil if there is none.
func (s *Snapshot) Namespace(path string) *Namespace {
	if i := slices.IndexFunc(s.Namespaces, func(n Namespace) bool { return n.Path == path }); i >= 0 {
		return &s.Namespaces[i]
	}
	return nil
}

func (s *Snapshot) awayLink(m Made) *AwayLink {
	if i := slices.IndexFunc(s.Away, func(x AwayLink) bool { return x.Made == m }); i >= 0 {
		return &s.Away[i]
	}
	return nil
}

// ApplyTo implements what Model.Apply asks for.
func (o MoveLink) ApplyTo(m *Model) error {
	l, err := m.find(o.On)
	if err != nil {
		return err
	}
	a := o.away()
	m.snap.Namespaces = slices.Clone(m.snap.Namespaces)
	ns := m.snap.Namespace(o.Namespace)
	switch {
	case ns == nil:
		return errNotFound
	case slices.ContainsFunc(m.snap.Away, func(x AwayLink) bool { return x.Name == a.Name && x.ID == ns.ID }):
		return errExist
	}
	ns.ID = max(ns.ID, 0)
	m.snap.Away = append(slices.Clone(m.snap.Away), AwayLink{Made: a.Made, ID: ns.ID, Index: l.Index, MTU: l.MTU, Up: true})
	m.delete(l.Index)
	return nil
}

// ApplyTo implements what Model.Apply asks for.
func (o DelAway) ApplyTo(m *Model) error {
	if m.snap.awayLink(o.Away.Made) == nil {
		return errNoDev
	}
	m.snap.Away = slices.DeleteFunc(slices.Clone(m.snap.Away), func(x AwayLink) bool { return x.Made == o.Away.Made })
	return nil
}

// away notes a link that is about to be moved.
func (r *Record) away(o MoveLink) {
	r.removeAway(o.away())
	r.Away = append(r.Away, o.away())
}

func (r *Record) removeAway(a Away) {
	r.Away = slices.DeleteFunc(slices.Clone(r.Away), func(m Away) bool { return m.Made == a.Made })
}

// AwayFrom are the links below one that were moved to the network namespaces of units.
func (r *Record) AwayFrom(parent int) (out []Away) {
	if r == nil {
		return nil
	}
	for _, m := range r.Away {
		if m.On == parent {
			out = append(out, m)
		}
	}
	return out
}

// reconcileAway has links that came back as ours again, and forgets those whose parents
// are gone or that were deleted where they were.
func (r *Record) reconcileAway(s *Snapshot) (changed bool) {
	stay := r.Away[:0:0]
	for _, m := range r.Away {
		_, parent := s.Link(m.On)
		x := s.awayLink(m.Made)
		l, back := s.LinkByName(m.Name)
		switch {
		case back && l.Parent == m.On && l.IPoIB != nil && l.IPoIB.PKey.Base() == m.PKey.Base():
			if e := r.of(TargetOf(l)); !e.Child { // else it was not moved
				*e = LinkRecord{Ifindex: l.Index, Name: l.Name, Child: true, Parent: l.Parent, PKey: m.PKey}
			}
			changed = true
		case !parent || x != nil && x.Index == 0:
			changed = true
		default:
			if x != nil && (m.ID != x.ID || m.Index != x.Index) {
				m.ID, m.Index, changed = x.ID, x.Index, true
			}
			stay = append(stay, m)
		}
	}
	r.Away = stay
	return changed
}

// returnAway forgets what was moved from a link and is not known to be where it was moved.
func (r *Record) returnAway(parent int, s *Snapshot) {
	r.Away = slices.DeleteFunc(slices.Clone(r.Away), func(m Away) bool {
		if m.On != parent {
			return false
		}
		x := (*AwayLink)(nil)
		if s != nil {
			x = s.awayLink(m.Made)
		}
		return x == nil || x.Index == 0
	})
}
