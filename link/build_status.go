package link

import (
	"fmt"
	"net/netip"
	"slices"

	"ibnetworkd/units"
)

// operOf is the operational state of a link, as networkctl would say it.
func operOf(l *Link) units.OperState {
	switch {
	case !l.Up():
		return units.OperOff
	case !l.Carrier() && l.Oper == 5: // IF_OPER_DORMANT
		return units.OperDormant
	case !l.Carrier():
		return units.OperNoCarrier
	case l.Master != 0 && l.SlaveKind != KindVRF:
		return units.OperEnslaved
	}
	switch addressState(l, netip.Addr.IsValid) {
	case units.OperRoutable:
		return units.OperRoutable
	case units.OperDegraded:
		return units.OperDegraded
	}
	return units.OperCarrier
}

// addressState is how far those of the link's addresses reach that belong says
// are meant: units.OperRoutable, units.OperDegraded (link-local only) or units.OperOff (none).
// Addresses that are not usable yet do not count.
func addressState(l *Link, belong func(netip.Addr) bool) units.OperState {
	best := units.OperOff
	for _, a := range l.Addresses {
		ip := a.Prefix.Addr()
		if !belong(ip) || a.Flags&(AddrTentative|AddrDADFailed) != 0 && ip.Is6() {
			continue
		}
		if !ip.IsLinkLocalUnicast() && a.Scope < ScopeLink {
			return units.OperRoutable
		}
		best = units.OperDegraded
	}
	return best
}

// StatusInput is what BuildStatus makes a link's status of.
type StatusInput struct {
	Snapshot *Snapshot
	Link     *Link
	Unit     *units.Unit // nil for none
	Made     bool        // the record says that we made the interface
	// Ignored, if set, says why the link is left alone.
	Ignored    Reason
	Pending    bool // udev has not finished with it
	Attributes []Attribute
	Steps      []Step    // of this link
	Blocked    []Blocked // of this link
	// Failed are the operations of this link that failed.
	Failed []Reason
}

// BuildStatus builds the status of one link.
func BuildStatus(in StatusInput) Status {
	l := in.Link
	st := Status{
		Name: l.Name, Ifindex: l.Index, Kind: l.Kind, IBDevice: l.IBDevice, Port: l.Port, HWAddr: l.HWAddr.String(),
		MadeByUs: in.Made, Carrier: l.Carrier(), Oper: operOf(l), Attributes: in.Attributes,
		IPv4State: addressState(l, netip.Addr.Is4), IPv6State: addressState(l, netip.Addr.Is6),
	}
	if st.Kind == "" {
		st.Kind = typeName(l.Type)
	}
	if in.Unit != nil && in.Unit.UsesDHCP() {
		st.DHCP = l.DHCP
	}
	if in.Unit != nil && in.Unit.MayUseDHCPv6() {
		st.DHCP6 = l.DHCP6
	}
	st.Probes = l.Probes
	if l.IPoIB != nil {
		st.PKey = l.IPoIB.PKey.String()
	}
	if p, ok := in.Snapshot.Link(l.Parent); ok && l.Parent != 0 {
		st.Parent = p.Name
	}
	for _, a := range l.Addresses {
		st.Addresses = append(st.Addresses, a.Prefix.String())
	}
	if in.Unit != nil {
		st.Unit = in.Unit.Path
		for _, f := range in.Unit.Files {
			if f.DropIn {
				st.DropIns = append(st.DropIns, f.Path)
			}
		}
		for _, p := range in.Unit.Problems {
			st.Problems = append(st.Problems, p.String())
		}
	}
	for _, s := range in.Steps {
		st.Pending = append(st.Pending, s.Op.String())
	}
	waiting := false
	add := func(r Reason) {
		if r != (Reason{}) && !slices.Contains(st.Reasons, r) {
			st.Reasons = append(st.Reasons, r)
		}
	}
	if !l.Up() {
		for _, a := range st.Attributes {
			if a.Name == "ActivationPolicy" {
				add(a.Why) // the others follow from it
			}
		}
	}
	for _, r := range in.Failed {
		add(r)
	}
	for _, b := range in.Blocked {
		if b.Wait {
			waiting = true
			add(b.Reason)
		}
	}
	for _, b := range in.Blocked {
		add(b.Reason)
	}
	for _, a := range st.Attributes {
		add(a.Why)
	}
	switch {
	case in.Ignored != (Reason{}):
		st.State, st.Reasons = StateUnmanaged, []Reason{in.Ignored}
		return st
	case in.Pending:
		st.State, st.Reasons = StatePending, []Reason{
			{Code: CodeUdev, Text: "udev has not finished with " + l.Name, Next: "udevadm info /sys/class/net/" + l.Name},
		}
	case len(in.Failed) > 0:
		st.State = StateFailed
	case len(in.Steps) > 0 || waiting || slices.ContainsFunc(st.Attributes, unreached) || l.IPoIB != nil && l.Up() && !l.Carrier():
		// An IPoIB link is done when its broadcast group is joined: its MTU is
		// not known before.
		st.State = StateConfiguring
	default:
		st.State = StateConfigured
	}
	if l.IPoIB != nil && l.Up() && !l.Carrier() {
		add(carrierReason(in.Snapshot, l))
	}
	if in.Made && in.Unit == nil && l.Bond != nil && !l.Up() {
		add(Reason{Code: CodeNoUnit, Next: "ibnetctl edit 10-" + l.Name,
			Text: "no unit matches " + l.Name + ", so it is not brought up and gets no address"})
	}
	fillOnline(&st, in.Unit)
	return st
}

