package units

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"ibnetworkd/ib"
)

// Match is [Match] with its conditions. All keys that are set must hold; within
// a key one item is enough (Property= wants all).
type Match struct {
	Section
	Name                []Value[Pattern]
	OriginalName        []Value[Pattern]
	MACAddress          []Value[HWPattern]
	PermanentMACAddress []Value[HWPattern]
	Path                []Value[Pattern]
	Driver              []Value[Pattern]
	Type                []Value[Pattern]
	Kind                []Value[Pattern]
	Property            []Value[PropertyPattern]
	IBDevice            []Value[Pattern]
	Port                []Value[NumPattern]
	PortGUID            []Value[GUIDPattern]
	NodeGUID            []Value[GUIDPattern]
	BoardID             []Value[Pattern]
	LinkLayer           []Value[LayerPattern]
	PartitionKey        []Value[PKeyPattern]

	Host              Value[Condition]
	Virtualization    Value[Condition]
	KernelCommandLine Value[Condition]
	KernelVersion     Value[Condition]
	Version           Value[Condition]
	Architecture      Value[Condition]
	Credential        Value[Condition]
	Firmware          Value[Condition]

	// Invalid names keys of which something is not understood, "" for a line that
	// has none; a unit with one matches nothing, because what is left could match
	// more than was meant.
	Invalid []Value[string]
}

// Pattern is one glob of a list (fnmatch without flags: * also crosses /); Not
// is set for items of an assignment that begins with "!".
type Pattern struct {
	Not  bool
	Glob string
}

// HWPattern is one hardware address of a list; an 8-byte one (a GUID) fits every
// 20-byte address that ends with it.
type HWPattern struct {
	Not  bool
	Addr ib.HWAddr
}

// PropertyPattern is one udev property "NAME=glob".
type PropertyPattern struct {
	Not  bool
	Name string
	Glob string
}

// NumPattern is one port number of a list.
type NumPattern struct {
	Not bool
	N   int
}

// GUIDPattern is one GUID of a list.
type GUIDPattern struct {
	Not  bool
	GUID ib.GUID
}

// LayerPattern is one link layer of a list.
type LayerPattern struct {
	Not   bool
	Layer ib.LinkLayer
}

// PKeyPattern is one partition key of a list; the membership bit does not count.
type PKeyPattern struct {
	Not  bool
	PKey ib.PKey
}

// Condition is one condition on the host; Not is the leading "!".
type Condition struct {
	Not  bool
	Text string
}

// Fact is a thing about a link or a host that may not be known yet. The zero
// Fact is "not known".
type Fact[T any] struct {
	V     T
	Known bool
}

// Know is a known fact.
func Know[T any](v T) Fact[T] { return Fact[T]{V: v, Known: true} }

// Facts is everything known about one link, or about one RDMA port whose netdev
// does not exist yet. What is known to be absent (a netdev without an RDMA
// port) is a known zero value.
type Facts struct {
	// Name and AltNames of the netdev. AltNames counts as known when Name is.
	Name     Fact[string]
	AltNames []string
	// OriginalName is the kernel's first name (udev's ID_NET_NAME_ORIGINAL or
	// the uevent's INTERFACE at add).
	OriginalName        Fact[string]
	MACAddress          Fact[ib.HWAddr]
	PermanentMACAddress Fact[ib.HWAddr]
	// Path is udev's ID_PATH ("pci-0000:08:00.0"); it is known from the PCI
	// address before a netdev exists.
	Path Fact[string]
	// Driver is the driver of the device on its bus (mlx5_core), "" for none.
	Driver Fact[string]
	// NetDriver is the word of the interface itself, which ethtool -i and udev's
	// ID_NET_DRIVER have (ib_ipoib, mlx4_en, mlx5_core[ib_ipoib]), "" for none.
	// Driver= matches either word.
	NetDriver Fact[string]
	// Type is networkd's word: "infiniband", "ether", "loopback" ...
	Type Fact[string]
	// Kind is the rtnetlink kind: "ipoib", "vlan", "" for none.
	Kind Fact[string]
	// Properties are udev's; not known before udev has initialised the device.
	Properties Fact[map[string]string]

	// IBDevice is the RDMA device, "" for none.
	IBDevice Fact[string]
	// Port is the RDMA port from 1, 0 for none.
	Port      Fact[int]
	PortGUID  Fact[ib.GUID]
	NodeGUID  Fact[ib.GUID]
	BoardID   Fact[string]
	LinkLayer Fact[ib.LinkLayer]
	// PartitionKey is the key of an IPoIB interface, 0 for none.
	PartitionKey Fact[ib.PKey]

	Host *HostFacts
}

