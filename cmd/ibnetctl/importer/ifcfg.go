package importer

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// ifcfgIdle are keys of RHEL's ifcfg that a unit needs nothing for, and why.
var ifcfgIdle = map[string]string{
	"NAME": "a display name", "UUID": "the identity of the profile", "NM_CONTROLLED": "which tool reads the file",
	"USERCTL": "who may control the link", "PROXY_METHOD": "for browsers",
	"BROWSER_ONLY": "for browsers", "IPV4_FAILURE_FATAL": "an address that cannot be set is reported and retried",
	"IPV6_FAILURE_FATAL":   "an address that cannot be set is reported and retried",
	"NETWORK":              "it follows from the address",
	"AUTOCONNECT_PRIORITY": "the choice among profiles", "AUTOCONNECT_RETRIES": "the link is configured again whenever it changes",
	"LAST_CONNECT": "the choice among profiles", "TYPE": "implied by the sections of the unit",
	"DEVTIMEOUT": "the unit waits for the link", "STABLE_ID": "for identifiers and addresses that NetworkManager makes",
}

// ifcfgs reads /etc/sysconfig/network-scripts: ifcfg-*, and the files of routes
// and rules beside them.
func (im *importer) ifcfgs(files []*file) {
	byName := map[string]*draft{} // by path of the ifcfg file
	var routes, hosts []*file
	for _, f := range files {
		if path.Base(f.path) == "network" {
			hosts = append(hosts, f)
			im.ipv6Init = im.ipv6Init || slices.ContainsFunc(f.lines, func(it *item) bool {
				value, ok := strings.CutPrefix(it.text, "IPV6INIT=")
				return ok && ifcfgYes(strings.Trim(value, "\"' "))
			})
		}
	}
	for _, f := range files {
		if path.Base(f.path) == "network" {
			continue
		}
		if base := path.Base(f.path); strings.HasPrefix(base, "route") || strings.HasPrefix(base, "rule") {
			routes = append(routes, f)
		} else if d := im.ifcfg(f); d != nil {
			byName[f.path] = d
		}
	}
	for _, f := range hosts {
		ifcfgHost(f, byName)
	}
	for _, f := range routes {
		kind, name, _ := strings.Cut(path.Base(f.path), "-")
		d := byName[path.Join(path.Dir(f.path), "ifcfg-"+name)]
		if d == nil {
			i := slices.IndexFunc(im.drafts, func(d *draft) bool { return d.link == name })
			if i < 0 {
				if isIB(name) {
					f.refuse("no file defines the link " + name + ": import ifcfg-" + name + " with it")
				} else {
					f.refuse(whyNotIB)
				}
				continue
			}
			d = im.drafts[i]
		}
		if off := d.noIPv6; kind == "route6" && off != "" {
			f.refuse("not used: " + off + " sets no IPv6 routes (ifcfg-" + name + ")")
			continue
		}
		d.source(f)
		if strings.HasPrefix(kind, "route") {
			im.routeFile(d, f, kind == "route6")
		} else {
			for _, it := range f.content(hash) {
				if dirs, why := ipRule(words(it.text), kind == "rule6"); why != "" {
					it.left(why)
				} else {
					d.section("RoutingPolicyRule", dirs, it)
				}
			}
		}
	}
}

// ifcfgHost reads /etc/sysconfig/network, which may have the default route.
func ifcfgHost(f *file, profiles map[string]*draft) {
	links := map[string]*draft{}
	for _, n := range slices.Sorted(maps.Keys(profiles)) {
		if d := profiles[n]; d.link != "" {
			links[d.link] = d
		}
	}
	v := assignments(f, hash)
	for _, a := range v.list {
		switch a.key {
		case "GATEWAY":
			d := linkOf(links, a.value)
			if dev := v.get("GATEWAYDEV"); dev != "" {
				d = links[dev]
			}
			if d == nil {
				a.left("the default route of the host; if an InfiniBand link reaches the gateway, write Gateway= into its unit")
				continue
			}
			d.source(f)
			ifcfgGateway(d, v, a, "DEFROUTE", a.value)
		case "GATEWAYDEV":
			a.unneeded("the link of GATEWAY=")
		case "IPV6INIT", "NETWORKING_IPV6", "IPV6_AUTOCONF", "IPV6_DEFAULTGW", "IPV6_DEFAULTDEV":
			a.left("a setting of all links; write it into the units of those that need it")
		case "NETWORKING", "HOSTNAME", "NISDOMAIN", "NOZEROCONF", "VLAN":
			a.unneeded("a setting of the host")
		}
	}
}

