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
	Moved Moved
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

// TakenIn reports whether a link with a name is in a network namespace after the steps so
// far.
func (b *Builder) TakenIn(name, namespace string) bool {
	ns := b.Model.snap.Namespace(namespace)
	return ns != nil && slices.ContainsFunc(b.Model.snap.Moved, func(x MovedLink) bool {
		return x.Name == name && x.NSID == ns.ID && x.Index != 0
	})
}

// DropMoved plans to delete a link in the network namespace to which it was moved.
func (b *Builder) DropMoved(m Moved) {
	parent := b.Link(m.On)
	op := DelMoved{On: b.Model.Target(parent), Moved: m}
	if m.Index == 0 {
		b.Block(op.On, op, false, b.StillThere(m))
	} else {
		b.Do(op)
	}
}

// StillThere is the reason why a link whose unit has changed is not made again.
func (b *Builder) StillThere(m Moved) Reason {
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

// MovedState returns what is known of a link in the network namespace of its unit, and
// why that is not what the unit asks for.
func (b *Builder) MovedState(m Moved) (state string, why Reason) {
	name := NamespaceName(m.Namespace)
	state = " in network namespace " + name
	x, ns := b.Base.moved(m.Made), b.Base.Namespace(m.Namespace)
	switch {
	case m.Index != 0 && x == nil:
		return "", Reason{Code: CodeMoved, Text: fmt.Sprintf("%s did not come back from network namespace %s, which has ended", m.Name, name),
			Next: "ibnetctl reconfigure " + b.Link(m.On).Name + " makes another one"}
	case m.Index != 0 && (ns == nil || ns.ID != m.NSID):
		return "", Reason{Code: CodeMoved, Text: fmt.Sprintf("%s is in a network namespace that had the name %s before", m.Name, name),
			Next: "end the processes in it (lsns --type=net); the link then comes back"}
	case x != nil && !x.Up:
		why = Reason{Code: CodeLinkDown, Text: fmt.Sprintf("%s is down in network namespace %s", m.Name, name),
			Next: InNamespace(m.Namespace, "link set "+m.Name+" up")}
	}
	return state, why
}

// String prints ip link set NAME netns NAMESPACE up.
func (o MoveLink) String() string {
	return "ip link set " + o.On.Link + " netns " + NamespaceName(o.Namespace) + " up"
}

// String prints ip -n NAMESPACE link delete NAME.
func (o DelMoved) String() string { return InNamespace(o.Moved.Namespace, "link delete "+o.Moved.Name) }

func (o MoveLink) moved() Moved {
	return Moved{Made: Made{Kind: "ipoib", Name: o.On.Link, On: o.Parent}, NSID: -1, Namespace: o.Namespace, PKey: o.PKey}
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
	a := o.moved()
	m.snap.Namespaces = slices.Clone(m.snap.Namespaces)
	ns := m.snap.Namespace(o.Namespace)
	switch {
	case ns == nil:
		return errNotFound
	case slices.ContainsFunc(m.snap.Moved, func(x MovedLink) bool { return x.Name == a.Name && x.NSID == ns.ID }):
		return errExist
	}
	ns.ID = max(ns.ID, 0)
	m.snap.Moved = append(slices.Clone(m.snap.Moved), MovedLink{Made: a.Made, NSID: ns.ID, Index: l.Index, MTU: l.MTU, Up: true})
	m.delete(l.Index)
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