// HostFacts is what the conditions ask about; it is the same for all links of
// a host.
type HostFacts struct {
	// Hostname and MachineID (32 hexadecimal digits) for Host=.
	Hostname  string
	MachineID string
	// Virtualization is systemd-detect-virt's word, "none" outside;
	// VirtContainer distinguishes a container from a machine.
	Virtualization string
	VirtContainer  bool
	// PrivateUsers is whether the daemon runs in a user namespace of its own.
	PrivateUsers bool
	// KernelCommandLine is the text of /proc/cmdline.
	KernelCommandLine string
	// KernelRelease is uname -r; Architecture is systemd's word ("x86-64").
	KernelRelease string
	Architecture  string
	// Credentials are the names of credentials that were passed to the service.
	Credentials []string
	// Firmware: UEFI, device-tree compatible strings, and SMBIOS fields for
	// smbios-field(), by their names in /sys/class/dmi/id.
	UEFI         bool
	DeviceTree   bool
	Compatible   []string
	SMBIOSFields map[string]string
	// Versions are the versions that Version= can ask for besides the kernel's
	// ("systemd", "glibc").
	Versions map[string]string
	// NameOnly is that of a host of which nothing but Hostname is known.
	NameOnly bool
}

// Verdict is the answer of a match.
type Verdict uint8

// The verdicts. NotYet means that something the match asks for is not known
// yet; it may become Yes or No.
const (
	No Verdict = iota
	NotYet
	Yes
)

// String is the word for a verdict.
func (v Verdict) String() string {
	switch v {
	case Yes:
		return "yes"
	case NotYet:
		return "not known yet"
	}
	return "no"
}

// Matches answers whether the unit is for what f describes, and why: the first
// key that says no or is not known yet, with its place, or "all keys of [Match]
// fit".
func (m *Match) Matches(f *Facts) (Verdict, string) {
	e := eval{explain: true, verdict: Yes, why: "all keys of [Match] fit"}
	m.eval(f, &e)
	return e.verdict, e.why
}

// verdict is Matches without the words, for asking many units.
func (m *Match) verdict(f *Facts) Verdict {
	e := eval{verdict: Yes}
	m.eval(f, &e)
	return e.verdict
}

// eval collects the answers of keys. The first No ends it; the first NotYet is the
// result unless a No follows.
type eval struct {
	explain bool
	verdict Verdict
	why     string
	unknown []string // what was asked for by keys that are not known
}

// no notes a No; its words are made only when they are wanted.
func (e *eval) no(why func() string) {
	e.verdict = No
	if e.explain {
		e.why = why()
	}
}

func (e *eval) notYet(key, more string, value func() string) {
	if e.explain {
		e.unknown = append(e.unknown, key+"="+ib.Clip(value()))
	}
	if e.verdict == Yes {
		e.verdict = NotYet
		if e.explain {
			e.why = key + "= is not known yet" + more
		}
	}
}

func (m *Match) eval(f *Facts, e *eval) {
	if len(m.Invalid) > 0 {
		e.no(func() string { return fmt.Sprintf("%s is not understood (%s)", m.invalidWhat(0), m.Invalid[0].Pos) })
		return
	}
	if m.Empty() {
		e.no(func() string { return "the unit has no [Match]" })
		return
	}
	// Cheap and usual keys first: the order does not change the answer.
	m.evalName(f, e)
	globs(e, "OriginalName", m.OriginalName, f.OriginalName)
	hwaddrs(e, "MACAddress", m.MACAddress, f.MACAddress)
	hwaddrs(e, "PermanentMACAddress", m.PermanentMACAddress, f.PermanentMACAddress)
	globs(e, "Path", m.Path, f.Path)
	m.evalDriver(f, e)
	globs(e, "Type", m.Type, f.Type)
	globs(e, "Kind", m.Kind, f.Kind)
	globs(e, "IBDevice", m.IBDevice, f.IBDevice)
	items(e, "Port", m.Port, f.Port, func(p NumPattern, n int) (bool, bool) { return p.Not, p.N == n })
	guids(e, "PortGUID", m.PortGUID, f.PortGUID)
	guids(e, "NodeGUID", m.NodeGUID, f.NodeGUID)
	globs(e, "BoardID", m.BoardID, f.BoardID)
	items(e, "LinkLayer", m.LinkLayer, f.LinkLayer, func(p LayerPattern, l ib.LinkLayer) (bool, bool) { return p.Not, p.Layer == l })
	items(e, "PartitionKey", m.PartitionKey, f.PartitionKey,
		func(p PKeyPattern, k ib.PKey) (bool, bool) { return p.Not, p.PKey.Base() == k.Base() })
	m.evalProperty(f, e)
	if e.verdict != No {
		m.evalConditions(f, e)
	}
}

