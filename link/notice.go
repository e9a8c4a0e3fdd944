package link

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/units"
)

// Notice is a message about a unit or the host as a whole.
type Notice struct {
	// Unit is the path of the unit that it is about, "" for the host.
	Unit string `json:"unit,omitempty"`
	Reason
	// Settle marks what is only true if it lasts.
	Settle bool `json:"-"`
}

// The codes of notices.
const (
	CodeNoUnits    Code = "no-unit-file"
	CodeUnmatched  Code = "unit-matches-nothing"
	CodeOverridden Code = "unit-overridden" // another unit precedes it wherever it matches
	CodeModule     Code = "module-not-loaded"
	CodeEdits      Code = "edits-waiting"      // files have changed that wait for a reload
	CodeConf       Code = "daemon-settings"    // a mistake in ibnetworkd.conf
	CodeOneHost    Code = "partition-of-host"  // Partition= is not known to other hosts' managers
	CodeSamePrefix Code = "same-subnet-prefix" // two fabrics with one subnet prefix
	CodeSameDerive Code = "same-address"       // two links derive one address
)

// maxNotices bounds the notices about units: the rest are as good as those shown.
const maxNotices = 32

// Notices are the notices of a host and its units: units that match nothing, fabrics
// with the same subnet prefix, and links that derive one address.
func Notices(s *Snapshot, set *units.Set, g Governing) []Notice {
	return slices.Concat(unitNotices(s, set, g), prefixNotices(s), ofedNotices(s, g), sameAddressNotices(s, set, g))
}

// ofedNotices name the other program that sets mode and MTU, where a unit does.
func ofedNotices(s *Snapshot, g Governing) []Notice {
	if s.Host.OFEDManager == "" {
		return nil
	}
	for i := range s.Links {
		if l := &s.Links[i]; l.IPoIB != nil && g.Links[l.Index].Unit != nil {
			return []Notice{{Reason: Reason{Code: CodeOtherManager,
				Text: fmt.Sprintf("MLNX_OFED's %s also sets the mode and MTU of %s and other IPoIB links when they appear", s.Host.OFEDManager, l.Name),
				Next: "write SET_IPOIB_CM=no into /etc/infiniband/openib.conf; or systemctl mask mlnx_interface_mgr@.service"}}}
		}
	}
	return nil
}

// candidate is a link or port that a unit may match.
type candidate struct {
	name  string
	facts units.Facts
	rdma  bool
	unit  *units.Unit // that applies to it
}

func unitNotices(s *Snapshot, set *units.Set, g Governing) (out []Notice) {
	if len(set.Units) == 0 {
		if len(set.Problems) > 0 {
			return nil // files there are
		}
		return []Notice{
			{
				Reason: Reason{
					Code: CodeNoUnits,
					Text: "there is no unit file: no link is configured by ibnetworkd",
					Next: "ibnetctl edit 10-" + firstName(s),
				},
			},
		}
	}
	used := make(map[*units.Unit]bool, len(set.Units))
	for _, of := range g.Links {
		used[of.Unit] = true
	}
	if !slices.ContainsFunc(set.Units, func(u *units.Unit) bool { return !used[u] }) {
		return nil
	}
	all := candidates(s, g)
	for _, c := range all {
		used[c.unit] = true
	}
	for _, u := range set.Units {
		// One without [Match], or with a wrong value there, has a problem that says so.
		if used[u] || u.Match.Empty() || len(u.Match.Invalid) > 0 {
			continue
		}
		if v, _ := u.Match.Matches(&units.Facts{Host: &s.Host.Facts}); v == units.No {
			continue // it is for other hosts
		}
		if n, ok := unitNotice(s, u, all); ok {
			if out = append(out, n); len(out) == maxNotices {
				return out
			}
		}
	}
	return out
}

