package partition

import (
	"cmp"
	"ibnetworkd/ib"
	"slices"
)

// DefaultPKey is the base value of the default partition. Every port of a
// subnet is a member of it, so that it can reach the subnet administrator
// (IBTA 10.9.1.1).
const DefaultPKey ib.PKey = 0x7fff

// IPoIBQKey is the Q_Key of IPoIB groups that were given none, the value that
// every subnet manager has used so far.
const IPoIBQKey ib.QKey = 0x0b1b

// DefaultScope is the multicast scope of groups that were given none:
// link-local, which in InfiniBand is one subnet (IBTA 4.1.1).
const DefaultScope = 2

// Membership is the set of keys with which a port is a member of a partition.
type Membership uint8

// Memberships. A limited member talks to full members only (IBTA 10.9.1.1).
const (
	Limited Membership = iota
	Full
	Both // the full and the limited key, in two table entries
)

// String prints the membership as partitions.conf spells it.
func (m Membership) String() string {
	switch m {
	case Full:
		return "full"
	case Both:
		return "both"
	}
	return "limited"
}

// Select is the set of ports that a Member means.
type Select uint8

// Selectors of partitions.conf.
const (
	ByGUID      Select = iota // the one port with Member.GUID
	All                       // every end port
	AllCAs                    // every port of a channel adapter
	AllSwitches               // port 0 of every switch
	AllRouters                // every router port
	Self                      // the subnet manager's own port
)

var selectNames = map[string]Select{"ALL": All, "ALL_CAS": AllCAs, "ALL_SWITCHES": AllSwitches, "ALL_ROUTERS": AllRouters, "SELF": Self}

// Member is one entry of a partition's port list.
type Member struct {
	Select     Select
	GUID       ib.GUID // port GUID, for ByGUID only
	Membership Membership
}

// matches reports whether the entry names the port.
func (m Member) matches(p *Port, self ib.GUID) bool {
	switch m.Select {
	case ByGUID:
		return p.GUID == m.GUID
	case All:
		return true
	case AllCAs:
		return p.Type == ib.NodeCA
	case AllSwitches:
		return p.Type == ib.NodeSwitch
	case AllRouters:
		return p.Type == ib.NodeRouter
	case Self:
		return p.GUID == self
	}
	return false
}

// Params are the parameters of a multicast group. A zero MTU or Rate means
// "what the slowest member can do".
type Params struct {
	MTU       ib.MTU
	Rate      ib.Rate
	SL        ib.SL
	QKey      ib.QKey // 0: IPoIBQKey for IP groups
	TClass    uint8
	FlowLabel uint32 // 20 bits
	Scopes    uint16 // bit n: a group in multicast scope n; 0: DefaultScope for the broadcast group, the scope of the MGID for others
}

// Group is a multicast group to make in advance.
type Group struct {
	MGID ib.GID
	Params
}

// Partition is one partition, as written. Definitions with the same P_Key are
// merged in the order of the text.
type Partition struct {
	Name    string
	PKey    ib.PKey // base value, 1 to 0x7fff
	IPoIB   bool    // make the IPoIB broadcast group
	Index0  bool    // put the key at index 0 of its members' tables
	Params  Params  // of the broadcast group, and inherited by Groups
	Groups  []Group
	Members []Member // a later entry for the same port wins
}

// Config is a set of partitions with distinct P_Keys.
type Config struct {
	Partitions []Partition
}

// Default is the configuration of a subnet without a partition file: every port
// is a full member of the default partition, which carries IPoIB.
func Default() Config {
	return Config{Partitions: []Partition{{
		Name: "Default", PKey: DefaultPKey, IPoIB: true,
		Members: []Member{{Select: All, Membership: Full}},
	}}}
}

// Merge adds partitions to the set: one with a P_Key that is present adds
// its members and groups to it and turns flags on. Parameters that the earlier
// definition left open are taken from the later one.
func (c *Config) Merge(more ...Partition) {
	for _, p := range more {
		i := c.find(p.PKey)
		if i < 0 {
			c.Partitions = append(c.Partitions, p)
			continue
		}
		q := &c.Partitions[i]
		q.Name = cmp.Or(q.Name, p.Name)
		q.IPoIB = q.IPoIB || p.IPoIB
		q.Index0 = q.Index0 || p.Index0
		q.Params = inherit(q.Params, p.Params)
		q.Groups = append(q.Groups, p.Groups...)
		q.Members = append(q.Members, p.Members...)
	}
}

func (c *Config) find(k ib.PKey) int {
	return slices.IndexFunc(c.Partitions, func(p Partition) bool { return p.PKey == k.Base() })
}

// inherit fills what a leaves open from b.
func inherit(a, b Params) Params {
	a.MTU = cmp.Or(a.MTU, b.MTU)
	a.Rate = cmp.Or(a.Rate, b.Rate)
	a.SL = cmp.Or(a.SL, b.SL)
	a.QKey = cmp.Or(a.QKey, b.QKey)
	a.TClass = cmp.Or(a.TClass, b.TClass)
	a.FlowLabel = cmp.Or(a.FlowLabel, b.FlowLabel)
	a.Scopes = cmp.Or(a.Scopes, b.Scopes)
	return a
}
