package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing/fstest"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/cmd/ibnetctl/importer"
	"ibnetworkd/daemon"
	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// importCheck compares what runs now with what imported units would do, on the
// live system or, if from is not empty, on a recorded one. It changes nothing.
func (a *app) importCheck(r importer.Result, sources []importer.Source, from string) error {
	if len(r.Units) == 0 {
		a.importRest(r, false)
		return noUnits(sources)
	}
	m := fstest.MapFS{}
	names := map[string]bool{}
	for _, u := range r.Units {
		addText(m, u.Name, u.Text)
		names[u.Name] = true
	}
	own := []units.Root{{Path: units.Dirs[0], FS: m}}
	var sys *system
	if from != "" {
		was, c, err := readCapture(from, "")
		if err != nil {
			return err
		}
		sys = newSystem(released(was.snap), units.Load(append(own, capturedRoots(c.Units)...)).WithTables(nil, c.table), was.record)
	} else {
		set := units.Load(append(own, a.roots()...)).WithTables(nil, a.addressTable)
		snap, err := daemon.Observe("/", set, nil)
		if err != nil {
			return err
		}
		rec, err := a.record()
		if err != nil {
			return err
		}
		sys = newSystem(released(snap), set, rec)
	}
	form := importForm(r)
	form.Check = checkImport(sys, names)
	if a.json {
		if err := a.emit(form); err != nil {
			return err
		}
	} else {
		a.printCheck(form.Check)
	}
	for _, s := range governedByOthers(sys, names) {
		fmt.Fprintln(a.err, s)
	}
	if n := len(r.Left); n > 0 {
		fmt.Fprintf(a.err, "%d %s not converted: ibnetctl import lists %s\n", n, plural(n, "line is", "lines are"), plural(n, "it", "them"))
	}
	if !form.Check.Same {
		fmt.Fprintln(a.err, "The running system differs from the imported units.")
		return &exitError{code: exitFailure}
	}
	fmt.Fprintln(a.err, "The running system matches the imported units.")
	return nil
}

// released is a snapshot in which the other tools have released their links: the
// import is meant to take the links over from them. Routes that ip route made
// without a protocol are as good as those of a unit, which are static.
func released(s *link.Snapshot) *link.Snapshot {
	out := *s
	out.Links = slices.Clone(s.Links)
	for i := range out.Links {
		out.Links[i].OtherManagers = nil
		out.Links[i].Udev.ManagedBy = ""
		out.Links[i].Routes = slices.Clone(out.Links[i].Routes)
		for j := range out.Links[i].Routes {
			if r := &out.Links[i].Routes[j]; r.Protocol == protoBoot {
				r.Protocol = protoStatic
			}
		}
	}
	return &out
}

// checkImport compares each link with the imported unit that applies to it.
func checkImport(sys *system, names map[string]bool) *answer.ImportCheck {
	out := &answer.ImportCheck{Same: true, Links: []answer.CheckedLink{}, Unmatched: []string{}, Unclaimed: []string{}}
	used := map[string]bool{}
	var rules []link.Rule
	for _, u := range sys.set.Units {
		rules = append(rules, link.WantedRules(u)...)
	}
	for i := range sys.snap.Links {
		l := &sys.snap.Links[i]
		u := sys.result.Governing.Links[l.Index].Unit
		if u == nil || !names[u.Name] {
			if u == nil && l.IPoIB != nil && !partitionOf(sys, l) {
				out.Unclaimed = append(out.Unclaimed, l.Name)
				out.Same = out.Same && !configured(l)
			}
			continue
		}
		used[u.Name] = true
		c := answer.CheckedLink{Link: l.Name, Unit: u.Name, Runs: stateLine(l), Steps: []answer.Step{}, Blocked: []link.Blocked{},
			NotInUnit: notInUnit(sys, l, u, rules)}
		for _, s := range sys.result.Plan.Steps {
			if of := s.Op.Target(); of.Link == l.Name || of.Link == "" && s.Unit == u.Path && of.IBDevice == l.IBDevice && of.Port == l.Port {
				c.Steps = append(c.Steps, answer.Step{Command: s.Op.String(), Link: of.String(), Unit: s.Unit, Effect: s.Effect})
			}
		}
		for _, b := range sys.result.Plan.Blocked {
			// The lease that another client has is as good.
			if b.Reason.Code == link.CodeNoLease && leasedToOther(l, u, &b) {
				continue
			}
			if b.On.Link == l.Name || b.On.Link == "" && b.Unit == u.Path {
				c.Blocked = append(c.Blocked, b)
			}
		}
		out.Same = out.Same && len(c.Steps)+len(c.Blocked)+len(c.NotInUnit) == 0
		out.Links = append(out.Links, c)
	}
	for _, g := range sys.result.Governing.Ports {
		if g.Unit != nil {
			used[g.Unit.Name] = true
		}
	}
	for _, u := range sys.set.Units {
		// A unit for every link that has none of its own need not match one.
		if names[u.Name] && !used[u.Name] && !strings.HasPrefix(u.Name, "90-") {
			out.Unmatched = append(out.Unmatched, u.Name)
			out.Same = false
		}
	}
	// Steps for a link that does not exist yet, such as a P_Key child.
	for _, s := range sys.result.Plan.Steps {
		of := s.Op.Target()
		if names[s.Unit[strings.LastIndexByte(s.Unit, '/')+1:]] && !slices.ContainsFunc(out.Links, func(c answer.CheckedLink) bool {
			return slices.ContainsFunc(c.Steps, func(x answer.Step) bool { return x.Command == s.Op.String() })
		}) {
			out.Others = append(out.Others, answer.Step{Command: s.Op.String(), Link: of.String(), Unit: s.Unit, Effect: s.Effect})
			out.Same = false
		}
	}
	return out
}

