package units

import (
	"fmt"
	"time"

	"ibnetworkd/ib"
)

// Bond is [Bond]: the bond that the matched link is a slave of, made where it does
// not exist. Mode and fail-over policy have one value each, the one that the kernel
// has for IPoIB.
type Bond struct {
	Section
	// Name is the bond's interface name; without it the section is not used.
	Name Value[string]
	// Mode is "active-backup" if it is set.
	Mode Value[string]
	// Primary is the interface name of the slave that is active whenever it has
	// carrier.
	Primary Value[string]
	// MIIMonitorSec is how often the carriers of the slaves are read, 1 ms to 10 s.
	MIIMonitorSec Value[time.Duration]
	// FailOverMACPolicy is "active" if it is set.
	FailOverMACPolicy Value[string]
}

// DefaultMIIMonitor is how often a bond reads the carriers of its slaves where
// nothing else is asked for.
const DefaultMIIMonitor = 20 * time.Millisecond

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

// bondModes are those of systemd.netdev(5).
var bondModes = []string{"active-backup", "balance-rr", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"}

// parseBondMode takes the one mode that bond_enslave (drivers/net/bonding) allows for
// InfiniBand.
func parseBondMode(s string) (string, error) {
	if s == "active-backup" {
		return s, nil
	}
	for _, m := range bondModes {
		if s == m {
			return "", fmt.Errorf("%q is impossible: the kernel bonds IPoIB links in mode active-backup only; "+
				"leave a bond of RoCE links in another mode to systemd-networkd, it is followed here", s)
		}
	}
	return "", didYouMean(nearest(s, bondModes[:1]), "%q is not active-backup, the only mode that the kernel has for IPoIB", ib.Clip(s))
}

func parseFailOverMAC(s string) (string, error) {
	switch s {
	case "active":
		return s, nil
	case "none", "follow":
		return "", fmt.Errorf("%q is impossible on IPoIB, whose hardware address is the port's: the bond takes that of its active slave; "+
			"write active", s)
	}
	return "", didYouMean("active", "%q is not active, the only policy that the kernel has for IPoIB", ib.Clip(s))
}

func bondSection() SectionSpec {
	return SectionSpec{
		Name: "Bond", open: func(u *Unit) (any, *Section) { return &u.Bond, &u.Bond.Section },
		Keys: []Key{
			{Name: "Name", apply: scalar(func(b *Bond) *Value[string] { return &b.Name }, parseIfName)},
			{Name: "Mode", Values: bondModes[:1], apply: scalar(func(b *Bond) *Value[string] { return &b.Mode }, parseBondMode)},
			{Name: "Primary", apply: scalar(func(b *Bond) *Value[string] { return &b.Primary }, parseIfName)},
			{Name: "MIIMonitorSec",
				apply: scalar(func(b *Bond) *Value[time.Duration] { return &b.MIIMonitorSec }, spanTo(time.Millisecond, 10*time.Second))},
			{Name: "FailOverMACPolicy", Values: []string{"active"},
				apply: scalar(func(b *Bond) *Value[string] { return &b.FailOverMACPolicy }, parseFailOverMAC)},
		},
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
				"Bond=%s is another bond than Name=%s (%s)", n.V, b.Name.V, b.Name.Pos)
		}
		u.Network.Bond = Value[string]{}
	}
	name, _ := u.MasterBond()
	if name == "" {
		if s := u.Network.PrimarySlave; s.Set && s.V {
			p.at("Network", "PrimarySlave").problem(s.Pos, Warning, "it has no effect", "PrimarySlave= needs Bond=, or [Bond] with Name=")
		}
		return
	}
	not := func(section string, pos Position, what string) {
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
	u.Addresses, u.Routes, u.Rules = nil, nil, nil
}
