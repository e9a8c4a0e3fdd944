package importer

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// stanza is one iface stanza of interfaces(5).
type stanza struct {
	head           *item
	iface          string
	family, method string
	options        []*variable
}

// interfaces reads /etc/network/interfaces and the files that it sources: all
// stanzas of a link apply.
func (im *importer) interfaces(files []*file) {
	var stanzas []*stanza
	autos := map[string][]*item{}
	for _, f := range files {
		if why := skipped(f, files); why != "" {
			f.refuse(why)
			continue
		}
		stanzas = append(stanzas, im.readInterfaces(f, autos, files)...)
	}
	patterns(autos, stanzas)
	drafts := map[string]*draft{}
	sh := &shell{im: im, known: ipoibNames(stanzas), hops: map[string][]string{}}
	draftOf := func(name string, f *file) *draft {
		d := drafts[name]
		if d == nil {
			d = im.profile("ifupdown", name, f)
			drafts[name] = d
		}
		d.source(f)
		return d
	}
	up := map[string]bool{}
	made := sh.known
	ports, bonds := portsOf(stanzas, made)
	auto := func(n string) bool { return len(autos[n]) > 0 || bonds[ports[n]] && len(autos[ports[n]]) > 0 }
	for _, s := range stanzas {
		link, alias, _ := strings.Cut(s.iface, ":")
		sh.iface = s.iface
		sh.link = func(name string) *draft { return draftOf(name, s.head.file) }
		if s.get("vrf-table") != "" && alias == "" {
			im.ifaceVRF(s, autos[s.iface])
			continue
		}
		if !isIB(link) && !made[link] && !bonds[link] {
			im.outside("ifupdown", s.get("vrf"), link)
			im.otherIface(s, sh)
			continue
		}
		if !validName(link) {
			s.refuse(fmt.Sprintf("%q is %s", s.iface, whyName))
			continue
		}
		if of := ports[link]; of != "" && !bonds[of] {
			s.refuse(fmt.Sprintf(whyPort, link, of))
			continue
		}
		d := draftOf(link, s.head.file)
		d.bond = bonds[link]
		d.refuse = func(why string) {
			for _, x := range stanzas {
				if x.iface == link {
					x.refuse(why)
				}
			}
			for _, it := range autos[link] {
				it.unneeded(whyOtherAuto)
			}
		}
		d.stanza = d.stanza || alias == ""
		if !auto(s.iface) && alias == "" && !up["auto "+link] {
			d.set("Link", "ActivationPolicy", "manual", s.head)
		} else {
			up["auto "+link] = true
			for _, it := range autos[s.iface] {
				it.unneeded("a link with a unit is brought up")
			}
		}
		if parent, key, ok := keyOfName(link); ok && !made[link] && alias == "" && validName(parent) && isIB(parent) {
			// ifupdown creates it, as it does a VLAN.
			im.children = append(im.children, &child{parent, link, key, []*item{s.head}})
		}
		im.iface(d, s, sh, alias)
		d.release = append(d.release, fmt.Sprintf("remove %s from %s", s.iface, s.head.file.path))
	}
	for _, n := range slices.Sorted(maps.Keys(drafts)) {
		im.unknownMetric(drafts[n], "the client that ifupdown runs")
		// ifupdown brings up nothing without a stanza.
		if !up["auto "+n] && !auto(n) {
			if _, said := drafts[n].sec("Link").get("ActivationPolicy"); !said {
				drafts[n].set("Link", "ActivationPolicy", "manual")
			}
		}
	}
	for _, its := range autos {
		for _, it := range its {
			if it.idle == "" {
				it.unneeded(whyOtherAuto)
			}
		}
	}
}

// patterns gives the stanzas the lines "auto /PATTERN" that are for them. Other
// forms of a line that select a link by something else than its name are reported.
func patterns(autos map[string][]*item, stanzas []*stanza) {
	for _, name := range slices.Sorted(maps.Keys(autos)) {
		pattern, is := strings.CutPrefix(name, "/")
		switch {
		case strings.ContainsAny(pattern, "/="):
			leftAll(autos[name], "not the name of a link alone; write auto and the stanza with the link's name")
		case is:
			named := map[string]bool{}
			for _, s := range stanzas {
				if ok, err := path.Match(pattern, s.iface); ok && err == nil && !named[s.iface] {
					named[s.iface] = true
					autos[s.iface] = append(autos[s.iface], autos[name]...)
				}
			}
		}
	}
}