// configured reports whether something was set of an IPoIB link that is
// missing after the next start of the host.
func configured(l *link.Link) bool {
	return l.IPoIB.Mode == ib.ModeConnected || slices.ContainsFunc(l.Routes, lasting) ||
		slices.ContainsFunc(l.Addresses, func(a link.Address) bool { return !a.Prefix.Addr().IsLinkLocalUnicast() })
}

// governedByOthers lists the IPoIB links that are not compared because a unit
// that is not imported applies to them.
func governedByOthers(sys *system, names map[string]bool) []string {
	var out []string
	for i := range sys.snap.Links {
		l := &sys.snap.Links[i]
		if u := sys.result.Governing.Links[l.Index].Unit; u != nil && !names[u.Name] && l.IPoIB != nil {
			out = append(out, fmt.Sprintf("%s: not compared: %s applies to it, which is not imported", l.Name, u.Name))
		}
	}
	return out
}

// partitionOf reports whether a unit makes the P_Key child l.
func partitionOf(sys *system, l *link.Link) bool {
	u := sys.result.Governing.Links[l.Parent].Unit
	return u != nil && l.IsChild() && slices.ContainsFunc(u.Partitions,
		func(p units.Partition) bool { return p.PartitionKey.V.Base() == l.IPoIB.PKey.Base() })
}

// stateLine is the state of a link in one line.
func stateLine(l *link.Link) string {
	var w []string
	if l.IPoIB != nil {
		w = append(w, "mode "+l.IPoIB.Mode.String())
	}
	w = append(w, fmt.Sprintf("mtu %d", l.MTU))
	for _, x := range l.Addresses {
		if !x.Prefix.Addr().IsLinkLocalUnicast() {
			w = append(w, x.Prefix.String())
		}
	}
	for _, x := range l.Routes {
		if lasting(x) {
			w = append(w, "route "+routeText(x))
		}
	}
	return strings.Join(w, ", ")
}

// Origins of routes (rtnetlink.h).
const (
	protoRedirect = 1
	protoKernel   = 2
	protoBoot     = 3
	protoStatic   = 4
	protoRA       = 9
	protoDHCP     = 16
	tableMain     = 254
	tableLocal    = 255
)

// leased reports an address that a server or a router has given for a time.
func leased(a link.Address) bool {
	return !a.Prefix.Addr().IsLinkLocalUnicast() && a.Valid != link.Forever && a.Valid != 0
}

// leasedToOther reports whether the client of another program has the lease that b lacks:
// an address of its family for a time. A client that never runs gets none.
func leasedToOther(l *link.Link, u *units.Unit, b *link.Blocked) bool {
	six := u.AsksDHCPv6() && (!u.UsesDHCP() || strings.Contains(b.Reason.Text, "DHCPv6"))
	if six && u.NeverDHCPv6() != "" {
		return false
	}
	return slices.ContainsFunc(l.Addresses, func(a link.Address) bool { return leased(a) && a.Prefix.Addr().Is6() == six })
}

// lasting reports a route that was configured.
func lasting(r link.Route) bool {
	switch r.Protocol {
	case protoRedirect, protoKernel, protoRA, protoDHCP:
		return false
	}
	return r.Table != tableLocal
}

func routeText(r link.Route) string {
	s := r.Dst.String()
	if r.Gateway.IsValid() {
		s += " via " + r.Gateway.String()
	}
	if r.Table != 0 && r.Table != tableMain {
		s += fmt.Sprintf(" table %d", r.Table)
	}
	return s
}