// unitNotice returns why a unit applies to nothing, unless that may still change.
func unitNotice(s *Snapshot, u *units.Unit, all []candidate) (Notice, bool) {
	why := ""
	var names []string
	named := len(u.Match.Name) > 0
	for i := range all {
		c := &all[i]
		v, w := u.Match.Matches(&c.facts)
		switch {
		case v == units.NotYet || v == units.Yes && c.unit == nil:
			return Notice{}, false
		case v == units.Yes:
			return Notice{
				Unit: u.Path,
				Reason: Reason{Code: CodeOverridden, Text: fmt.Sprintf("%s applies to nothing: %s comes first for %s", u.Name, c.unit.Name, c.name),
					Next: "remove one of the two, or narrow [Match] of " + c.unit.Name},
			}, true
		}
		named = named && strings.HasPrefix(w, "Name=")
		if c.rdma && c.name != "" {
			names = append(names, c.name)
			if why == "" {
				why = w
			}
		}
	}
	r := Reason{Code: CodeUnmatched, Text: u.Name + " matches nothing: this host has no InfiniBand or RoCE link", Next: "ibnetctl diagnose"}
	switch {
	case len(names) == 0:
	case named:
		var globs []string
		for _, p := range u.Match.Name {
			globs = append(globs, p.V.String())
		}
		want := strings.Join(globs, " ")
		r.Text = fmt.Sprintf("%s matches nothing: no link fits Name=%s (%s); this host has %s", u.Name, want, u.Match.Name[0].Pos, few(names))
		r.Next = fmt.Sprintf("write Name=%s, or Type=infiniband for every IPoIB link", cmp.Or(units.Nearest(want, names), names[0]))
		if port := unlinked(s); port != "" && len(globs) == 1 {
			r.Text += fmt.Sprintf("; port %s has no interface of its own in this network namespace", port)
			r.Next = fmt.Sprintf("if it is in another one: ip -n NAMESPACE link set %s netns 1; if not: %s", want, r.Next)
		}
	default:
		r.Text = fmt.Sprintf("%s matches nothing: %s", u.Name, why)
		r.Next = "compare [Match] with: ibnetctl list; ibnetctl ports"
		if s.Host.RDMAExclusive && len(u.Match.IBDevice) > 0 {
			r.Text += "; RDMA devices of other network namespaces are not seen here (rdma system: netns exclusive)"
			r.Next += "; ip netns exec NAMESPACE rdma dev. Name= and PortGUID= match an IPoIB link wherever its RDMA device is"
		}
	}
	return Notice{Unit: u.Path, Reason: r}, true
}

// unlinked is an InfiniBand port without an IPoIB interface here, other than P_Key children
// whose parent is elsewhere; "" if there is none.
func unlinked(s *Snapshot) string {
	if s.Host.NoIPoIB {
		return ""
	}
	for i := range s.Devices {
		d := &s.Devices[i]
		for k := range d.Ports {
			p := &d.Ports[k]
			if p.Layer == ib.LinkLayerInfiniBand && !slices.ContainsFunc(s.Links, func(l Link) bool {
				return l.IPoIB != nil && l.Parent == 0 && l.IBDevice == d.Name && l.Port == p.Num
			}) {
				return fmt.Sprintf("%s/%d", d.Name, p.Num)
			}
		}
	}
	return ""
}

// few lists the first names.
func few(names []string) string {
	const most = 4
	if n := len(names) - most; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), n)
	}
	return strings.Join(names, ", ")
}

// firstName is the name of the first link over an InfiniBand port, for an example.
func firstName(s *Snapshot) string {
	for i := range s.Links {
		if l := &s.Links[i]; l.IPoIB != nil && !l.IsChild() {
			return l.Name
		}
	}
	return "ib0"
}

// candidates are the links, the interfaces that units ask for and that are not made
// yet, and the ports without a link.
func candidates(s *Snapshot, g Governing) (out []candidate) {
	has := map[PortName]bool{}
	for i := range s.Links {
		l := &s.Links[i]
		if l.Type == ARPHRDLoopback {
			continue
		}
		u := g.Links[l.Index].Unit
		has[PortName{l.IBDevice, l.Port}] = true
		out = append(out, candidate{l.Name, factsOf(s, l), l.IPoIB != nil || l.IBDevice != "", u})
		if u == nil {
			continue
		}
		add := func(name, kind string, key ib.PKey) {
			if _, ok := s.LinkByName(name); ok {
				return
			}
			f := units.Facts{Name: units.Know(name), Kind: units.Know(kind), PartitionKey: units.Know(key), Host: &s.Host.Facts,
				IBDevice: units.Know(l.IBDevice), Port: units.Know(l.Port)}
			out = append(out, candidate{facts: f})
		}
		for _, p := range u.Partitions {
			add(p.ChildName(l.Name), "ipoib", p.PartitionKey.V)
		}
		for _, v := range u.VLANs {
			add(v.ChildName(l.Name), v.Kind.String(), 0)
		}
	}
	for d, p := range s.Ports() {
		if n := (PortName{d.Name, p.Num}); !has[n] {
			out = append(out, candidate{fmt.Sprintf("%s/%d", d.Name, p.Num), factsOfPort(s, d, p), true, g.Ports[n].Unit})
		}
	}
	return out
}

