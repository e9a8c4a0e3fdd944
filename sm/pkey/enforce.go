package pkey

import (
	"fmt"
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
)

// Enforcement is the set of directions in which switches check P_Keys, at the
// ports that adapters are connected to (IBA vol 1, 10.9.6).
type Enforcement uint8

// Checks of what comes from an adapter, of what goes to it, or both.
const (
	EnforceBoth Enforcement = iota
	EnforceIn
	EnforceOut
	EnforceOff
)

// ParseEnforcement reads both, in, out or off, the words that opensm's -Z takes.
func ParseEnforcement(s string) (Enforcement, error) {
	if i := slices.Index([]string{"both", "in", "out", "off"}, s); i >= 0 {
		return Enforcement(i), nil
	}
	return 0, fmt.Errorf("%q: want both, in, out or off", s)
}

// Enforce adds to a plan what the switches need for checking: Enforcement, and the
// P_Key tables of the ports that adapters are connected to. have is that of Tables.
//
// An adapter checks what it receives itself (C10-123). With a switch that checks
// too, a host whose administrator writes its table can neither send into a
// partition that it is not in nor receive from it. In a subnet whose ports are all
// full members of the default partition and of nothing else there is no such other
// partition: the switches are not changed then, which saves an SMP for every host.
//
// The tables of the switches have the full membership of every key. A packet
// of a limited member carries the limited key, and two limited keys do not match:
// with the adapter's own table a switch that follows the specification would drop
// every limited member's packets at the first hop.
func (p *Plan) Enforce(f *fabric.Fabric, mode Enforcement, have [][]ib.PKey) {
	if mode == EnforceOff || !slices.ContainsFunc(f.EndPorts, func(e int32) bool {
		return len(p.Members[e]) != 1 || p.Members[e][0] != ib.DefaultPKey
	}) {
		return
	}
	p.Enforcement = make([]mad.Enforcement, len(f.Ports))
	for _, e := range f.EndPorts {
		at := f.Ports[e].Peer
		if f.Ports[e].Num == 0 || at == fabric.None {
			continue
		}
		n := &f.Nodes[f.Ports[at].Node]
		if n.Switch == fabric.None {
			continue // two adapters and a cable
		}
		info := &f.Switches[n.Switch].Info
		room := int(info.PartitionEnforcementCap())
		in, out := info.EnforcesPartitions()
		bits := mad.Enforcement(0)
		if in && mode != EnforceOut {
			bits |= mad.EnforceInbound
		}
		if out && mode != EnforceIn {
			bits |= mad.EnforceOutbound
		}
		if room == 0 || bits == 0 {
			continue // the switch cannot
		}
		var keys []ib.PKey
		for _, k := range p.Members[e] {
			if k = k.AsFull(); k.IsValid() && !slices.Contains(keys, k) {
				keys = append(keys, k)
			}
		}
		if len(keys) > room {
			p.Warnings = append(p.Warnings, fmt.Sprintf("switch port %s has room for %d P_Keys, but the adapter behind it has %d: the port "+
				"does not check them",
				f.PortName(at), room, len(keys)))
			continue
		}
		p.Enforcement[at], p.Members[at] = bits, keys
		var had []ib.PKey
		if int(at) < len(have) {
			had = have[at]
		}
		if had != nil && slices.Equal(trimZero(keys), trimZero(had)) {
			continue
		}
		// Other entries in the table let packets pass. A switch that was not
		// configured before has none, or only the default key in the block that is
		// written.
		long := len(had)
		if had == nil && info.LinearFDBTop() != 0 {
			long = room
		}
		for len(keys) < long {
			keys = append(keys[:len(keys):len(keys)], 0)
		}
		p.Keys[at] = keys
	}
}