// unreached reports an attribute without which a link is not where its unit wants it: in
// its bond or VRF. A child that waits for a network namespace does not hold up the boot
// of its parent: the container that makes the namespace may never start.
func unreached(a Attribute) bool {
	return !a.OK() && (a.Name == "Bond" || a.Name == "VRF") && a.Actual != a.Wanted
}

func fillOnline(st *Status, u *units.Unit) {
	family := units.FamilyAny
	st.Required, st.RequiredMin, st.RequiredMax = true, units.OperDegraded, units.OperRoutable
	switch {
	case u == nil && st.Kind == KindVRF:
		st.Required = false // one that was made has no address to wait for
	case u != nil:
		if !u.ConfiguresIP() {
			st.RequiredMin = units.OperCarrier
		}
		st.Required, family = u.Required(), u.Link.RequiredFamilyForOnline.Or(units.FamilyAny)
		if o, ok := u.Link.RequiredForOnline.Get(); ok && o.Required {
			st.RequiredMin, st.RequiredMax = o.Min, o.Max
		}
	}
	st.Online = st.State == StateConfigured &&
		st.Reaches(st.RequiredMin, st.RequiredMax, family == units.FamilyIPv4 || family == units.FamilyBoth,
			family == units.FamilyIPv6 || family == units.FamilyBoth)
}

// Reaches reports whether the link's operational state is from least to most and
// it has addresses of the families that are asked for: routable ones if a state
// above degraded is.
func (s *Status) Reaches(least, most units.OperState, ipv4, ipv6 bool) bool {
	need := units.OperDegraded
	if least.Rank() > units.OperDegraded.Rank() {
		need = units.OperRoutable
	}
	return s.Oper.Rank() >= least.Rank() && s.Oper.Rank() <= most.Rank() &&
		(!ipv4 || s.IPv4State.Rank() >= need.Rank()) && (!ipv6 || s.IPv6State.Rank() >= need.Rank())
}

// BuildPortStatus builds the status of all RDMA ports. ports are their units,
// notes what was planned for ports without a link.
func BuildPortStatus(s *Snapshot, ports map[PortName]Governed, notes map[PortName]*PortNote) []PortStatus {
	var out []PortStatus
	for d, p := range s.Ports() {
		st := buildPortStatus(s, d, p)
		n := PortName{IBDevice: d.Name, Port: p.Num}
		if u := ports[n].Unit; u != nil {
			st.Unit = u.Path
		}
		st.add(notes[n])
		out = append(out, st)
	}
	return out
}

func buildPortStatus(s *Snapshot, d *Device, p *Port) PortStatus {
	st := PortStatus{
		IBDevice: d.Name, Port: p.Num, LinkLayer: p.Layer.String(), State: p.State.String(), PhysState: p.Phys.String(),
		LID: uint16(p.LID), SMLID: uint16(p.SMLID), PortGUID: p.GUID.String(), NodeGUID: d.NodeGUID.String(), Rate: p.Rate,
		Reason: portReason(d, p),
	}
	if p.SubnetPrefix != 0 {
		st.SubnetPrefix = fmt.Sprintf("0x%016x", p.SubnetPrefix)
	}
	for _, k := range p.PKeys {
		st.PKeys = append(st.PKeys, k.String())
	}
	for i := range s.Links {
		l := &s.Links[i]
		if l.IBDevice != d.Name || l.Port != p.Num {
			continue
		}
		st.Links = append(st.Links, l.Name)
	}
	if len(st.Links) == 0 && st.Reason == (Reason{}) && p.Layer.String() == "InfiniBand" {
		st.Reason = Reason{Code: CodeNoModule, Text: fmt.Sprintf("port %s/%d has no IPoIB interface in this network namespace", d.Name, p.Num)}
		if s.Host.NoIPoIB {
			st.Reason = Reason{
				Code: CodeNoModule,
				Text: fmt.Sprintf("port %s/%d has no IPoIB interface: the driver ib_ipoib is not loaded", d.Name, p.Num),
				Next: "modprobe ib_ipoib",
			}
		}
	}
	return st
}