// notInUnit lists what a link has that its unit does not set: it stays while the
// link exists, and is missing after the next start of the host.
func notInUnit(sys *system, l *link.Link, u *units.Unit, rules []link.Rule) []string {
	out := []string{}
	var part *units.Partition
	if parent := sys.result.Governing.Links[l.Parent].Unit; parent != nil && l.IsChild() {
		for i := range parent.Partitions {
			if parent.Partitions[i].PartitionKey.V.Base() == l.IPoIB.PKey.Base() {
				part = &parent.Partitions[i]
			}
		}
	}
	if x := l.IPoIB; x != nil {
		if x.Mode == ib.ModeConnected && !u.IPoIB.Mode.Set && (part == nil || !part.Mode.Set) {
			out = append(out, "mode connected")
		}
		if x.IgnoreUserspaceMulticast && !u.IPoIB.IgnoreUserspaceMulticastGroups.Set &&
			(part == nil || !part.IgnoreUserspaceMulticastGroups.Set) {
			out = append(out, "umcast 1")
		}
		// What the kernel chooses by itself follows from the fabric.
		if l.MTU > ib.MTU4096.IPoIBDatagram() && !u.Link.MTUBytes.Set && (part == nil || !part.MTUBytes.Set) {
			out = append(out, fmt.Sprintf("mtu %d", l.MTU))
		}
		for _, c := range sys.snap.Children(l.Index) {
			if c.IPoIB != nil && !partitionOf(sys, c) {
				out = append(out, fmt.Sprintf("P_Key child %s (%s)", c.Name, c.IPoIB.PKey))
			}
		}
	}
	if !u.ConfiguresIP() {
		return out
	}
	for _, a := range l.Addresses {
		if a.Prefix.Addr().IsLinkLocalUnicast() || leased(a) ||
			slices.ContainsFunc(u.Addresses, func(x units.Address) bool { return x.Address.V == a.Prefix }) {
			continue
		}
		out = append(out, "address "+a.Prefix.String())
	}
	table := uint32(tableMain)
	if m, ok := sys.snap.Link(l.Master); ok && m.VRF != nil {
		table = m.VRF.Table
	}
	for _, r := range l.Routes {
		if r.Protocol == protoDHCP && r.Dst.Bits() == 0 && r.Dst.Addr().Is4() && u.UsesDHCP() && r.Metric != u.DHCPMetric() {
			out = append(out, fmt.Sprintf("metric %d of the default route of DHCP", r.Metric))
		}
		if lasting(r) && !slices.ContainsFunc(u.Routes, func(x units.Route) bool { return saysRoute(&x, r, table) }) {
			out = append(out, "route "+routeText(r))
		}
	}
	for _, r := range sys.snap.Rules {
		mine := r.IIF == l.Name || r.OIF == l.Name || slices.ContainsFunc(l.Addresses, func(a link.Address) bool {
			return r.From.IsValid() && r.From.Bits() > 0 && r.From.Contains(a.Prefix.Addr())
		})
		if mine && r.Protocol != protoKernel && !slices.ContainsFunc(rules, func(x link.Rule) bool { return r.Fits(x) || x.Fits(r) }) {
			out = append(out, "rule "+r.String())
		}
	}
	return out
}

// saysRoute reports whether a unit's route is the one that runs; table is where routes
// without Table= are.
func saysRoute(x *units.Route, r link.Route, table uint32) bool {
	dst := x.Destination.V
	if !x.Destination.Set {
		dst = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if x.Is6() {
			dst = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
	}
	return dst.Masked() == r.Dst && (!x.Gateway.Set || x.Gateway.V == r.Gateway) && x.Table.Or(table) == r.Table
}

func (a *app) printCheck(c *answer.ImportCheck) {
	for _, l := range c.Links {
		word, style := "same", good
		if len(l.Steps)+len(l.Blocked)+len(l.NotInUnit) > 0 {
			word, style = "differs", bad
		}
		fmt.Fprintf(a.out, "%s (%s): %s\n  runs: %s\n", l.Link, l.Unit, a.paint(style, word), l.Runs)
		for _, s := range l.Steps {
			fmt.Fprintln(a.out, "  the unit would do:", s.Command)
		}
		for _, b := range l.Blocked {
			what := b.Reason.Text
			if b.Op != "" {
				what = b.Op + ": " + what
			}
			fmt.Fprintln(a.out, "  the unit cannot have:", what)
		}
		for _, s := range l.NotInUnit {
			fmt.Fprintln(a.out, "  not in the unit:", s)
		}
	}
	for _, s := range c.Others {
		fmt.Fprintf(a.out, "%s: would do: %s\n", s.Unit[strings.LastIndexByte(s.Unit, '/')+1:], s.Command)
	}
	for _, u := range c.Unmatched {
		fmt.Fprintf(a.out, "%s: matches no link or port of this host\n", u)
	}
	for _, l := range c.Unclaimed {
		fmt.Fprintf(a.out, "%s: no unit applies to it\n", l)
	}
}