// portsOf are the ports of bonds and bridges, with what each is a port of, and the
// bonds with a stanza that have an IPoIB port.
func portsOf(stanzas []*stanza, made map[string]bool) (ports map[string]string, bonds map[string]bool) {
	ports, bonds = map[string]string{}, map[string]bool{}
	given := map[string]bool{}
	for _, s := range stanzas {
		given[s.iface] = true
	}
	port := func(link, of string, bond bool) {
		ports[link] = of
		bonds[of] = bonds[of] || bond && given[of] && (isIB(link) || made[link])
	}
	for _, s := range stanzas {
		for _, o := range s.options {
			switch key := strings.ReplaceAll(o.key, "_", "-"); key {
			case "bond-slaves", "slaves", "bridge-ports":
				for _, link := range strings.Fields(o.value) {
					port(link, s.iface, key != "bridge-ports")
				}
			case "bond-master", "master", "bridge-master":
				port(s.iface, o.value, key != "bridge-master")
			}
		}
	}
	return ports, bonds
}

// ifaceBond carries over an option about a bond, in its stanza or in that of a port, or
// the VRF of a link.
func ifaceBond(d *draft, o *variable) {
	switch key := strings.ReplaceAll(o.key, "_", "-"); key {
	case "bond-master", "master", "vrf":
		d.master(o.value, o.item)
	case "bond-slaves", "slaves":
		for _, link := range strings.Fields(o.value) {
			if it := o.part(key + " " + link); link == "none" {
				it.unneeded("the ports name the bond")
			} else {
				d.slaves = append(d.slaves, port{link, it})
			}
		}
	case "bond-primary":
		list := strings.Fields(o.value)
		for i, link := range list {
			if it := o.part(key + " " + link); i == 0 {
				d.bondOption("primary", link, it)
			} else {
				it.left("a bond has one primary link, and " + list[0] + " comes first")
			}
		}
	default:
		d.bondOption(strings.TrimPrefix(key, "bond-"), o.value, o.item)
	}
}

// skipped returns why ifupdown does not read a file of a source-directory: of those
// it reads the ones whose names are letters, digits, "_" and "-" (interfaces(5)).
func skipped(f *file, files []*file) string {
	if !strings.ContainsFunc(path.Base(f.path), func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && r != '_' && r != '-'
	}) {
		return ""
	}
	why := ""
	for _, x := range files {
		for _, it := range x.lines {
			w := strings.Fields(it.text)
			if len(w) != 2 || w[0] != "source" && w[0] != "source-directory" {
				continue
			}
			pattern, of := w[1], f.path
			if !path.IsAbs(pattern) {
				pattern = path.Join(path.Dir(x.path), pattern)
			}
			if w[0] == "source-directory" {
				of = path.Dir(of)
			}
			if ok, err := path.Match(path.Clean(pattern), of); err != nil || !ok {
				continue
			}
			if w[0] == "source" {
				return ""
			}
			why = "not read: source-directory of " + it.at() + " skips a name with other characters than letters, digits, \"_\" and \"-\""
		}
	}
	return why
}

// ipoibNames are the links that are IPoIB whatever their names: the stanzas set a
// mode of theirs, or make them.
func ipoibNames(stanzas []*stanza) map[string]bool {
	out := map[string]bool{}
	for _, s := range stanzas {
		for _, o := range s.options {
			line := strings.ReplaceAll(o.value, "$IFACE", s.iface)
			if o.key == "ipoib-mode" || isUp(o.key) &&
				(strings.Contains(line, "/net/"+s.iface+"/mode") || strings.Contains(line, "/net/"+s.iface+"/create_child")) {
				out[s.iface] = true
			}
			if w := strings.Fields(line); isUp(o.key) && slices.Contains(w, "ipoib") {
				if i := slices.Index(w, "name"); i >= 0 && i+1 < len(w) {
					out[w[i+1]] = true
				}
			}
		}
	}
	return out
}

// refuse reports a stanza as a whole.
func (s *stanza) refuse(why string) {
	s.head.left(why)
	for _, o := range s.options {
		o.with = s.head
	}
}

func (s *stanza) get(key string) string {
	for _, o := range s.options {
		if o.key == key {
			return o.value
		}
	}
	return ""
}