// routeFile reads route-NAME: arguments of ip route, or ADDRESS0= and so on.
func (im *importer) routeFile(d *draft, f *file, six bool) {
	if !strings.Contains("\n"+f.text, "\nADDRESS") {
		for _, it := range f.content(hash) {
			dev, dirs, why := ipRoute(words(it.text), six)
			switch {
			case why != "":
				it.left(why)
			case dev != "" && d.link != "" && dev != d.link:
				it.left(fmt.Sprintf("a route over %s in the file of %s", dev, d.link))
			default:
				d.route(dirs, it)
			}
		}
		return
	}
	v := assignments(f, hash)
	for _, a := range v.list {
		n, ok := strings.CutPrefix(a.key, "ADDRESS")
		if !ok {
			continue
		}
		bits, good := prefixOf(v.get("NETMASK" + n))
		if v.get("NETMASK"+n) == "" {
			bits, good = "32", true
		}
		from := append(v.items("NETMASK"+n, "GATEWAY"+n, "METRIC"+n, "OPTIONS"+n), a.item)
		args := []string{a.value + "/" + bits}
		if gw := v.get("GATEWAY" + n); gw != "" {
			args = append(args, "via", gw)
		}
		if m := v.get("METRIC" + n); m != "" {
			args = append(args, "metric", m)
		}
		_, dirs, why := ipRoute(append(args, words(v.get("OPTIONS"+n))...), six)
		if !good {
			why = whyValue
		}
		if why == "" {
			d.route(dirs, from...)
		}
		for _, it := range from {
			if why != "" {
				it.left(why)
			}
		}
	}
}

// ifcfg reads one profile. It returns nil for one that is for no IPoIB link.
func (im *importer) ifcfg(f *file) *draft {
	v := assignments(f, hash)
	id := strings.TrimPrefix(path.Base(f.path), "ifcfg-")
	link := v.get("DEVICE")
	hasHW := v.get("HWADDR") != ""
	if link == "" && (!hasHW || ifcfgYes(v.get("PKEY"))) {
		link = id
	}
	alias := ""
	if base, a, ok := strings.Cut(link, ":"); ok {
		alias, link = a, base
	}
	typ := v.get("TYPE")
	isOne := strings.EqualFold(typ, "InfiniBand") || v.by["CONNECTED_MODE"] != nil || v.by["PKEY"] != nil || typ == "" && isIB(link)
	isBond := strings.EqualFold(typ, "Bond") || ifcfgYes(v.get("BONDING_MASTER")) || v.by["BONDING_OPTS"] != nil
	switch {
	case link == "lo":
		for _, it := range f.lines {
			it.parts, it.why = nil, ""
			it.unneeded("the loopback link")
		}
		return nil
	case !isOne && !isBond:
		f.refuse(whyNotIB)
		return nil
	}
	if why := ifcfgInvalid(v); why != "" {
		f.refuse("not used: NetworkManager does not load the file: " + why)
		return nil
	}
	var c *child
	if ifcfgYes(v.get("PKEY")) {
		k, ok := pkeyC(v.get("PKEY_ID"))
		parent := v.get("PHYSDEV")
		if !ok || !validName(parent) {
			f.refuse("PKEY=yes, but PKEY_ID= (decimal, or hexadecimal with 0x) or PHYSDEV= is missing or invalid")
			return nil
		}
		k |= 0x8000
		if v.get("DEVICE") == "" {
			link = childName(parent, k)
		}
		c = &child{parent, link, k, v.items("PKEY", "PKEY_ID", "PHYSDEV")}
		if why := disagrees(link, k, "PKEY_ID="+v.get("PKEY_ID")); why != "" {
			leftAll(v.items("PKEY_ID"), why)
		}
	}
	if link != "" && !validName(link) {
		f.refuse(fmt.Sprintf("%q is %s", link, whyName))
		return nil
	}
	if alias != "" {
		return im.ifcfgAlias(f, v, link, alias)
	}
	var d *draft
	if link != "" {
		d = im.profile("NetworkManager", link, f, v.items("DEVICE")...)
	} else {
		d = im.byAddress("NetworkManager", v.get("HWADDR"), f, v.items("HWADDR")...)
		if d == nil {
			f.refuse("HWADDR= is not a hardware address, and DEVICE= is missing")
			return nil
		}
	}
	d.child, d.bond, d.refuse = c, isBond, f.refuse
	d.release = ifcfgOff(f)
	if m := cmp.Or(v.get("TEAM_MASTER"), v.get("BRIDGE"), v.get("MASTER_UUID"), v.get("MASTER")); m != "" {
		d.master(m, v.items("MASTER_UUID", "MASTER", "BRIDGE", "TEAM_MASTER")...)
	}
	onboot, _ := ifcfgBool(v.get("ONBOOT"))
	im.nm(d, onboot != "no", v.get("AUTOCONNECT_PRIORITY"), v.get("UUID"))
	if b, ok := ifcfgBool(v.get("NM_CONTROLLED")); ok && b == "no" {
		d.nm.others = true
	}
	d.noIPv6 = ipv6Off(v, im.ipv6Init)
	if !d.nm.others {
		im.ifcfgGlobals(&v)
	}
	im.ifcfgKeys(d, v)
	if d.nm.others {
		im.unknownMetric(d, "dhclient of network-scripts")
	}
	return d
}

