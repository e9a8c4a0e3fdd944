package importer

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"
)

// wickedIdle are keys of SUSE's ifcfg that a unit needs nothing for, and why.
var wickedIdle = map[string]string{
	"NAME": "a display name", "NETWORK": "it follows from the address", "USERCONTROL": "who may control the link",
	"IPOIB":         "implied by the sections of the unit",
	"INTERFACETYPE": "implied by the sections of the unit",
	"UNIQUE":        "the identity of the profile", "_NM_NAME": "the identity of the profile",
	"NM_CONTROLLED": "which tool reads the file",
	"LINK_REQUIRED": "addresses wait for the carrier unless [Network] ConfigureWithoutCarrier=yes",
}

// wicked reads SUSE's /etc/sysconfig/network: ifcfg-*, ifroute-*, ifrule-* and
// routes (ifcfg(5), ifcfg-ipoib(5), ifrule(5) and routes(5) of wicked).
func (im *importer) wicked(files []*file) {
	links := map[string]*draft{}
	var routes []*file
	for _, f := range files {
		if path.Base(f.path) == "dhcp" {
			im.wickedGlobal(f)
		}
	}
	for _, f := range files {
		base := path.Base(f.path)
		if base == "dhcp" {
			continue
		}
		if strings.HasPrefix(base, "ifsysctl") {
			f.refuse(whySysctl)
			continue
		}
		if strings.HasPrefix(base, "ifroute-") || strings.HasPrefix(base, "ifrule-") || base == "routes" {
			routes = append(routes, f)
			continue
		}
		if d := im.wickedLink(f); d != nil {
			links[d.link] = d
		}
	}
	for _, f := range routes {
		im.wickedRoutes(f, links)
	}
}

func (im *importer) wickedLink(f *file) *draft {
	v := assignments(f, hash)
	link := strings.TrimPrefix(path.Base(f.path), "ifcfg-")
	isOne := isIB(link)
	if x := v.by["IPOIB"]; x != nil {
		isOne = yes(x.value)
	}
	isBond := yes(v.get("BONDING_MASTER"))
	if !isOne && !isBond && v.by["IPOIB_DEVICE"] == nil && v.by["IPOIB_MODE"] == nil {
		f.refuse(whyNotIB)
		return nil
	}
	if !validName(link) {
		f.refuse(fmt.Sprintf("%q is %s", link, whyName))
		return nil
	}
	// The name says which child, and the variables have precedence.
	parent, key, isChild := keyOfName(link)
	from := v.items("IPOIB_DEVICE", "IPOIB_PKEY")
	if ether := v.by["ETHERDEVICE"]; v.get("IPOIB_DEVICE") == "" {
		from = append(from, v.items("ETHERDEVICE")...)
	} else if ether != nil {
		ether.superseded("IPOIB_DEVICE", v.get("IPOIB_DEVICE"))
	}
	if dev := cmp.Or(v.get("IPOIB_DEVICE"), v.get("ETHERDEVICE")); dev != "" {
		parent = dev
	}
	if pk := v.get("IPOIB_PKEY"); pk != "" {
		k, ok := pkeyHex(pk)
		if !ok {
			f.refuse("IPOIB_PKEY= is not a P_Key (hexadecimal, 0001 to ffff, not 8000)")
			return nil
		}
		if why := disagrees(link, k, "IPOIB_PKEY="+pk); why != "" {
			v.by["IPOIB_PKEY"].left(why)
		}
		key, isChild = k, true
	}
	if len(from) > 0 && (!isChild || !validName(parent)) {
		f.refuse("a P_Key interface needs IPOIB_DEVICE= and IPOIB_PKEY=, and one is missing")
		return nil
	}
	d := im.profile("wicked", link, f)
	d.rule, d.bond, d.refuse = "wicked has one file for a link", isBond, f.refuse
	if m := v.get("MASTER_DEVICE"); m != "" {
		d.master(m, v.items("MASTER_DEVICE")...)
	}
	if isChild {
		if len(from) == 0 {
			from = []*item{f.whole}
		}
		d.child = &child{parent, link, key, from}
	}
	for _, a := range im.global.wicked {
		if v.by[a.key] == nil {
			v.extend(a)
		}
	}
	for _, a := range v.list {
		im.wickedKey(d, v, a)
	}
	d.release = []string{fmt.Sprintf("wicked must release %s: STARTMODE=off in %s, or move the file away; then wicked ifdown %s",
		link, f.path, link)}
	return d
}

