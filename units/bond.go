package units

import (
	"fmt"
	"slices"
	"time"
)

// Bond is [Bond]: the bond that the matched link is a slave of, made where it does
// not exist. IPoIB links have one mode and one fail-over policy.
type Bond struct {
	Section
	// Name is the bond's interface name; without it the section is not used.
	Name Value[string]
	Mode Value[BondMode]
	// Primary is the interface name of the slave that is active whenever it has
	// carrier.
	Primary Value[string]
	// MIIMonitorSec is how often the carriers of the slaves are read, 1 ms to 10 s.
	MIIMonitorSec Value[time.Duration]
	// UpDelaySec and DownDelaySec delay what follows from a carrier.
	UpDelaySec, DownDelaySec Value[time.Duration]
	FailOverMACPolicy        Value[FailOverMAC]
	TransmitHashPolicy       Value[BondHash]
	LACPTransmitRate         Value[LACPRate]
	AdSelect                 Value[AdSelect]
	// MinLinks is how many slaves need carrier for the bond to have it.
	MinLinks Value[int]
}

// BondMode is the mode of a bond in the numbers of the kernel (if_bonding.h). The
// modes that no card makes RoCE LAG of are not supported.
type BondMode uint8

// The modes that are supported.
const (
	BondActiveBackup BondMode = 1
	BondXOR          BondMode = 2
	Bond8023AD       BondMode = 4
)

// FailOverMAC, BondHash, LACPRate and AdSelect are options of a bond in the numbers
// of the kernel (net/bond_options.h, if_bonding.h).
type (
	FailOverMAC uint8
	BondHash    uint8
	LACPRate    uint8
	AdSelect    uint8
)

// FailOverMACActive gives a bond the hardware address of its active slave.
const FailOverMACActive FailOverMAC = 1

var (
	bondModeWords    = []word[BondMode]{{BondActiveBackup, "active-backup"}, {Bond8023AD, "802.3ad"}, {BondXOR, "balance-xor"}}
	failOverMACWords = []word[FailOverMAC]{{0, "none"}, {FailOverMACActive, "active"}, {2, "follow"}}
	bondHashWords    = []word[BondHash]{
		{0, "layer2"}, {1, "layer3+4"}, {2, "layer2+3"}, {3, "encap2+3"}, {4, "encap3+4"}, {5, "vlan+srcmac"},
	}
	lacpRateWords = []word[LACPRate]{{0, "slow"}, {1, "fast"}}
	adSelectWords = []word[AdSelect]{{0, "stable"}, {1, "bandwidth"}, {2, "count"}}
)

func (m BondMode) String() string    { return printWord(bondModeWords, m) }
func (m FailOverMAC) String() string { return printWord(failOverMACWords, m) }
func (h BondHash) String() string    { return printWord(bondHashWords, h) }
func (r LACPRate) String() string    { return printWord(lacpRateWords, r) }
func (s AdSelect) String() string    { return printWord(adSelectWords, s) }

// DefaultMIIMonitor is how often a bond reads the carriers of its slaves where
// nothing else is asked for.
const DefaultMIIMonitor = 10 * time.Millisecond

// MasterBond is the name of the bond that the unit's links are slaves of, empty for
// none, and whether the unit has it made where it does not exist.
func (u *Unit) MasterBond() (name string, made bool) {
	switch {
	case u == nil:
		return "", false
	case u.Bond.Name.Set:
		return u.Bond.Name.V, true
	}
	return u.Network.Bond.V, false
}

// IsPrimary reports whether the unit asks for a link, by its name, to be the primary
// slave of its bond.
func (u *Unit) IsPrimary(link string) bool {
	if p, ok := u.Bond.Primary.Get(); ok {
		return p == link
	}
	return u.Network.PrimarySlave.Or(false)
}

// otherBondModes are those of systemd.netdev(5) that are not supported.
var otherBondModes = []string{"balance-rr", "broadcast", "balance-tlb", "balance-alb"}

func parseBondMode(s string) (BondMode, error) {
	if slices.Contains(otherBondModes, s) {
		return 0, fmt.Errorf("%q is not supported: the kernel bonds IPoIB links in mode active-backup only, "+
			"and no card has RoCE LAG in this mode; write active-backup, or 802.3ad for RoCE links", s)
	}
	return parseWord(bondModeWords, s)
}

