package partition

import (
	"cmp"
	"fmt"
	"slices"

	"ibnetworkd/ib"
)

// Port is what the functions of this package need to know of an end port: a
// port of a channel adapter or router, or port 0 of a switch.
type Port struct {
	GUID ib.GUID
	Type ib.NodeType
	MTU  ib.MTU  // what the port and its link can carry; 0 unknown
	Rate ib.Rate // speed of its link; 0 unknown, as at a switch's port 0
}

// Key is an entry wanted in a port's table: a P_Key with its membership bit, and
// whether it belongs at index 0.
type Key struct {
	PKey   ib.PKey
	Index0 bool
}

// Resolved is a configuration applied to the ports of a subnet.
type Resolved struct {
	// Keys has the keys of each port, by GUID, in the order of the partitions.
	// Every port has at least a key of the default partition.
	Keys map[ib.GUID][]Key
	// Groups are the groups to make in advance, in the order of the
	// configuration, with all parameters settled.
	Groups []Precreated
}

// Precreated is a multicast group that exists from the start.
type Precreated struct {
	MGID      ib.GID
	PKey      ib.PKey // with the full bit set
	MTU       ib.MTU
	Rate      ib.Rate
	SL        ib.SL
	QKey      ib.QKey
	TClass    uint8
	FlowLabel uint32
	HopLimit  uint8
	Scope     uint8
	Name      string // of the partition
	// AutoMTU and AutoRate say that the value is that of the slowest
	// member, not one that was asked for.
	AutoMTU, AutoRate bool
	// SlowMTU and SlowRate are what the slowest member can do, 0 when no
	// member is known.
	SlowMTU  ib.MTU
	SlowRate ib.Rate
}

// Resolve applies the configuration to the end ports of a subnet. self is the
// port GUID of the subnet manager, always a full member of the default
// partition: without that, limited members could not reach it.
func (c Config) Resolve(ports []Port, self ib.GUID) Resolved {
	ports = slices.Clone(ports)
	slices.SortFunc(ports, func(a, b Port) int {
		if a.GUID < b.GUID {
			return -1
		} else if a.GUID > b.GUID {
			return 1
		}
		return 0
	})
	r := Resolved{Keys: make(map[ib.GUID][]Key, len(ports))}
	parts := c.Partitions
	if c.find(DefaultPKey) < 0 {
		parts = append([]Partition{{Name: "Default", PKey: DefaultPKey,
			Members: []Member{{Select: All, Membership: Limited}}}}, parts...)
	}
	seen := map[ib.GID]bool{}
	for i := range parts {
		p := &parts[i]
		def := p.PKey.Base() == DefaultPKey
		// Most partitions name few ports; a map of GUIDs keeps a list
		// of n GUIDs from costing n times the ports.
		byGUID := map[ib.GUID]int{}
		var wide []int
		for j, m := range p.Members {
			if m.Select == ByGUID {
				byGUID[m.GUID] = j
			} else {
				wide = append(wide, j)
			}
		}
		mtu, rate := ib.MTU(0), ib.Rate(0)
		for k := range ports {
			port := &ports[k]
			last, ok := byGUID[port.GUID]
			if !ok {
				last = -1
			}
			for _, j := range wide {
				if j > last && p.Members[j].matches(port, self) {
					last = j
				}
			}
			mem := Limited
			switch {
			case last >= 0:
				mem = p.Members[last].Membership
			case !def:
				continue
			}
			if def && port.GUID == self && mem == Limited {
				mem = Full
			}
			if mem != Limited {
				r.Keys[port.GUID] = append(r.Keys[port.GUID], Key{p.PKey.AsFull(), p.Index0})
			}
			if mem != Full {
				r.Keys[port.GUID] = append(r.Keys[port.GUID], Key{p.PKey.Base(), p.Index0 && mem == Limited})
			}
			if port.Type != ib.NodeSwitch || last >= 0 && p.Members[last].Select == ByGUID {
				if port.MTU.IsValid() && (mtu == 0 || port.MTU < mtu) {
					mtu = port.MTU
				}
				if port.Rate.IsValid() && (rate == 0 || port.Rate.Less(rate)) {
					rate = port.Rate
				}
			}
		}
		if p.IPoIB {
			r.precreate(seen, p, Group{broadcast(p.PKey), p.Params}, mtu, rate)
		}
		for _, g := range p.Groups {
			r.precreate(seen, p, g, mtu, rate)
		}
	}
	return r
}

// The parameters of a group whose members are unknown: what every InfiniBand
// port ever made can do, as opensm's defaults have it.
const (
	fallbackMTU          = ib.MTU2048
	fallbackRate ib.Rate = 3 // 10 Gb/s
)