// prefixNotices finds two InfiniBand ports that are on different fabrics with one
// subnet prefix. That they are is certain where a LID is used on both sides. A fabric
// has one place of the subnet manager, but its ports learn of a new one one by one.
func prefixNotices(s *Snapshot) (out []Notice) {
	type port struct {
		name string
		*Port
	}
	var up []port
	for d, p := range s.Ports() {
		if p.Layer == ib.LinkLayerInfiniBand && p.State == ib.PortActive && p.SubnetPrefix != 0 && p.LID != 0 && p.SMLID != 0 {
			up = append(up, port{fmt.Sprintf("%s/%d", d.Name, p.Num), p})
		}
	}
	found := map[uint64]*Notice{}
	for i, a := range up {
		for _, b := range up[i+1:] {
			old, sure := found[a.SubnetPrefix], sameLID(a.Port, b.Port)
			if a.SubnetPrefix != b.SubnetPrefix || !sure && (old != nil || a.SMLID == b.SMLID) || old != nil && !old.Settle {
				continue
			}
			found[a.SubnetPrefix] = &Notice{Settle: !sure, Reason: Reason{Code: CodeSamePrefix,
				Text: fmt.Sprintf("%s (LID %d, SM LID %d) and %s (LID %d, SM LID %d) are on two fabrics with one subnet prefix 0x%016x: "+
					"programs that compare prefixes take them for one", a.name, a.LID, a.SMLID, b.name, b.LID, b.SMLID, a.SubnetPrefix),
				Next: "give one of the fabrics another prefix: SubnetPrefix= in [SubnetManager], or subnet_prefix in opensm.conf"}}
		}
	}
	for _, prefix := range slices.Sorted(maps.Keys(found)) {
		out = append(out, *found[prefix])
	}
	return out
}

// sameLID reports that two ports have a LID in common, which no subnet allows.
func sameLID(a, b *Port) bool {
	last := func(p *Port) ib.LID { return p.LID + 1<<p.LMC - 1 }
	return a.LID <= last(b) && b.LID <= last(a)
}

// DNSNotices are the units whose settings for systemd-resolved have no effect
// because it does not run.
func DNSNotices(s *Snapshot, set *units.Set) (out []Notice) {
	if s.Host.Resolved != "" {
		return nil
	}
	for _, u := range set.Units {
		op, wanted := wantedDNS(u)
		if _, _, whole := op.inFile(); wanted && !(whole && s.Host.ResolvConf) {
			r := noResolved(s.Host.ResolvConf)
			r.Text = u.Name + ": " + r.Text
			out = append(out, Notice{Unit: u.Path, Reason: r})
		}
	}
	return out
}

// EditsNotices returns the notice of files that changed and wait for a reload; nothing where none
// has, as when a reload came before the watch.
func EditsNotices(files []string) []Notice {
	const most = 5
	if len(files) == 0 {
		return nil
	}
	names := strings.Join(files[:min(len(files), most)], ", ")
	if len(files) > most {
		names += fmt.Sprintf(" and %d more", len(files)-most)
	}
	return []Notice{
		{Reason: Reason{Code: CodeEdits, Text: fmt.Sprintf("edits wait for a reload: %s", names), Next: "ibnetctl plan; ibnetctl reload"}},
	}
}

// PartitionNotices are the units whose Partition= only this host's subnet manager
// knows: another host's, once it is master, has its own.
func PartitionNotices(set *units.Set) (out []Notice) {
	for _, u := range set.Units {
		s := u.SubnetManager.Get()
		if len(s.Partition) == 0 || s.Manage.Or(units.ManageNo) == units.ManageNo {
			continue
		}
		out = append(out, Notice{Unit: u.Path, Reason: Reason{Code: CodeOneHost,
			Text: fmt.Sprintf("%s: Partition= applies only while this host's subnet manager is master; one of another host uses its own partitions",
				s.Partition[0].Pos),
			Next: "give each host that may run the subnet manager the same Partition= lines, or the same PartitionsFile="}})
	}
	return out
}