// readInterfaces splits a file into stanzas.
func (im *importer) readInterfaces(f *file, autos map[string][]*item, files []*file) []*stanza {
	var out []*stanza
	var open *stanza
	for _, it := range f.logical(hash) {
		w := strings.Fields(it.text)
		key := w[0]
		rest := strings.TrimSpace(it.text[len(key):])
		switch {
		case key == "auto" || strings.HasPrefix(key, "allow-"):
			open = nil
			for _, n := range w[1:] {
				p := it
				if len(w) > 2 {
					p = it.part(key + " " + n)
				}
				autos[n] = append(autos[n], p)
			}
		case key == "iface":
			args := append(slices.Clone(w[1:]), "", "", "")
			open = &stanza{head: it, iface: args[0], family: args[1], method: args[2]}
			// The stanza says more than a line of a unit does.
			it.unneeded("implied by [Match]")
			if len(w) > 4 {
				it.left("options after the method, which are not read")
			} else if f := open.family; f != "" && f != "inet" && f != "inet6" {
				it.left("unsupported address family")
			}
			out = append(out, open)
		case key == "source" || key == "source-directory":
			open = nil
			pattern := rest
			if !path.IsAbs(pattern) {
				pattern = path.Join(path.Dir(f.path), pattern)
			}
			if key == "source-directory" {
				pattern += "/*"
			}
			if slices.ContainsFunc(files, func(x *file) bool { ok, err := path.Match(pattern, x.path); return ok && err == nil }) {
				it.unneeded("the files are read")
			} else {
				it.left("no file of that name was given; if one exists, name it too")
			}
		case key == "mapping" || key == "template" || key == "rename" || key == "no-auto-down" || key == "no-scripts":
			open = nil
			it.left(whyUnknown)
		case open == nil:
			it.left("not in an iface stanza")
		default:
			open.options = append(open.options, &variable{it, key, rest})
		}
	}
	return out
}

// otherIface carries over what the commands of another link's stanza do to
// InfiniBand links.
func (im *importer) otherIface(s *stanza, sh *shell) {
	if s.iface == "lo" && len(s.options) == 0 {
		s.head.unneeded(whyNotIB)
		return
	}
	s.head.left(whyNotIB)
	for _, o := range s.options {
		if isUp(o.key) && mentionsIB(o.value) {
			sh.run(o.item, o.value)
		} else {
			o.with = s.head
		}
	}
}

// isUp reports the options whose commands run when a link is brought up.
func isUp(key string) bool { return key == "up" || key == "pre-up" || key == "post-up" }

// mentionsIB reports whether a command names something of InfiniBand.
func mentionsIB(s string) bool {
	s = strings.ToLower(s)
	for _, w := range []string{"/net/ib", " ib", "_ib", "infiniband", "create_child", "mlx", "ipoib", "hfi1"} {
		if strings.Contains(" "+s, w) {
			return true
		}
	}
	return false
}

// ifaceMethod carries over the method of a stanza; it is false where the stanza is refused.
func ifaceMethod(d *draft, s *stanza) bool {
	switch s.method {
	case "static", "manual", "loopback", "":
	case "auto":
		d.set("Network", "IPv6AcceptRA", "yes", s.head)
	case "dhcp", "bootp":
		// Not left to another program: the clients that ifupdown runs do not know IPoIB.
		family := "ipv4"
		if s.family == "inet6" {
			family = "ipv6"
		}
		d.dhcp(family, s.head)
	default:
		if s.family == "inet" && s.method == "ipv4ll" {
			d.linkLocal4(s.head)
		} else if s.family == "inet" || s.family == "inet6" {
			s.refuse("no method that ibnetworkd has: " + s.method)
			return false
		}
	}
	return true
}