func (m *Match) evalConditions(f *Facts, e *eval) {
	for _, c := range m.conditions() {
		switch {
		case !c.val.Set:
		case f.Host == nil, f.Host.NameOnly && !(c.key == "Host" && c.val.V.isName()):
			e.notYet(c.key, "", c.val.V.String)
		case c.val.V.holds(c.key, f.Host) == c.val.V.Not:
			e.no(func() string {
				return fmt.Sprintf("%s=%s (%s) does not hold on this host", c.key, ib.Clip(c.val.V.String()), c.val.Pos)
			})
			return
		}
	}
}

type conditionKey struct {
	key string
	val *Value[Condition]
}

func (m *Match) conditions() [8]conditionKey {
	return [8]conditionKey{
		{"Host", &m.Host}, {"Virtualization", &m.Virtualization}, {"KernelCommandLine", &m.KernelCommandLine}, {"KernelVersion",
			&m.KernelVersion},
		{"Version", &m.Version}, {"Architecture", &m.Architecture}, {"Credential", &m.Credential}, {"Firmware", &m.Firmware},
	}
}

// invalidWhat names an item of Invalid.
func (m *Match) invalidWhat(i int) string {
	if m.Invalid[i].V == "" {
		return "a line of [Match]"
	}
	return ib.Clip(m.Invalid[i].V) + "="
}

// Empty reports whether nothing is asked for.
func (m *Match) Empty() bool {
	for _, c := range m.conditions() {
		if c.val.Set {
			return false
		}
	}
	return len(m.Name)+len(m.OriginalName)+len(m.MACAddress)+len(m.PermanentMACAddress)+len(m.Path)+len(m.Driver)+len(m.Type)+len(m.Kind)+
		len(m.Property)+len(m.IBDevice)+len(m.Port)+len(m.PortGUID)+len(m.NodeGUID)+
		len(m.BoardID)+len(m.LinkLayer)+len(m.PartitionKey)+len(m.Invalid) == 0
}

// items answers a list key: a negative hit fails at once; without positive
// items everything else passes.
func items[P fmt.Stringer, T any](e *eval, key string, list []Value[P], fact Fact[T], hit func(P, T) (not, hit bool)) {
	if len(list) == 0 || e.verdict == No {
		return
	}
	if !fact.Known {
		e.notYet(key, "", func() string { return joinItems(list) })
		return
	}
	positive, matched := false, false
	for i := range list {
		not, h := hit(list[i].V, fact.V)
		positive = positive || !not
		if h && not {
			e.no(func() string {
				return fmt.Sprintf("%s=%s (%s) excludes %s", key, ib.Clip(list[i].V.String()), list[i].Pos, showFact(fact.V))
			})
			return
		}
		matched = matched || h
	}
	if positive && !matched {
		e.no(func() string {
			return fmt.Sprintf("%s=%s (%s) does not fit %s", key, ib.Clip(joinItems(list)), list[0].Pos, showFact(fact.V))
		})
	}
}

func joinItems[P fmt.Stringer](list []Value[P]) string {
	var b strings.Builder
	for i, p := range list {
		if i > 0 {
			b.WriteByte(' ')
		}
		if b.Len() > 64 {
			break
		}
		b.WriteString(p.V.String())
	}
	return b.String()
}

func showFact(v any) string {
	if s := ib.Clip(fmt.Sprint(v)); s != "" {
		return s
	}
	return "nothing"
}

func globs(e *eval, key string, list []Value[Pattern], fact Fact[string]) {
	items(e, key, list, fact, func(p Pattern, s string) (bool, bool) { return p.Not, p.fits(s) })
}

// fits reports whether a name is the pattern's own text, brackets and all
// ("mlx5_core[ib_ipoib]"), or matches it as a glob.
func (p Pattern) fits(s string) bool { return p.Glob == s || globMatch(p.Glob, s, false) }

func guids(e *eval, key string, list []Value[GUIDPattern], fact Fact[ib.GUID]) {
	items(e, key, list, fact, func(p GUIDPattern, g ib.GUID) (bool, bool) { return p.Not, p.GUID == g })
}