func bondSection() SectionSpec {
	type B = Bond
	span := func(name string, lo, hi time.Duration, field func(*B) *Value[time.Duration]) Key {
		return Key{Name: name, apply: scalar(field, spanTo(lo, hi))}
	}
	return SectionSpec{
		Name: "Bond", open: func(u *Unit) (any, *Section) { return &u.Bond, &u.Bond.Section },
		Keys: []Key{
			{Name: "Name", apply: scalar(func(b *B) *Value[string] { return &b.Name }, parseIfName)},
			{Name: "Mode", Values: wordList(bondModeWords), apply: scalar(func(b *B) *Value[BondMode] { return &b.Mode }, parseBondMode)},
			{Name: "Primary", apply: scalar(func(b *B) *Value[string] { return &b.Primary }, parseIfName)},
			span("MIIMonitorSec", time.Millisecond, 10*time.Second, func(b *B) *Value[time.Duration] { return &b.MIIMonitorSec }),
			span("UpDelaySec", 0, time.Hour, func(b *B) *Value[time.Duration] { return &b.UpDelaySec }),
			span("DownDelaySec", 0, time.Hour, func(b *B) *Value[time.Duration] { return &b.DownDelaySec }),
			enumKey("FailOverMACPolicy", false, failOverMACWords, func(b *B) *Value[FailOverMAC] { return &b.FailOverMACPolicy }),
			enumKey("TransmitHashPolicy", false, bondHashWords, func(b *B) *Value[BondHash] { return &b.TransmitHashPolicy }),
			enumKey("LACPTransmitRate", false, lacpRateWords, func(b *B) *Value[LACPRate] { return &b.LACPTransmitRate }),
			enumKey("AdSelect", false, adSelectWords, func(b *B) *Value[AdSelect] { return &b.AdSelect }),
			numKey("MinLinks", 0, 32, false, func(b *B) *Value[int] { return &b.MinLinks }),
		},
	}
}

// checkBondMode finds keys of [Bond] that have no effect in its mode.
func (p *parser) checkBondMode() {
	b := &p.u.Bond
	mode := b.Mode.Or(BondActiveBackup)
	if p.u.IPoIB.Present && mode != BondActiveBackup {
		p.at("Bond", "Mode").problem(b.Mode.Pos, Warning, "Mode= stays unset", "%q is impossible: the kernel bonds IPoIB links in mode "+
			"active-backup only", mode)
		b.Mode, mode = Value[BondMode]{}, BondActiveBackup
	}
	not := func(key string, set bool, pos Place, modes ...BondMode) bool {
		if !set || slices.Contains(modes, mode) {
			return false
		}
		p.at("Bond", key).problem(pos, Warning, "it has no effect", "%s= is not for Mode=%s", key, mode)
		return true
	}
	if not("Primary", b.Primary.Set, b.Primary.Pos, BondActiveBackup) {
		b.Primary = Value[string]{}
	}
	if not("FailOverMACPolicy", b.FailOverMACPolicy.Set, b.FailOverMACPolicy.Pos, BondActiveBackup) {
		b.FailOverMACPolicy = Value[FailOverMAC]{}
	}
	if not("TransmitHashPolicy", b.TransmitHashPolicy.Set, b.TransmitHashPolicy.Pos, BondXOR, Bond8023AD) {
		b.TransmitHashPolicy = Value[BondHash]{}
	}
	if not("LACPTransmitRate", b.LACPTransmitRate.Set, b.LACPTransmitRate.Pos, Bond8023AD) {
		b.LACPTransmitRate = Value[LACPRate]{}
	}
	if not("AdSelect", b.AdSelect.Set, b.AdSelect.Pos, Bond8023AD) {
		b.AdSelect = Value[AdSelect]{}
	}
}

// checkBond finds a [Bond] that names none, and takes from a slave what its bond
// has to carry.
func (p *parser) checkBond() {
	u := p.u
	b := &u.Bond
	if b.Present && !b.Name.Set {
		p.at("Bond", "").problem(b.Pos, Warning, notUsed, "[Bond] has no Name=, the interface name of the bond")
		*b = Bond{Section: b.Section}
	}
	if n := u.Network.Bond; n.Set && b.Name.Set {
		if n.V != b.Name.V {
			p.at("Network", "Bond").problem(n.Pos, Warning, "Name= of [Bond] is used",
				"Bond=%s is not the bond of Name=%s (%s)", n.V, b.Name.V, b.Name.Pos)
		}
		u.Network.Bond = Value[string]{}
	}
	p.checkBondMode()
	name, _ := u.MasterBond()
	if name == "" {
		if s := u.Network.PrimarySlave; s.Set && s.V {
			p.at("Network", "PrimarySlave").problem(s.Pos, Warning, "it has no effect", "PrimarySlave= needs Bond=, or [Bond] with Name=")
		}
		return
	}
	p.checkSlave(name)
	not := func(section string, pos Place, what string) {
		p.at(section, "").problem(pos, Warning, "it is not used",
			"%s is on a slave of %s, but connections use the addresses of the bond: move it to a unit with [Match] Name=%s", what, name, name)
	}
	for _, a := range u.Addresses {
		at, what := a.Pos, "the address"
		if a.Address.Set {
			at, what = a.Address.Pos, "the address "+a.Address.V.String()
		}
		not("Address", at, what)
	}
	for _, r := range u.Routes {
		at := r.Pos
		if r.Gateway.Set {
			at = r.Gateway.Pos
		}
		not("Route", at, "the route")
	}
	for _, r := range u.Rules {
		not("RoutingPolicyRule", r.Pos, "the rule")
	}
	for _, n := range u.Neighbors {
		not("Neighbor", n.Pos, "the neighbour")
	}
	for _, n := range u.NextHops {
		not("NextHop", n.ID.Pos, fmt.Sprintf("nexthop %d", n.ID.V))
	}
	u.Addresses, u.Routes, u.Rules, u.Neighbors, u.NextHops = nil, nil, nil, nil, nil
}
