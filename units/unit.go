package units

import (
	"fmt"
	"unique"
)

// Suffix is the ending of unit file names; systemd-networkd ignores it, so both
// sets of files can live in one directory.
const Suffix = ".ibnetwork"

// Position is a place in a file. Lines count from 1, columns are bytes from 1.
// In a value that is continued over lines it is the physical line and column
// of the item. The zero Position is "nowhere".
type Position struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
}

// IsValid reports whether p names a place.
func (p Position) IsValid() bool { return p.File != "" || p.Line != 0 }

// String prints file:line:column and leaves out what is not known.
func (p Position) String() string {
	switch {
	case !p.IsValid():
		return "-"
	case p.Line == 0:
		return p.File
	case p.Column == 0:
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Place is a Position in half of its memory: each value of each unit has one, most of
// them not set. The zero Place is "nowhere".
type Place struct {
	file         unique.Handle[string]
	line, column uint32
}

// PlaceOf is the place at p.
func PlaceOf(p Position) Place {
	x := Place{line: uint32(p.Line), column: uint32(p.Column)}
	if p.File != "" {
		x.file = unique.Make(p.File)
	}
	return x
}

// at is a place in the same file.
func (p Place) at(line, column int) Place { return Place{p.file, uint32(line), uint32(column)} }

// Position is the position at p.
func (p Place) Position() Position {
	x := Position{Line: int(p.line), Column: int(p.column)}
	if p.file != (unique.Handle[string]{}) {
		x.File = p.file.Value()
	}
	return x
}

// IsValid reports whether p names a place.
func (p Place) IsValid() bool { return p != Place{} }

// String is that of the position.
func (p Place) String() string { return p.Position().String() }

// Value is a setting that a unit may give or not. The zero Value is "not set".
// A key that was reset by an empty assignment is not set.
type Value[T any] struct {
	V   T
	Set bool
	Pos Place
}

// Or is the value, or def where it is not set.
func (v Value[T]) Or(def T) T {
	if v.Set {
		return v.V
	}
	return def
}

// Get is the value and whether it is set.
func (v Value[T]) Get() (T, bool) { return v.V, v.Set }

// Some is a set value without a position, for tests and generated units.
func Some[T any](v T) Value[T] { return Value[T]{V: v, Set: true} }

// Section is what every section has: whether the unit contains it (its header
// was read, with or without keys) and the place of its first header.
type Section struct {
	Present bool
	Pos     Place
}

// Optional is a section of many keys that few units have: the others need no memory for them.
type Optional[T any] struct{ p *T }

// Get is the section, an empty one where the unit has none.
func (r Optional[T]) Get() *T {
	if r.p == nil {
		return new(T)
	}
	return r.p
}

// open is the section to be filled.
func (r *Optional[T]) open() *T {
	r.p = r.Get()
	return r.p
}

// Unit is one .ibnetwork file with its drop-ins applied. It is immutable once
// loaded.
type Unit struct {
	// Name is the file name, "10-ib0.ibnetwork"; units are ordered and
	// overridden by it.
	Name string
	// Path is that of the main file, "/etc/systemd/network/10-ib0.ibnetwork".
	Path string
	// Files are the main file and the drop-ins in the order they apply.
	Files []File

	Match Match
	Link  Link
	IPoIB IPoIB
	Bond  Bond
	VRF   VRF
	// Partitions are the P_Key children to make on the matched link, in the
	// order of the text; no two have the same base key or name.
	Partitions []Partition
	// Network is the IP part. Unit.ConfiguresIP reports whether the unit
	// has an IP part at all; without one it is left to others.
	Network Network
	// Addresses are those of [Address] sections and of [Network] Address=
	// together, in the order of the text. Each has Address or Template set;
	// AddressesOn has them all for one host.
	Addresses []Address
	// Routes are those of [Route] sections and of [Network] Gateway= together.
	Routes []Route
	// Rules are the [RoutingPolicyRule] sections.
	Rules []RoutingPolicyRule
	// Neighbors are the [Neighbor] sections; no two have the same address.
	Neighbors []Neighbor
	// NextHops are the [NextHop] sections; no two have the same ID.
	NextHops []NextHopObject

	DHCPv4           Optional[DHCPv4]
	DHCPv6           Optional[DHCPv6]
	IPv6AcceptRA     IPv6AcceptRA
	SubnetManager    Optional[SubnetManager]
	Port             Port
	RoCE             RoCE
	VLANs            []VLAN
	SoftRoCE         SoftRoCE
	VirtualFunctions VirtualFunctions
	// VFs are the [VF] sections, one for each virtual function index.
	VFs     []VF
	Modules Modules

	// Problems are those found in this unit's files, in the order of the text.
	Problems []Problem
	// Kept reports that this is the last good version, all files of it: one of them
	// has become unusable since, see Problems. It ends when every file parses
	// again, when the main file is removed, or by a link to /dev/null.
	Kept bool
	// before are the problems of Files where Kept has those of other files in
	// Problems.
	before []Problem
}

// ConfiguresIP reports whether the unit has anything to say about addresses, routes,
// rules, neighbours or nexthops, which that of a bond's slave has not; if not, only the
// InfiniBand part is configured and the IP part is left to the program that manages it.
func (u *Unit) ConfiguresIP() bool {
	if bond, _ := u.MasterBond(); bond != "" {
		return false
	}
	return u.Network.Present || len(u.Addresses) > 0 || len(u.Routes) > 0 || len(u.Rules) > 0 || len(u.Neighbors) > 0 ||
		len(u.NextHops) > 0
}

// Unmanaged reports [Link] Unmanaged=yes: the match stops the search and the
// link is left alone.
func (u *Unit) Unmanaged() bool { return u.Link.Unmanaged.Or(false) }

// Activation is how the link is taken up and down: ActivationPolicy=, or bound
// where BindCarrier= is given.
func (u *Unit) Activation() ActivationPolicy {
	if len(u.Network.BindCarrier) > 0 {
		return ActivationBound
	}
	return u.Link.ActivationPolicy.Or(ActivationUp)
}

// Required reports whether wait-online waits for the link: RequiredForOnline=,
// without it whether the link is brought up.
func (u *Unit) Required() bool {
	if o, ok := u.Link.RequiredForOnline.Get(); ok {
		return o.Required
	}
	switch u.Activation() {
	case ActivationManual, ActivationDown, ActivationAlwaysDown:
		return false
	}
	return true
}

// KeepsStatic reports whether what the daemon set stays on a link when the unit
// goes.
func (u *Unit) KeepsStatic() bool {
	k := u.Network.KeepConfiguration.Or(KeepNo)
	return k == KeepYes || k == KeepStatic
}