func hwaddrs(e *eval, key string, list []Value[HWPattern], fact Fact[ib.HWAddr]) {
	items(e, key, list, fact, func(p HWPattern, a ib.HWAddr) (bool, bool) {
		if p.Addr.Len() == 8 && a.Len() == 20 {
			return p.Not, p.Addr.GUID() == a.GUID()
		}
		return p.Not, p.Addr == a
	})
}

// evalName wants that one name fits and that none hits a negative pattern.
func (m *Match) evalName(f *Facts, e *eval) {
	var more [8]Fact[string]
	names := append(more[:0], f.Name)
	if f.Name.Known {
		for _, n := range f.AltNames {
			names = append(names, Know(n))
		}
	}
	anyOf(e, "Name", m.Name, names)
}

// evalDriver wants the same of the two words for a driver.
func (m *Match) evalDriver(f *Facts, e *eval) {
	anyOf(e, "Driver", m.Driver, []Fact[string]{f.Driver, f.NetDriver})
}

// anyOf answers a list key for a thing that has several names: one that fits is
// enough, one that hits a negative pattern excludes. A name that is not known yet
// may still do either.
func anyOf(e *eval, key string, list []Value[Pattern], names []Fact[string]) {
	if len(list) == 0 || e.verdict == No {
		return
	}
	positive, negative, matched, open := false, false, false, false
	for _, n := range names {
		open = open || !n.Known
	}
	for i := range list {
		p := &list[i]
		positive, negative = positive || !p.V.Not, negative || p.V.Not
		for _, n := range names {
			if !n.Known || !p.V.fits(n.V) {
				continue
			}
			if p.V.Not {
				e.no(func() string {
					return fmt.Sprintf("%s=%s (%s) excludes %s", key, ib.Clip(p.V.String()), p.Pos, showFact(n.V))
				})
				return
			}
			matched = true
		}
	}
	switch {
	case open && (negative || positive && !matched):
		e.notYet(key, "", func() string { return joinItems(list) })
	case positive && !matched:
		e.no(func() string {
			var have []string
			for _, n := range names {
				if n.V != "" && !slices.Contains(have, n.V) {
					have = append(have, n.V)
				}
			}
			return fmt.Sprintf("%s=%s (%s) does not fit %s", key, ib.Clip(joinItems(list)), list[0].Pos, showFact(strings.Join(have, ", ")))
		})
	}
}

// evalProperty wants all properties.
func (m *Match) evalProperty(f *Facts, e *eval) {
	if len(m.Property) == 0 || e.verdict == No {
		return
	}
	if !f.Properties.Known {
		e.notYet("Property", " (udev has not initialised the device)", func() string { return joinItems(m.Property) })
		return
	}
	for i := range m.Property {
		p := &m.Property[i]
		v, ok := f.Properties.V[p.V.Name]
		if hit := ok && globMatch(p.V.Glob, v, false); hit == p.V.Not {
			e.no(func() string {
				is := "is not there"
				if ok {
					is = "is " + showFact(v)
				}
				return fmt.Sprintf("Property=%s (%s): %s %s", ib.Clip(p.V.String()), p.Pos, p.V.Name, is)
			})
			return
		}
	}
}

// possible are the units that match, or may match when more is known, in file name
// order. The first that matches is the last, for it wins over those behind it.
func (s *Set) possible(f *Facts) iter.Seq[*Unit] {
	return func(yield func(*Unit) bool) {
		if s == nil {
			return
		}
		for _, u := range s.Units {
			if v := u.Match.verdict(f); v != No && (!yield(u) || v == Yes) {
				return
			}
		}
	}
}

// Find is the unit for a link: the first in file name order that matches. If a
// unit before it could still match, that one is given with NotYet, because it
// would win. Without either the unit is nil and why says so.
func (s *Set) Find(f *Facts) (*Unit, Verdict, string) {
	for u := range s.possible(f) {
		v, why := u.Match.Matches(f)
		return u, v, why
	}
	return nil, No, "no unit matches"
}

// Candidate is a unit that governs a link if what Unknown lists, keys of [Match] with
// their values, is so, and no candidate before it is.
type Candidate struct {
	Unit    *Unit
	Unknown []string
}

// Candidates are the units that Find may give when more is known.
func (s *Set) Candidates(f *Facts) (out []Candidate) {
	for u := range s.possible(f) {
		e := eval{explain: true, verdict: Yes}
		u.Match.eval(f, &e)
		out = append(out, Candidate{u, e.unknown})
	}
	return out
}
