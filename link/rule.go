package link

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"ibnetworkd/units"
)

// Fits reports whether x is the rule that r asks for: without a priority it is
// any, because the kernel then gives one of its choice.
func (r Rule) Fits(x Rule) bool {
	if r.Priority == 0 {
		x.Priority = 0
	}
	return sameRule(r, x)
}

// sameRule compares what identifies a rule in the kernel: everything but who
// made it.
func sameRule(a, b Rule) bool {
	a.Protocol, b.Protocol = 0, 0
	return a == b
}

// WantedRules are the routing policy rules of a unit, those of both families
// where it says so.
func WantedRules(u *units.Unit) []Rule {
	var out []Rule
	for i := range u.Rules {
		x := &u.Rules[i]
		r := Rule{
			Priority: x.Priority.Or(0), Invert: x.InvertRule.Or(false),
			From: maskedOr(x.From), To: maskedOr(x.To), TOS: x.TypeOfService.Or(0),
			IIF: x.IncomingInterface.Or(""), OIF: x.OutgoingInterface.Or(""),
			Table: x.Table.Or(TableMain), L3MDev: x.L3MasterDevice.Or(false), IPProto: x.IPProtocol.Or(0),
			SuppressPrefix: int32(x.SuppressPrefixLength.Or(-1)), SuppressIfGroup: int32(x.SuppressInterfaceGroup.Or(-1)),
			Type: uint8(x.Type.Or(units.RuleTable)), Protocol: ProtoStatic,
		}
		if m, ok := x.FirewallMark.Get(); ok {
			r.FWMark, r.FWMask = m.Value, m.Mask
		}
		if g, ok := x.GoTo.Get(); ok {
			r.Type, r.Goto = RuleGoto, g
		}
		if r.Type != RuleToTable || r.L3MDev {
			r.Table = 0
		}
		if p, ok := x.SourcePort.Get(); ok {
			r.SrcPort = [2]uint16{p.First, p.Last}
		}
		if p, ok := x.DestinationPort.Get(); ok {
			r.DstPort = [2]uint16{p.First, p.Last}
		}
		if v, ok := x.User.Get(); ok {
			r.UIDRange, r.HasUIDRange = [2]uint32{v.First, v.Last}, true
		}
		v4, v6 := x.Families()
		if v4 {
			r.Family = 4
			out = append(out, r)
		}
		if v6 {
			r.Family = 6
			out = append(out, r)
		}
	}
	return out
}

func maskedOr(v units.Value[netip.Prefix]) netip.Prefix {
	if p, ok := v.Get(); ok {
		return p.Masked()
	}
	return netip.Prefix{}
}

// PlanRules plans the host's routing policy rules: adds those that any link's unit
// wants and removes recorded ones that none wants, unless partial is set: some units
// are not known yet.
func PlanRules(b *Builder, wanted []Rule, partial bool) {
	b.For(nil)
	for _, r := range b.Record.rules() {
		if partial || slices.ContainsFunc(wanted, func(w Rule) bool { return sameRule(w, r) }) {
			continue
		}
		// Another's rule of the same sort stays.
		if k := slices.IndexFunc(b.Model.snap.Rules, func(x Rule) bool { return r.Fits(x) && x.Protocol == r.Protocol }); k >= 0 {
			b.Do(DelRule{Rule: b.Model.snap.Rules[k]})
		}
	}
	for i, w := range wanted {
		if slices.ContainsFunc(wanted[:i], func(x Rule) bool { return sameRule(x, w) }) {
			continue
		}
		if !slices.ContainsFunc(b.Model.snap.Rules, w.Fits) {
			if w.Family == 6 && b.Base.Host.NoIPv6 {
				b.Block(Target{}, AddRule{Rule: w}, false, Reason{Code: CodeNoIPv6, Text: "this kernel has no IPv6"})
				continue
			}
			b.Do(AddRule{Rule: w})
		}
	}
}

func (r *Record) rules() []Rule {
	if r == nil {
		return nil
	}
	return r.Rules
}

func (r Rule) familyFlag() string {
	if r.Family == 6 {
		return "-6 "
	}
	return ""
}

// String prints the rule as ip rule add takes it.
func (r Rule) String() string {
	var w []string
	add := func(format string, a ...any) { w = append(w, fmt.Sprintf(format, a...)) }
	if r.Invert {
		add("not")
	}
	if r.From.IsValid() {
		add("from %s", r.From)
	} else {
		add("from all")
	}
	if r.To.IsValid() {
		add("to %s", r.To)
	}
	if r.TOS != 0 {
		add("tos 0x%02x", r.TOS)
	}
	if r.FWMark != 0 {
		if r.FWMask != 0 && r.FWMask != ^uint32(0) {
			add("fwmark 0x%x/0x%x", r.FWMark, r.FWMask)
		} else {
			add("fwmark 0x%x", r.FWMark)
		}
	}
	if r.IIF != "" {
		add("iif %s", r.IIF)
	}
	if r.OIF != "" {
		add("oif %s", r.OIF)
	}
	if r.HasUIDRange {
		add("uidrange %d-%d", r.UIDRange[0], r.UIDRange[1])
	}
	if r.IPProto != 0 {
		add("ipproto %d", r.IPProto)
	}
	for _, p := range []struct {
		word string
		r    [2]uint16
	}{{"sport", r.SrcPort}, {"dport", r.DstPort}} {
		switch {
		case p.r[0] == 0:
		case p.r[0] == p.r[1]:
			add("%s %d", p.word, p.r[0])
		default:
			add("%s %d-%d", p.word, p.r[0], p.r[1])
		}
	}
	add("priority %d", r.Priority)
	if r.Protocol != 0 {
		add("protocol %s", protocolName(r.Protocol))
	}
	switch {
	case r.L3MDev:
		add("l3mdev")
	case r.Type == RuleGoto:
		add("goto %d", r.Goto)
	case r.Type == RuleBlackhole:
		add("blackhole")
	case r.Type == RuleUnreachable:
		add("unreachable")
	case r.Type == RuleProhibit:
		add("prohibit")
	default:
		if r.Table != 0 {
			add("table %d", r.Table)
		}
	}
	if r.SuppressPrefix >= 0 {
		add("suppress_prefixlength %d", r.SuppressPrefix)
	}
	if r.SuppressIfGroup >= 0 {
		add("suppress_ifgroup %d", r.SuppressIfGroup)
	}
	return strings.Join(w, " ")
}

func (m *Model) addRule(add Rule) error {
	if add.Priority == 0 {
		// fib_default_rule_pref: one below the second rule of the family.
		add.Priority = 32766
		for _, r := range m.snap.Rules {
			if r.Family == add.Family && r.Priority != 0 {
				add.Priority = min(add.Priority, r.Priority)
			}
		}
		add.Priority--
	}
	if slices.ContainsFunc(m.snap.Rules, func(r Rule) bool { return sameRule(r, add) }) {
		return errExist
	}
	m.snap.Rules = append(slices.Clone(m.snap.Rules), add)
	return nil
}

func (m *Model) delRule(del Rule) error {
	n := len(m.snap.Rules)
	m.snap.Rules = slices.DeleteFunc(slices.Clone(m.snap.Rules), func(r Rule) bool { return sameRule(r, del) })
	if n == len(m.snap.Rules) {
		return errNotFound
	}
	return nil
}
