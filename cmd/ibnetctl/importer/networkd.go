package importer

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"ibnetworkd/units"
)

// netdev is a .netdev file of a P_Key interface.
type netdev struct {
	f       *file
	name    string
	entries []*entry
	used    bool
}

// networkd reads .network files, which a unit has most keys of, .netdev files of
// kind ipoib, and the drop-ins of both.
func (im *importer) networkd(files []*file) {
	by := map[string]*networkdFile{}
	of := func(base string) *networkdFile {
		if by[base] == nil {
			by[base] = &networkdFile{}
		}
		return by[base]
	}
	files = slices.Clone(files)
	slices.SortStableFunc(files, func(a, b *file) int { return cmp.Compare(unitDir(a.path), unitDir(b.path)) })
	for _, f := range files {
		dir := path.Base(path.Dir(f.path))
		if name, ok := strings.CutSuffix(dir, ".d"); ok && strings.HasSuffix(f.path, ".conf") {
			s := of(name)
			if i := slices.IndexFunc(s.drops, func(x *file) bool { return path.Base(x.path) == path.Base(f.path) }); i >= 0 {
				f.refuse("not used: " + s.drops[i].path + " has the same name and overrides it")
				continue
			}
			s.drops = append(s.drops, f)
			continue
		}
		s := of(path.Base(f.path))
		if s.main != nil {
			f.refuse("not used: " + s.main.path + " has the same name and overrides it")
			continue
		}
		s.main = f
	}
	devs := map[string]*netdev{}
	names := slices.Sorted(maps.Keys(by))
	for _, name := range names {
		if !strings.HasSuffix(name, ".netdev") {
			continue
		}
		f, all, _ := by[name].read(name)
		if f == nil {
			continue
		}
		dev := &netdev{f: f, entries: all}
		kind := ""
		for _, e := range all {
			switch e.section + "." + e.key {
			case "NetDev.Name":
				dev.name = e.value
			case "NetDev.Kind":
				kind = e.value
			}
		}
		if kind == "vrf" {
			im.netdevVRF(dev)
			continue
		}
		if kind != "ipoib" {
			otherLink(f, "not a P_Key interface (Kind="+kind+")"+onEthernet(kind))
			continue
		}
		devs[dev.name] = dev
	}
	for i, name := range names {
		if strings.HasSuffix(name, ".netdev") {
			continue
		}
		if f, all, fs := by[name].read(name); f != nil {
			im.network(f, fs, all, devs, i)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(devs)) {
		if d := devs[n]; !d.used {
			d.f.refuse("none of the given .network files has IPoIB=" + n + ", so its parent link is unknown")
		} else {
			im.note("remove %s, then networkctl reload", d.f.path)
		}
	}
}

// networkdFile is a file of systemd-networkd and its drop-ins.
type networkdFile struct {
	main  *file
	drops []*file
}

// read returns the entries of the file and of its drop-ins, no file if nothing is
// to be converted.
func (s *networkdFile) read(name string) (main *file, all []*entry, fs []*file) {
	if s.main == nil {
		for _, f := range s.drops {
			f.refuse("a drop-in of " + name + ", which was not given")
		}
		return nil, nil, nil
	}
	slices.SortFunc(s.drops, func(a, b *file) int { return strings.Compare(path.Base(a.path), path.Base(b.path)) })
	fs = append([]*file{s.main}, s.drops...)
	n, why := 0, ""
	for _, f := range fs {
		items := f.logical(hashOrSem)
		if why = broken(items); why != "" {
			break
		}
		es := sections(items)
		for _, e := range es {
			e.instance += n
		}
		n += 1 << 20
		all = append(all, es...)
	}
	if why != "" {
		for _, f := range fs {
			f.refuse(why)
		}
		return nil, nil, nil
	}
	return s.main, all, fs
}

// networkdDirs are the directories of systemd-networkd (systemd.network(5)) in the
// order in which they hide each other.
var networkdDirs = []string{"/etc/systemd/network/", "/run/systemd/network/", "/usr/local/lib/systemd/network/",
	"/usr/lib/systemd/network/"}

// unitDir is the place of a directory in the order in which they hide each other.
func unitDir(p string) int {
	for i, d := range []string{"/etc/", "/run/", "/usr/local/", "/usr/", "/lib/"} {
		if strings.HasPrefix(p, d) {
			return i
		}
	}
	return 0
}

// otherLink reports a file of another kind of link. Those that a package brings
// are on every host, and need nothing.
func otherLink(f *file, why string) {
	if strings.HasPrefix(f.path, "/usr/lib/") || strings.HasPrefix(f.path, "/lib/") {
		f.whole.unneeded(why)
		f.cover(f.lines)
		return
	}
	f.refuse(why)
}

// broken returns why no unit may be made of a file because a line of it that
// decides which links it applies to is not understood; "" if none is.
func broken(items []*item) string {
	section := ""
	for _, it := range items {
		name, header := strings.CutPrefix(it.text, "[")
		if header {
			var ok bool
			if section, ok = strings.CutSuffix(name, "]"); !ok {
				return fmt.Sprintf("line %d: a section header that does not end: systemd-networkd ignores the file", it.line)
			}
		}
		_, value, assigns := strings.Cut(it.text, "=")
		switch {
		case header && section != "Match" && strings.EqualFold(strings.TrimSpace(section), "Match"):
			return fmt.Sprintf("%sline %d: [%s] is not [Match]", whyNoUnit, it.line, section)
		case header:
		case section == "":
			return fmt.Sprintf("%sline %d: a line before the first section", whyNoUnit, it.line)
		case section != "Match":
		case !assigns:
			return fmt.Sprintf("%sline %d: not a key=value line in [Match]", whyNoUnit, it.line)
		case strings.TrimSpace(value) != "":
			if _, ok := clean(value, nil); !ok {
				return fmt.Sprintf("%sline %d: invalid value in [Match]", whyNoUnit, it.line)
			}
		}
	}
	return ""
}

// repeats are keys of [Network] that may be given several times.
var repeats = map[string]bool{"Address": true, "Gateway": true, "DNS": true, "Domains": true, "BindCarrier": true,
	"DNSSECNegativeTrustAnchors": true}

// networkdLinks are the names of the links that a file is for, whether they are IPoIB
// links, and the VRF that it names.
func networkdLinks(all []*entry, devs map[string]*netdev) (names []string, isOne bool, in string) {
	for _, e := range all {
		v := strings.Fields(e.value)
		switch e.section + "." + e.key {
		case "Match.Name":
			names = append(names, v...)
			isOne = isOne || slices.ContainsFunc(v, func(n string) bool { return isIB(n) || devs[n] != nil })
		case "Match.Type":
			isOne = isOne || slices.Contains(v, "infiniband")
		case "Match.Kind":
			isOne = isOne || slices.Contains(v, "ipoib")
		case "Match.Driver":
			isOne = isOne || strings.Contains(e.value, "ipoib")
		case "Match.MACAddress", "Match.PermanentMACAddress":
			isOne = isOne || slices.ContainsFunc(v, func(s string) bool { return len(s) == 59 })
		case "Network.IPoIB":
			isOne = true
		case "Network.VRF":
			in = e.value // the last one counts
		}
		isOne = isOne || e.section == "IPoIB"
	}
	return names, isOne, in
}

// dhcpLists are keys of [DHCPv4] and [DHCPv6] that may be given several times.
var dhcpLists = map[string]bool{"RequestOptions": true, "AllowList": true, "DenyList": true}

func (im *importer) network(f *file, fs []*file, all []*entry, devs map[string]*netdev, order int) {
	names, isOne, in := networkdLinks(all, devs)
	if !isOne {
		im.outside("systemd-networkd", in, f.path)
		for _, x := range fs {
			otherLink(x, whyNotIB)
		}
		return
	}
	d := &draft{tool: "systemd-networkd", order: order, rule: "systemd-networkd uses the first file by name for a link"}
	for _, x := range fs {
		d.source(x)
	}
	if len(names) == 1 && validName(names[0]) {
		d.link = names[0]
	}
	d.inOrder = unitName(strings.TrimSuffix(path.Base(f.path), path.Ext(f.path)))
	type id struct {
		name string
		n    int
	}
	more := map[id]*section{}
	dhcp4, dhcp6, accept := clients(all)
	for _, e := range all {
		var s *section
		switch e.section {
		case "Match", "Link", "IPoIB", "Network":
			s = d.sec(e.section)
			if e.key == "IPv6Token" { // the older name of Token=
				if !accept {
					e.unneeded(whyAutomatic)
					continue
				}
				e.section, e.key = "IPv6AcceptRA", "Token"
				s = d.sec(e.section)
			}
		case "Address", "Route", "RoutingPolicyRule", "Neighbor", "NextHop":
			k := id{e.section, e.instance}
			if more[k] == nil {
				more[k] = d.more(e.section)
			}
			s = more[k]
		case "IPv6AcceptRA":
			switch {
			case !dhcp6 && !accept:
				e.unneeded("for DHCP and router advertisements")
				continue
			case !adverts[e.key]:
				e.left("the kernel takes router advertisements, by its own rules")
				continue
			}
			s = d.sec(e.section)
		case "DHCP", "DHCPv4", "DHCPv6":
			if s = networkdClient(d, e, all, dhcp4, dhcp6 || accept); s == nil {
				continue
			}
		default:
			e.left(whyNoSection(e.section))
			continue
		}
		if _, set := s.get("Token"); set && e.key == "Token" && e.value != "" {
			e.left("the kernel has one token for a link: write a second address as Address=")
			continue
		}
		list := e.section == "Match" || e.section == "Network" && repeats[e.key] || dhcpLists[e.key] || e.key == "MultiPathRoute"
		switch {
		case e.section == "Network" && e.key == "DHCP":
			networkdDHCP(d, e, all)
		case e.section == "Network" && e.key == "IPoIB":
			dev := devs[e.value]
			if dev == nil {
				e.left("no .netdev file of kind ipoib with this name was given")
				continue
			}
			im.netdev(d, e, dev)
		case e.value == "":
			s.reset(e.key, e.item)
		case list:
			s.add(e.key, e.value, e.item)
		default:
			s.set(e.key, e.value, e.item)
		}
	}
	d.accepts = accept
	if dhcp6 || accept {
		im.networkdGlobals(d)
	}
	im.drafts = append(im.drafts, d)
	d.release = []string{fmt.Sprintf("remove %s, then networkctl reload", f.path)}
}

// whyNoSection returns why a section of a .network file is not carried over. systemd-networkd
// ignores sections that only units have, and those that it has in .netdev files only.
func whyNoSection(section string) string {
	if !slices.ContainsFunc(units.Schema(), func(s units.SectionSpec) bool { return s.Name == section }) {
		return "a unit has no section [" + section + "]"
	}
	return fmt.Sprintf("systemd-networkd ignores [%[1]s] in a .network file; if it is meant, write [%[1]s] of ibnetwork(5) into the unit",
		section)
}

// adverts are the keys of [IPv6AcceptRA] that a unit has too.
var adverts = map[string]bool{"UseDNS": true, "UseDomains": true, "UseGateway": true, "RouteMetric": true, "UseMTU": true,
	"UseAutonomousPrefix": true, "Token": true, "DHCPv6Client": true}

// clients reports whether a file asks for DHCP of each family, and for router
// advertisements, which systemd-networkd accepts by itself unless it forwards IPv6 or the
// link has no IPv6 link-local address (link_ndisc_enabled).
func clients(all []*entry) (dhcp4, dhcp6, accept bool) {
	said, forwards, noLL := false, false, false
	defer func() { accept = !noLL && (accept || !said && !forwards) }()
	for _, e := range all {
		if e.section != "Network" {
			continue
		}
		b, ok := boolean(e.value)
		switch e.key {
		case "DHCP":
			m := e.value
			if ok {
				m = b
			}
			dhcp4 = m != "no" && m != "none" && m != "ipv6" && m != "v6"
			dhcp6 = m != "no" && m != "none" && m != "ipv4" && m != "v4"
		case "IPv6AcceptRA":
			said, accept = ok, ok && b == "yes"
		case "IPForward", "IPv6Forwarding":
			forwards = b == "yes" || e.value == "ipv6"
		case "LinkLocalAddressing":
			noLL = b == "no" || e.value == "ipv4"
		case "Bond":
			noLL = noLL || e.value != ""
		}
	}
	return dhcp4, dhcp6, accept
}

// reset carries out an empty assignment.
func (s *section) reset(key string, it *item) {
	s.dirs = slices.DeleteFunc(s.dirs, func(x *directive) bool {
		if x.key != key {
			return false
		}
		for _, old := range x.from {
			old.unneeded(it.at() + " resets it")
		}
		return true
	})
	for k, x := range s.keys {
		if x.key == key {
			delete(s.keys, k)
		}
	}
	it.unneeded("it resets the list")
}

// netdev carries a .netdev file over as a child of the link of d.
func (im *importer) netdev(d *draft, parent *entry, dev *netdev) {
	if dev.used {
		parent.left("another link has it already")
		return
	}
	dev.used = true
	d.source(dev.f)
	s := d.more("Partition")
	for _, e := range dev.entries {
		switch e.section + "." + e.key {
		case "NetDev.Name":
			s.set("Name", e.value, e.item, parent.item)
		case "NetDev.Kind":
			e.unneeded("implied by the sections of the unit")
		case "NetDev.Description":
			e.unneeded("a display name")
		case "NetDev.MTUBytes":
			s.set("MTUBytes", e.value, e.item)
		case "IPoIB.PartitionKey":
			// systemd reads it with base 0.
			if k, ok := pkeyC(e.value); ok {
				s.set("PartitionKey", pkeyText(k|0x8000), e.item)
				if why := disagrees(dev.name, k, "PartitionKey="+e.value); why != "" {
					e.left(why)
				}
			} else {
				e.left(whyValue)
			}
		case "IPoIB.Mode":
			s.set("Mode", e.value, e.item)
		case "IPoIB.IgnoreUserspaceMulticastGroups", "IPoIB.IgnoreUserspaceMulticastGroup":
			s.set("IgnoreUserspaceMulticastGroups", e.value, e.item)
		default:
			if e.section == "Match" {
				e.left("a .netdev file's [Match] is about the host; write it into [Match] of the unit")
			}
		}
	}
}
