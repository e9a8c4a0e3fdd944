package units

import "slices"

// VRF is [VRF]: the VRF (virtual routing and forwarding domain) that the matched link
// is in, made where it does not exist.
type VRF struct {
	Section
	// Name is the VRF's interface name, Table its routing table; without both the
	// section is not used.
	Name  Value[string]
	Table Value[uint32]
}

// VRFName is the interface name of the VRF that the unit's links are in, empty for
// none, and whether the unit has it made where it does not exist.
func (u *Unit) VRFName() (name string, made bool) {
	switch {
	case u == nil:
		return "", false
	case u.VRF.Name.Set:
		return u.VRF.Name.V, true
	}
	return u.Network.VRF.V, false
}

func vrfSection() SectionSpec {
	type V = VRF
	return SectionSpec{
		Name: "VRF", open: func(u *Unit) (any, *Section) { return &u.VRF, &u.VRF.Section },
		Keys: []Key{
			{Name: "Name", apply: scalar(func(v *V) *Value[string] { return &v.Name }, parseIfName)},
			{Name: "Table", apply: scalar(func(v *V) *Value[uint32] { return &v.Table }, parseTable)},
		},
	}
}

// checkVRF finds a [VRF] that is not complete, and a slave of a bond in a VRF.
func (p *parser) checkVRF() {
	v, n := &p.u.VRF, &p.u.Network.VRF
	bond, _ := p.u.MasterBond()
	slave := bond != ""
	drop := func(key string, pos Place, format string, args ...any) {
		kept := notUsed
		if v.Name.Set && !slave {
			// Outside of the VRF the addresses would be reachable from where they must not be.
			*n, kept = v.Name, "addresses wait until another program makes "+v.Name.V
		}
		p.at("VRF", key).problem(pos, Warning, kept, format, args...)
		*v = VRF{Section: v.Section}
	}
	if n.Set && v.Name.Set {
		if n.V != v.Name.V {
			p.at("Network", "VRF").problem(n.Pos, Warning, "Name= of [VRF] is used",
				"VRF=%s is another VRF than Name=%s (%s)", n.V, v.Name.V, v.Name.Pos)
		}
		*n = Value[string]{}
	}
	switch {
	case !v.Present:
	case !v.Name.Set:
		drop("", v.Pos, "[VRF] has no Name=, the interface name of the VRF")
	case !v.Table.Set:
		drop("", v.Pos, "[VRF] has no Table=, the number of its routing table, as in Table=100")
	case slices.Contains([]uint32{TableDefault, TableMain, TableLocal}, v.Table.V):
		drop("Table", v.Table.Pos, "table %d is one of the host's own: write another number, as in Table=100", v.Table.V)
	}
	if vrf, _ := p.u.VRFName(); vrf == "" || !slave {
		return
	}
	if n.Set {
		p.at("Network", "VRF").problem(n.Pos, Warning, "it has no effect",
			"a slave of %s cannot be in a VRF: move VRF= to a unit with [Match] Name=%s", bond, bond)
		*n = Value[string]{}
		return
	}
	drop("Name", v.Name.Pos, "a slave of %s cannot be in a VRF: move [VRF] to a unit with [Match] Name=%s", bond, bond)
}
