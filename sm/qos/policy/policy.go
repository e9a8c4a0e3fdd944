// Package policy reads QoS policy files as opensm has them (qos-policy.conf) and decides
// which level a request for a path gets.
//
// It has the grammar and the matching. It does not make paths: sm/sa asks Bound.Level
// for each path and applies the level. The functions are pure.
package policy

import (
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
)

// Policy is what a file says. The zero value has no rule.
type Policy struct {
	Groups []Group
	Levels []Level
	// Rules are tried in order, those of qos-match-rules first. Default is the index
	// of the level of what no rule matches, -1 for none.
	Rules   []Rule
	Default int
	// Notes say what of the file has no effect here.
	Notes []string
}

// Range is numbers from First to Last.
type Range struct{ First, Last uint64 }

// Ranges is any of several ranges; nil matches everything where it is a criterion.
type Ranges []Range

func (r Ranges) has(v uint64) bool {
	return slices.ContainsFunc(r, func(x Range) bool { return x.First <= v && v <= x.Last })
}

// Group is ports: those that any of its parts names.
type Group struct {
	Name       string
	GUIDs      Ranges
	Ports      []PortName
	PKeys      Ranges   // bases: members of these partitions
	Partitions []string // by name
	CA, Switch bool
	Router     bool
	Self, All  bool
}

// PortName is a port by its node's description.
type PortName struct {
	Node string
	Num  uint8
}

// Level is what paths get.
type Level struct {
	Name string
	SL   ib.SL
	// Has is which of the others are set.
	Has struct{ SL, MTU, Rate, Life bool }
	MTU ib.MTU
	// Rate and Life are limits too; Life is the code of a packet lifetime.
	Rate  ib.Rate
	Life  uint8
	PKeys Ranges // bases that a path may have; nil for all
}

// Rule gives a level, by index, to the requests that meet all of its criteria. A
// criterion that is nil is met by all; a request that does not name what a criterion is
// about does not meet it.
type Rule struct {
	Level      int
	Source     []int // indices of groups, any of them
	Target     []int
	ServiceIDs Ranges
	PKeys      Ranges // bases
	Classes    Ranges
}

// Bound is a policy for the ports of one fabric.
type Bound struct {
	p  *Policy
	in [][]bool // by group and port
}

// Bind finds the ports of the groups. keys are the P_Keys of an end port, partition gives the
// key of a name.
func (p *Policy) Bind(f *fabric.Fabric, keys func(port int32) []ib.PKey, partition func(name string) (ib.PKey, bool)) *Bound {
	b := &Bound{p: p, in: make([][]bool, len(p.Groups))}
	for i := range p.Groups {
		g := &p.Groups[i]
		in := make([]bool, len(f.Ports))
		wanted := slices.Clone(g.PKeys)
		for _, name := range g.Partitions {
			if k, ok := partition(name); ok {
				wanted = append(wanted, Range{uint64(k.Base()), uint64(k.Base())})
			}
		}
		member := func(k ib.PKey) bool { return k.IsValid() && wanted.has(uint64(k.Base())) }
		for _, e := range f.EndPorts {
			in[e] = g.names(f, e) || len(wanted) > 0 && slices.ContainsFunc(keys(e), member)
		}
		b.in[i] = in
	}
	return b
}

// names reports whether the group has the port whatever partitions it is in.
func (g *Group) names(f *fabric.Fabric, e int32) bool {
	p := &f.Ports[e]
	n := &f.Nodes[p.Node]
	switch {
	case g.All, g.Self && e == f.SMPort, g.Switch && n.Type == ib.NodeSwitch, g.CA && n.Type == ib.NodeCA,
		g.Router && n.Type == ib.NodeRouter, g.GUIDs.has(uint64(p.GUID)):
		return true
	}
	return slices.Contains(g.Ports, PortName{n.Desc, p.Num})
}

// Request is what a request for a path says, as far as it says it.
type Request struct {
	Source, Target int32 // end ports
	ServiceID      uint64
	PKey           ib.PKey
	Class          uint16
	HasServiceID   bool
	HasPKey        bool
	HasClass       bool
}

// Level is the level of a path, nil for none.
func (b *Bound) Level(r *Request) *Level {
	for i := range b.p.Rules {
		x := &b.p.Rules[i]
		if b.of(x.Source, r.Source) && b.of(x.Target, r.Target) && meets(x.ServiceIDs, r.HasServiceID, r.ServiceID) &&
			meets(x.PKeys, r.HasPKey, uint64(r.PKey.Base())) && meets(x.Classes, r.HasClass, uint64(r.Class)) {
			return &b.p.Levels[x.Level]
		}
	}
	if b.p.Default >= 0 && b.p.Default < len(b.p.Levels) {
		return &b.p.Levels[b.p.Default]
	}
	return nil
}

func meets(r Ranges, has bool, v uint64) bool { return r == nil || has && r.has(v) }

func (b *Bound) of(groups []int, port int32) bool {
	return groups == nil || slices.ContainsFunc(groups, func(g int) bool { return b.in[g][port] })
}

// Allows reports whether paths of the level may have a key.
func (l *Level) Allows(k ib.PKey) bool { return l.PKeys == nil || l.PKeys.has(uint64(k.Base())) }