// wickedSuffix splits IPADDR_1 into IPADDR and _1; the suffix may be any word.
func wickedSuffix(key string) (base, suffix string) {
	for _, b := range []string{"IPADDR", "PREFIXLEN", "NETMASK", "BROADCAST", "LABEL", "SCOPE", "REMOTE_IPADDR"} {
		if rest, ok := strings.CutPrefix(key, b); ok {
			return b, rest
		}
	}
	return key, ""
}

func (im *importer) wickedKey(d *draft, v variables, a *variable) {
	base, suffix := wickedSuffix(a.key)
	switch {
	case base == "IPADDR":
		im.wickedAddress(d, v, a, suffix)
	case base == "BROADCAST" && v.by["IPADDR"+suffix] != nil:
	case (base == "PREFIXLEN" || base == "NETMASK") && v.by["IPADDR"+suffix] != nil:
		// The length of the address itself has precedence, then PREFIXLEN.
		key, bits := "PREFIXLEN"+suffix, v.get("PREFIXLEN"+suffix)
		if _, b, ok := strings.Cut(v.get("IPADDR"+suffix), "/"); ok {
			key, bits = "IPADDR"+suffix, b
		}
		switch own, _ := prefixOf(a.value); {
		case a.key == key || bits == "":
		case own == bits:
			a.unneeded(key + " says it")
		default:
			a.left("not used: " + key + "=" + v.get(key) + " overrides it")
		}
	case base == "LABEL", base == "SCOPE", base == "REMOTE_IPADDR":
		if v.by["IPADDR"+suffix] == nil {
			a.left("it has no address")
		}
	case a.key == "IPOIB_DEVICE", a.key == "IPOIB_PKEY":
	case a.key == "ETHERDEVICE", a.key == "MASTER_DEVICE":
	case a.key == "BONDING_MASTER" && d.bond:
		a.unneeded("implied by the options")
	case a.key == "BONDING_MODULE_OPTS":
		d.bondOptions(a.value, a.item)
	case strings.HasPrefix(a.key, "BONDING_SLAVE") && validName(a.value):
		d.slaves = append(d.slaves, port{a.value, a.item})
	case a.key == "IPOIB_MODE":
		d.mode(a.value, a.item)
	case a.key == "IPOIB_UMCAST":
		// The kernel's umcast, whose sense the key has as well.
		d.set("IPoIB", "IgnoreUserspaceMulticastGroups", map[string]string{"allowed": "yes", "disallowed": "no"}[a.value], a.item)
	case a.key == "MTU":
		if a.value == "" || a.value == "0" {
			a.unneeded("the default")
			return
		}
		d.mtu(a.value, a.item)
	case a.key == "STARTMODE":
		switch a.value {
		case "auto", "hotplug", "nfsroot", "onboot", "on", "boot", "ifplugd":
			a.unneeded("a link with a unit is brought up")
		case "manual", "off":
			d.set("Link", "ActivationPolicy", "manual", a.item)
		default:
			a.left(whyValue)
		}
	case a.key == "BOOTPROTO":
		if a.value == "" {
			a.unneeded("addresses are written one by one")
			return
		}
		wickedDHCP(d, v, a)
	case a.key == "LLADDR":
		a.left(whyHWAddr)
	case a.key == "ETHTOOL_OPTIONS":
		d.ethtoolOptions(a.value, a.item)
	case a.key == "ZONE":
		a.left(d.zone(a.value))
	case a.key == "PRE_UP_SCRIPT" || strings.HasSuffix(a.key, "_SCRIPT"):
		a.left(whyCommand)
	case strings.HasPrefix(a.key, "DHCLIENT"):
		wickedDHCP(d, v, a)
	case a.key == "CHECK_DUPLICATE_IP", a.key == "SEND_GRATUITOUS_ARP":
		wickedProbes(d, v, a)
	case wickedIdle[a.key] != "":
		a.unneeded(wickedIdle[a.key])
	case a.value == "":
		a.unneeded("it is empty")
	}
}