// ifcfgOff is how a profile is switched off.
func ifcfgOff(f *file) []string {
	return []string{"switch " + f.path + " off: nmcli connection delete, or rename the file and nmcli connection reload (network-scripts: " +
		"set ONBOOT=no)"}
}

// ifcfgInvalid returns why a file is rejected as a whole, "" if it is not.
func ifcfgInvalid(v variables) string {
	switch b := strings.ToLower(v.get("BOOTPROTO")); b {
	case "", "none", "static", "dhcp", "bootp", "shared", "autoip":
		return ""
	default:
		return "there is no BOOTPROTO=" + b
	}
}

// byAddress adds a draft for a link by its hardware address.
func (im *importer) byAddress(tool, addr string, f *file, from ...*item) *draft {
	d := &draft{tool: tool, prefix: severalPrefix, files: []*file{f}}
	d.hw(addr, from...)
	s := d.sec("Match")
	if len(s.dirs) == 0 {
		return nil
	}
	d.name = "guid-" + strings.TrimPrefix(s.dirs[0].value, "0x")
	if s.dirs[0].key == "MACAddress" {
		d.name = "mac-" + strings.ReplaceAll(s.dirs[0].value, ":", "")
	} else {
		d.set("Match", "Type", "infiniband", from...)
	}
	im.drafts = append(im.drafts, d)
	return d
}

// ifcfgAlias reads ifcfg-ib0:1, one more address of ib0.
func (im *importer) ifcfgAlias(f *file, v variables, link, alias string) *draft {
	if b, ok := ifcfgBool(v.get("ONPARENT")); v.by["ONPARENT"] != nil && (!ok || b == "no") {
		f.refuse("not used: with ONPARENT=" + v.get("ONPARENT") + " the address is not set with " + link)
		return nil
	}
	// It is part of what the other ifcfg files of the folder make, whatever else configures the link.
	i := slices.IndexFunc(im.drafts, func(d *draft) bool {
		return d.link == link && strings.HasPrefix(d.files[0].path, path.Join(path.Dir(f.path), "ifcfg-"))
	})
	d := (*draft)(nil)
	if i >= 0 {
		d = im.drafts[i]
		d.source(f)
	} else {
		d = im.profile("NetworkManager", link, f)
		im.nm(d, true, "", "")
	}
	d.release = append(d.release, ifcfgOff(f)...)
	for _, it := range v.items("ONBOOT", "BOOTPROTO") {
		it.unneeded("it changes nothing: ONPARENT= decides for an alias")
	}
	for _, it := range v.items("ONPARENT") {
		it.unneeded(link + " has one more address")
	}
	bits, ok := prefixOf(cmp.Or(v.get("PREFIX"), v.get("NETMASK")))
	from := v.items("DEVICE", "IPADDR", "PREFIX")
	if mask := v.by["NETMASK"]; v.get("PREFIX") == "" {
		from = append(from, v.items("NETMASK")...)
	} else if mask != nil {
		other, _ := prefixOf(mask.value)
		(&variable{mask.item, mask.key, other}).superseded("PREFIX", v.get("PREFIX"))
	}
	if ok && v.get("IPADDR") != "" {
		d.section("Address", [][2]string{{"Address", v.get("IPADDR") + "/" + bits}, {"Label", link + ":" + alias}}, from...)
	} else {
		leftAll(from, "IPADDR= needs PREFIX= or NETMASK=")
	}
	for _, a := range v.list {
		if why := ifcfgIdle[a.key]; why != "" {
			a.unneeded(why)
		}
	}
	return nil
}