// iface carries over one stanza of an InfiniBand link.
func (im *importer) iface(d *draft, s *stanza, sh *shell, alias string) {
	if !ifaceMethod(d, s) {
		return
	}
	if s.family == "inet6" && s.method == "static" && s.get("autoconf") == "" {
		s.head.left(whyAutoconf)
	}
	// The order of options is free.
	var addresses []*variable
	by, gateways := map[string]*variable{}, 0
	for _, o := range s.options {
		by[o.key] = o
	}
	mask, metric, label, peer, scope, brd := by["netmask"], by["metric"], by["label"], by["pointopoint"], by["scope"], by["broadcast"]
	// As in ifupdown, pre-up runs before the options take effect and up after.
	run := func(which func(string) bool) {
		for _, o := range s.options {
			if which(o.key) {
				sh.run(o.item, o.value)
			}
		}
	}
	run(func(key string) bool { return key == "pre-up" })
	for _, o := range s.options {
		switch key := o.key; {
		case key == "address":
			addresses = append(addresses, o)
		case key == "netmask" || key == "metric" || key == "label" || key == "pointopoint" || key == "scope" || key == "broadcast":
		case key == "network":
			o.unneeded("it follows from the address")
		case key == "gateway":
			if !unspecified(o.value) {
				gateways++
			}
			d.gatewayMetric(o.value, metric, o.item)
		case key == "mtu":
			d.mtu(o.value, o.item)
		case key == "ipoib-mode":
			d.mode(o.value, o.item)
		case key == "dns-nameservers" || key == "dns-nameserver":
			d.words("DNS", strings.Fields(o.value), o.item)
		case key == "dns-search" || key == "dns-domain":
			d.words("Domains", strings.Fields(o.value), o.item)
		case key == "accept_ra":
			d.set("Network", "IPv6AcceptRA", map[string]string{"0": "no", "1": "yes", "2": "yes"}[o.value], o.item)
		case key == "autoconf":
			ifaceAutoconf(o)
		case key == "privext":
			d.set("Network", "IPv6PrivacyExtensions", map[string]string{"0": "no", "1": "prefer-public", "2": "yes"}[o.value], o.item)
		case key == "hwaddress":
			o.left(whyHWAddr)
		case strings.HasPrefix(key, "bond-") || strings.HasPrefix(key, "bond_") || key == "slaves" || key == "master" || key == "vrf":
			ifaceBond(d, o)
		case strings.HasPrefix(key, "hardware-"):
			ifaceEthtool(d, o)
		case s.method == "dhcp" && s.family != "inet6" && dhcpOptions[key]:
			ifaceDHCP(d, o)
		case key == "down" || key == "pre-down" || key == "post-down":
			o.left("a command for when the link goes down; ibnetworkd removes what it set by itself")
		}
	}
	for i, a := range addresses {
		if i > 0 && s.family != "" && alias == "" {
			a.left("not used: ifupdown sets the first address of a stanza (ifupdown-ng and ifupdown2 set all); if " + d.link +
				" has it, write Address=")
			continue
		}
		addr := im.ifaceAddress(d, s, a, mask, label, peer, scope, alias)
		if brd != nil {
			broadcast(brd.item, addr, brd.value)
		}
	}
	run(func(key string) bool { return isUp(key) && key != "pre-up" })
	for _, x := range []*variable{mask, brd} {
		if x != nil && len(addresses) == 0 {
			x.left("it has no address")
		}
	}
	switch {
	case metric == nil || gateways > 0:
	case s.method == "dhcp" && s.family != "inet6":
		ifaceDHCP(d, metric)
	default:
		metric.left("it has no gateway")
	}
}

const whyOtherAuto = "it configures another link"

const whyAutoconf = "ifupdown switches the addresses of router advertisements off; write net/ipv6/conf/LINK/autoconf=0 into " +
	"/etc/sysctl.d, or IPv6AcceptRA=no into the unit, which switches their routes off too"

func ifaceAutoconf(o *variable) {
	switch o.value {
	case "1":
		o.unneeded("the kernel's default")
	case "0":
		o.left(whyAutoconf)
	default:
		o.left(whyValue)
	}
}

// ifaceAddress adds an address, and returns it with its length.
func (im *importer) ifaceAddress(d *draft, s *stanza, a, mask, label, peer, scope *variable, alias string) string {
	addr, from := a.value, []*item{a.item}
	switch {
	case mask != nil: // it has precedence over a length in the address
		if host, bits, ok := strings.Cut(addr, "/"); ok {
			if b, _ := prefixOf(mask.value); b != bits {
				from = []*item{a.part("address " + host)}
				a.part("/" + bits).left("not used: netmask " + mask.value + " overrides it")
			}
			addr = host
		}
		bits, ok := prefixOf(mask.value)
		if !ok {
			mask.left(whyValue)
			a.left(whyValue)
			return ""
		}
		addr, from = addr+"/"+bits, append(from, mask.item)
	case strings.Contains(addr, "/"):
	case strings.Contains(addr, ":"):
		addr += "/64"
	default:
		a.left("it has no netmask")
		return ""
	}
	dirs := [][2]string{{"Address", addr}}
	if label != nil {
		dirs, from = append(dirs, [2]string{"Label", label.value}), append(from, label.item)
	} else if alias != "" {
		dirs, from = append(dirs, [2]string{"Label", s.iface}), append(from, s.head)
	}
	if peer != nil {
		dirs, from = append(dirs, [2]string{"Peer", peer.value}), append(from, peer.item)
	}
	if scope != nil {
		dirs, from = append(dirs, [2]string{"Scope", scope.value}), append(from, scope.item)
	}
	if len(dirs) == 1 {
		d.address(addr, from...)
	} else {
		d.section("Address", dirs, from...)
	}
	return addr
}