func (r *Resolved) precreate(seen map[ib.GID]bool, p *Partition, g Group, mtu ib.MTU, rate ib.Rate) {
	scopes := cmp.Or(g.Scopes, 1<<g.MGID.Scope())
	for s := range uint8(16) {
		if scopes&(1<<s) == 0 {
			continue
		}
		id := g.MGID.WithScope(s)
		q := g.QKey
		if id.IsIP() {
			id = id.WithGroupPKey(p.PKey.AsFull())
			q = cmp.Or(q, IPoIBQKey)
		}
		if seen[id] {
			continue
		}
		seen[id] = true
		out := Precreated{MGID: id, PKey: p.PKey.AsFull(), MTU: g.MTU, Rate: g.Rate, SL: g.SL, QKey: q,
			TClass: g.TClass, FlowLabel: g.FlowLabel, Scope: s, Name: p.Name, AutoMTU: g.MTU == 0, AutoRate: g.Rate == 0,
			SlowMTU: mtu, SlowRate: rate}
		// A group that may leave the subnet needs hops to do so.
		if s != DefaultScope {
			out.HopLimit = 255
		}
		out.MTU = cmp.Or(out.MTU, mtu, fallbackMTU)
		out.Rate = cmp.Or(out.Rate, rate, fallbackRate)
		r.Groups = append(r.Groups, out)
	}
}

// broadcast is the MGID of the IPv4 broadcast group of a partition, which all
// IPoIB interfaces of it must join (RFC 4391 section 5).
func broadcast(k ib.PKey) ib.GID {
	k = k.AsFull()
	return ib.GID{0xff, 0x10 | DefaultScope, 0x40, 0x1b, byte(k >> 8), byte(k), 12: 0xff, 13: 0xff, 14: 0xff, 15: 0xff}
}

// BroadcastMGID is the MGID of the IPoIB broadcast group of a partition in
// link-local scope.
func BroadcastMGID(k ib.PKey) ib.GID { return broadcast(k) }

// Table computes the P_Key table of a port that has the table have, with exactly
// the keys in want. Keys that the port already has keep their index, because work
// requests of running programs refer to keys by index (IBTA 10.9.2). Index 0 gets
// the key that requests it, else that of the default partition. capacity is the
// port's number of entries (NodeInfo:PartitionCap). Keys that do not fit are
// returned in dropped, the last ones of want first, never that of index 0.
//
// The result is at least as long as have, so that comparing both block by block
// shows what to write.
func Table(have []ib.PKey, want []Key, capacity int) (table, dropped []ib.PKey) {
	var zero ib.PKey
	first := -1
	for i, k := range want {
		switch {
		case k.Index0 && (first < 0 || !want[first].Index0):
			first = i
		case first < 0 && k.PKey.Base() == DefaultPKey:
			first = i
		}
	}
	keys := make([]ib.PKey, 0, len(want))
	if first >= 0 {
		keys = append(keys, want[first].PKey)
	}
	in := map[ib.PKey]bool{}
	for _, k := range keys {
		in[k] = true
	}
	for _, k := range want {
		if !in[k.PKey] && k.PKey.IsValid() {
			in[k.PKey] = true
			keys = append(keys, k.PKey)
		}
	}
	if len(keys) > capacity {
		capacity = max(capacity, 0)
		dropped = keys[capacity:]
		keys = keys[:capacity]
		for _, k := range dropped {
			delete(in, k)
		}
	}
	table = make([]ib.PKey, len(have))
	placed := map[ib.PKey]bool{}
	if len(keys) > 0 && first >= 0 {
		if len(table) == 0 {
			table = append(table, zero)
		}
		table[0] = keys[0]
		placed[keys[0]] = true
	}
	// The same key with the other membership bit takes over the index of
	// the old one: the partition is the same.
	for i, h := range have {
		if i >= capacity || table[i] != 0 || !h.IsValid() {
			continue
		}
		for _, k := range [2]ib.PKey{h, h ^ 0x8000} {
			if in[k] && !placed[k] && (k == h || !slices.Contains(have, k)) {
				table[i] = k
				placed[k] = true
				break
			}
		}
	}
	free := 0
	for _, k := range keys {
		if placed[k] {
			continue
		}
		for free < len(table) && table[free] != 0 {
			free++
		}
		if free == len(table) {
			table = append(table, zero)
		}
		table[free] = k
	}
	return table, dropped
}

// ExplainDropped is the sentence for keys that Table could not place.
func ExplainDropped(port ib.GUID, capacity int, dropped []ib.PKey) string {
	return fmt.Sprintf("port %v has room for %d P_Keys; left out: %v; remove the port from those partitions or give it fewer", port,
		capacity, dropped)
}