// ifcfgKeys carries the keys over.
func (im *importer) ifcfgKeys(d *draft, v variables) {
	byNumber(v.list, func(a *variable) (int, bool) { return numbered(a.key, "IPADDR") })
	for _, a := range v.list {
		n := strings.TrimRight(a.key, "0123456789")
		switch {
		case ifcfgIdle[a.key] != "":
			a.unneeded(ifcfgIdle[a.key])
		case a.key == "DEVICE", a.key == "MASTER", a.key == "MASTER_UUID", a.key == "BRIDGE", a.key == "TEAM_MASTER":
		case a.key == "BONDING_MASTER", a.key == "SLAVE":
			if ifcfgYes(a.value) {
				a.unneeded("implied by the other lines")
			} else {
				a.left("the other lines make it one nevertheless")
			}
		case a.key == "BONDING_OPTS":
			d.bondOptions(a.value, a.item)
		case a.key == "PKEY", a.key == "PKEY_ID", a.key == "PHYSDEV":
			if _, ok := ifcfgBool(v.get("PKEY")); !ok && v.get("PKEY") != "" {
				a.left(whyBool)
			} else if !ifcfgYes(v.get("PKEY")) {
				a.unneeded("no P_Key interface")
			}
		case a.key == "ONBOOT":
			b, _ := ifcfgBool(a.value)
			im.onboot(d, b, a.item)
		case a.key == "CONNECTED_MODE":
			if b, ok := ifcfgBool(a.value); ok {
				d.set("IPoIB", "Mode", connectedMode(b), a.item)
			} else {
				a.left(whyBool)
			}
		case a.key == "MTU":
			d.mtu(a.value, a.item)
		case a.key == "HWADDR":
			if d.link != "" {
				d.hw(a.value, a.item)
			}
		case a.key == "ETHTOOL_OPTS":
			d.ethtoolOptions(a.value, a.item)
		case a.key == "ZONE":
			a.left(d.zone(a.value))
		case n == "DNS":
			d.add("Network", "DNS", a.value, a.item)
		case a.key == "DOMAIN":
			d.words("Domains", strings.Fields(a.value), a.item)
		case a.key == "IPV4_ROUTE_METRIC", a.key == "IPV6_ROUTE_METRIC", a.key == "METRIC":
			ifcfgMetric(d, v, a)
		case strings.HasPrefix(a.key, "ROUTING_RULE"):
			if dirs, why := ipRule(words(a.value), strings.HasPrefix(a.key, "ROUTING_RULE6")); why != "" {
				a.left(why)
			} else {
				d.section("RoutingPolicyRule", dirs, a.item)
			}
		case a.key == "PEERDNS", a.key == "PEERROUTES", a.key == "IPV6_PEERDNS", a.key == "IPV6_PEERROUTES",
			a.key == "DEFROUTE", a.key == "IPV6_DEFROUTE":
			ifcfgAutomatic(d, v, a)
		case a.key == "ACD_TIMEOUT", a.key == "ARPING_WAIT":
			ifcfgProbes(d, v, a)
		case isIfcfgDHCP(a.key):
			ifcfgDHCPKey(d, v, a)
		case strings.HasPrefix(a.key, "IPV6"):
			ifcfgIPv6(d, v, a)
		default:
			ifcfgIPv4(d, v, a, n)
		}
	}
}