func (im *importer) wickedAddress(d *draft, v variables, a *variable, suffix string) {
	if a.value == "" {
		a.unneeded("it is empty")
		return
	}
	addr := a.value
	from := []*item{a.item}
	if !strings.Contains(addr, "/") {
		p, m := v.by["PREFIXLEN"+suffix], v.by["NETMASK"+suffix]
		bits := ""
		switch {
		case p != nil:
			bits, from = p.value, append(from, p.item)
		case m != nil:
			from = append(from, m.item)
			bits, _ = prefixOf(m.value)
		case strings.Contains(addr, ":"):
			bits = "128"
		default:
			a.left("it has no PREFIXLEN or NETMASK")
			return
		}
		addr += "/" + bits
	}
	if !plainAddress(addr) {
		leftAll(from, whyValue)
		return
	}
	if b := v.by["BROADCAST"+suffix]; b != nil {
		broadcast(b.item, addr, b.value)
	}
	dirs := [][2]string{{"Address", addr}}
	for k, key := range map[string]string{"LABEL": "Label", "SCOPE": "Scope", "REMOTE_IPADDR": "Peer"} {
		if x := v.by[k+suffix]; x != nil && x.value != "" {
			val := x.value
			if k == "LABEL" {
				val = d.link + ":" + val
			}
			dirs = append(dirs, [2]string{key, val})
			from = append(from, x.item)
		}
	}
	if len(dirs) == 1 {
		d.address(addr, from...)
		return
	}
	slices.SortFunc(dirs[1:], func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	d.section("Address", dirs, from...)
}

func plainAddress(s string) bool {
	_, err := prefix(s)
	return err == nil
}

// linkOf is the one link of which a gateway is in a network, nil if there is
// none or more than one.
func linkOf(links map[string]*draft, gateway string) *draft {
	gw, err := netip.ParseAddr(gateway)
	if err != nil {
		return nil
	}
	var out []*draft
	for _, n := range slices.Sorted(maps.Keys(links)) {
		found := false
		links[n].each(func(_ *section, x *directive) {
			p, err := netip.ParsePrefix(x.value)
			found = found || x.key == "Address" && err == nil && p.Contains(gw)
		})
		if found {
			out = append(out, links[n])
		}
	}
	if len(out) != 1 {
		return nil
	}
	return out[0]
}

// wickedRoutes reads lines of DESTINATION GATEWAY NETMASK INTERFACE [TYPE|OPTION
// VALUE...], where - says nothing.
func (im *importer) wickedRoutes(f *file, links map[string]*draft) {
	kind, own, isOwn := strings.Cut(path.Base(f.path), "-")
	if isOwn && links[own] == nil {
		f.refuse(map[bool]string{true: "no file defines the link " + own + ": import ifcfg-" + own + " with it", false: whyNotIB}[isIB(own)])
		return
	}
	for _, it := range f.content(hash) {
		w := strings.Fields(it.text)
		if kind == "ifrule" {
			links[own].source(f)
			six := w[0] == "ipv6"
			if six || w[0] == "ipv4" {
				w = w[1:]
			}
			if dirs, why := ipRule(w, six); why != "" {
				it.left(why)
			} else {
				links[own].section("RoutingPolicyRule", dirs, it)
			}
			continue
		}
		col := func(i int) string {
			if i < len(w) && w[i] != "-" {
				return w[i]
			}
			return ""
		}
		link := col(3)
		if link == "" && isOwn {
			link = own
		}
		d := links[link]
		if link == "" {
			d = linkOf(links, col(1))
		}
		if d == nil {
			it.left("a route over a link that is not an InfiniBand link of these files")
			continue
		}
		dst := col(0)
		if mask := col(2); mask != "" {
			bits, ok := prefixOf(mask)
			if !ok {
				it.left(whyValue)
				continue
			}
			dst += "/" + bits
		}
		args := []string{dst}
		if gw := col(1); gw != "" {
			args = append(args, "via", gw)
		}
		if len(w) > 4 {
			rest := w[4:]
			if slices.Contains(routeTypes, rest[0]) {
				args = append([]string{rest[0]}, args...)
				rest = rest[1:]
			}
			args = append(args, rest...)
		}
		_, dirs, why := ipRoute(args, false)
		if why != "" {
			it.left(why)
			continue
		}
		d.source(f)
		d.route(dirs, it)
	}
}
