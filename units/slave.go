package units

import "slices"

// slaveless are the keys and sections of which a bond's slave has nothing: packets
// arrive at the bond, which has the addresses. Objects as [Address] and [Route] are
// checkBond's, and VRF= is checkVRF's. An empty list is all keys but slaveKeys.
var slaveless = []struct {
	section string
	keys    []string
}{
	{"Network", nil}, {"DHCPv4", nil}, {"DHCPv6", nil}, {"IPv6AcceptRA", nil}, {"RoCE", []string{"GIDIndex"}},
}

// slaveKeys are keys of these sections that a slave does have, or that others report.
var slaveKeys = []string{"Description", "Address", "Gateway", "Bond", "PrimarySlave", "VRF", "BindCarrier", "KeepConfiguration"}

// slaveOff are keys for addresses that a unit for a slave often turns off.
var slaveOff = []string{"DHCP", "IPv6AcceptRA", "LinkLocalAddressing"}

// namesBond reports whether the unit makes its link a slave, also where the bond is then rejected.
func (p *parser) namesBond() bool {
	return p.u.Bond.Present || p.u.Network.Bond.Set ||
		slices.ContainsFunc(p.problems, func(x Problem) bool { return x.Section == "Network" && x.Key == "Bond" })
}

// checkGIDIndex finds a GIDIndex= in a unit that gives its link no IPv4 address.
func (p *parser) checkGIDIndex() {
	if g := p.u.RoCE.GIDIndex; g.Set && !p.u.hasIPv4Address() {
		p.at("RoCE", "GIDIndex").problem(g.Pos, Warning, "it has no effect",
			"GIDIndex=%d is for the first IPv4 address of the unit, which has none: write Address= or DHCP=ipv4 in [Network]", g.V)
	}
}

// checkSlave warns of each key that has no effect on a slave of a bond.
func (p *parser) checkSlave(bond string) {
	for _, x := range slaveless {
		spec := sectionByName[x.section]
		for _, obj := range p.u.objects(x.section) {
			for i := range spec.Keys {
				k := &spec.Keys[i]
				if x.keys != nil && !slices.Contains(x.keys, k.Name) || slices.Contains(slaveKeys, k.Name) || k.apply.show == nil {
					continue
				}
				value := k.apply.show(obj)
				if len(value) == 0 || slices.Contains(slaveOff, k.Name) && value[0] == "no" { // which is so
					continue
				}
				p.at(x.section, k.Name).problem(p.last[k], Warning, "it has no effect",
					"%s= is on a slave of %s: move it to a unit with [Match] Name=%s", k.Name, bond, bond)
			}
		}
	}
}

// checkOwnName finds links that a unit for one link names like that link itself.
func (p *parser) checkOwnName() {
	own := func(name string) bool {
		return slices.ContainsFunc(p.u.Match.Name, func(v Value[Pattern]) bool { return !v.V.Not && v.V.Glob == name })
	}
	if n := p.u.Bond.Name; n.Set && own(n.V) {
		p.at("Bond", "Name").problem(n.Pos, Warning, notUsed,
			"%s is the link of [Match] and cannot be a slave of itself; write another name", n.V)
		p.u.Bond = Bond{}
	}
	if n := p.u.Network.Bond; n.Set && own(n.V) {
		p.at("Network", "Bond").problem(n.Pos, Warning, "the link is in no bond",
			"%s is the link of [Match] and cannot be a slave of itself; write another name", n.V)
		p.u.Network.Bond = Value[string]{}
	}
	for _, x := range p.u.Partitions {
		if x.Name.Set && own(x.Name.V) {
			p.at("Partition", "Name").problem(x.Name.Pos, Warning, "the child is not made",
				"%s is the link of [Match], whose child needs another name", x.Name.V)
		}
	}
	p.u.VLANs = slices.DeleteFunc(p.u.VLANs, func(v VLAN) bool {
		bad := v.Name.Set && own(v.Name.V)
		if bad {
			p.at(v.Kind.Section(), "Name").problem(v.Name.Pos, Warning, notUsed,
				"%s is the link of [Match], and an interface on it needs another name", v.Name.V)
		}
		return bad
	})
	for _, x := range []struct {
		section, key string
		name         *Value[string]
	}{{"VRF", "Name", &p.u.VRF.Name}, {"Network", "VRF", &p.u.Network.VRF}} {
		if x.name.Set && own(x.name.V) {
			p.at(x.section, x.key).problem(x.name.Pos, Warning, "the link is in no VRF",
				"%s is the link of [Match] and cannot be in itself; write another name", x.name.V)
			p.u.VRF, *x.name = VRF{}, Value[string]{}
		}
	}
}
