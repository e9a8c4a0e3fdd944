package importer

import (
	"cmp"
	"fmt"
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
	"DEVTIMEOUT": "the unit waits for the link", "STABLE_ID": "for addresses that ibnetworkd does not set",
}

// ifcfgs reads /etc/sysconfig/network-scripts: ifcfg-*, and the files of routes
// and rules beside them.
func (im *importer) ifcfgs(files []*file) {
	byName := map[string]*draft{} // by path of the ifcfg file
	var routes, hosts []*file
	for _, f := range files {
		if path.Base(f.path) == "network" {
			hosts = append(hosts, f)
		} else if base := path.Base(f.path); strings.HasPrefix(base, "route") || strings.HasPrefix(base, "rule") {
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
			f.refuse("not used: " + off + " in ifcfg-" + name + " has no IPv6")
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
	for _, n := range sortedKeys(profiles) {
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
	if link == "" && (!hasHW || yes(v.get("PKEY"))) {
		link = id
	}
	alias := ""
	if base, a, ok := strings.Cut(link, ":"); ok {
		alias, link = a, base
	}
	typ := v.get("TYPE")
	isOne := strings.EqualFold(typ, "InfiniBand") || v.by["CONNECTED_MODE"] != nil || v.by["PKEY"] != nil || typ == "" && isIB(link)
	switch {
	case link == "lo":
		for _, it := range f.lines {
			it.parts, it.why = nil, ""
			it.unneeded("the loopback link")
		}
		return nil
	case !isOne:
		f.refuse(whyNotIB)
		return nil
	}
	if m := cmp.Or(v.get("MASTER"), v.get("MASTER_UUID"), v.get("TEAM_MASTER"), v.get("BRIDGE")); m != "" {
		f.refuse(fmt.Sprintf(whyPort, link, m))
		return nil
	}
	im.note("switch %s off: nmcli connection delete, or rename the file and nmcli connection reload (network-scripts: set ONBOOT=no)", f.path)
	var c *child
	if yes(v.get("PKEY")) {
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
	d.child = c
	im.nm(d, v.get("ONBOOT"), v.get("AUTOCONNECT_PRIORITY"), v.get("UUID"))
	if b, ok := boolean(v.get("NM_CONTROLLED")); ok && b == "no" {
		d.nm.others = true
	}
	d.noIPv6 = ipv6Off(v)
	im.ifcfgKeys(d, v)
	return d
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
	if b, ok := boolean(v.get("ONPARENT")); v.by["ONPARENT"] != nil && (!ok || b == "no") {
		f.refuse("not used: with ONPARENT=" + v.get("ONPARENT") + " the address is not set with " + link)
		return nil
	}
	i := slices.IndexFunc(im.drafts, func(d *draft) bool { return d.link == link })
	d := (*draft)(nil)
	if i >= 0 {
		d = im.drafts[i]
		d.source(f)
	} else {
		d = im.profile("NetworkManager", link, f)
		im.nm(d, "", "", "")
	}
	for _, it := range v.items("DEVICE", "ONBOOT", "BOOTPROTO", "ONPARENT") {
		it.unneeded(link + " has one more address")
	}
	bits, ok := prefixOf(cmp.Or(v.get("PREFIX"), v.get("NETMASK")))
	from := v.items("IPADDR", "PREFIX")
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
	for _, a := range v.list {
		n := strings.TrimRight(a.key, "0123456789")
		switch {
		case ifcfgIdle[a.key] != "":
			a.unneeded(ifcfgIdle[a.key])
		case a.key == "DEVICE":
		case a.key == "PKEY", a.key == "PKEY_ID", a.key == "PHYSDEV":
			if !yes(v.get("PKEY")) {
				a.unneeded("no P_Key interface")
			}
		case a.key == "ONBOOT":
			im.onboot(d, a.value, a.item)
		case a.key == "CONNECTED_MODE":
			d.mode(a.value, a.item)
		case a.key == "MTU":
			d.mtu(a.value, a.item)
		case a.key == "HWADDR":
			if d.link != "" {
				d.hw(a.value, a.item)
			}
		case a.key == "ETHTOOL_OPTS":
			a.left(whyEthtool)
		case a.key == "ZONE":
			a.left(d.zone(a.value))
		case n == "DNS":
			d.add("Network", "DNS", a.value, a.item)
		case a.key == "DOMAIN":
			d.words("Domains", strings.Fields(a.value), a.item)
		case a.key == "IPV4_ROUTE_METRIC", a.key == "IPV6_ROUTE_METRIC", a.key == "METRIC":
			ifcfgMetric(v, a)
		case strings.HasPrefix(a.key, "ROUTING_RULE"):
			if dirs, why := ipRule(words(a.value), strings.HasPrefix(a.key, "ROUTING_RULE6")); why != "" {
				a.left(why)
			} else {
				d.section("RoutingPolicyRule", dirs, a.item)
			}
		case a.key == "PEERDNS", a.key == "PEERROUTES", a.key == "IPV6_PEERDNS", a.key == "IPV6_PEERROUTES",
			a.key == "DEFROUTE", a.key == "IPV6_DEFROUTE":
			ifcfgAutomatic(d, v, a)
		case a.key == "DHCP_HOSTNAME":
			if ifcfgDHCP(v) {
				a.left(whyDHCPKey)
			} else {
				a.unneeded("for DHCP")
			}
		case strings.HasPrefix(a.key, "IPV6"):
			ifcfgIPv6(d, v, a)
		default:
			ifcfgIPv4(d, v, a, n)
		}
	}
}

// ifcfgDHCP reports whether the file asks for DHCP.
func ifcfgDHCP(v variables) bool {
	switch strings.ToLower(v.get("BOOTPROTO")) {
	case "dhcp", "bootp":
		return true
	}
	return false
}

// ifcfgAutomatic is the account of a key about what DHCP and router advertisements
// provide.
func ifcfgAutomatic(d *draft, v variables, a *variable) {
	six := strings.HasPrefix(a.key, "IPV6")
	idle := whyAutomatic
	if strings.HasSuffix(a.key, "DEFROUTE") {
		idle = "covered by the gateway"
	}
	switch b, ok := boolean(a.value); {
	case !ok:
		a.left(whyValue)
	case b == "yes", six && !yes(v.get("IPV6_AUTOCONF")), !six && !ifcfgDHCP(v):
		a.unneeded(idle)
	case a.key == "IPV6_PEERDNS":
		d.set("IPv6AcceptRA", "UseDNS", "no", a.item)
	case six:
		a.left(whyRARoutes)
	default:
		a.left(whyDHCPKey)
	}
}

// ifcfgIPv4 carries over a key of the IPv4 part; name is without its number.
func ifcfgIPv4(d *draft, v variables, a *variable, name string) {
	index := strings.TrimPrefix(a.key, name)
	switch name {
	case "BOOTPROTO":
		switch strings.ToLower(a.value) {
		case "none", "static", "":
			a.unneeded("addresses are written one by one")
		default:
			d.otherIP = whyOtherIP
			a.left(whyDHCP)
		}
	case "DHCPV6C":
		switch b, ok := boolean(a.value); {
		case !ok:
			a.left(whyValue)
		case b == "no":
			a.unneeded("the default")
		default:
			d.otherIP = whyOtherIP
			a.left(whyDHCP)
		}
	case "IPADDR":
		ifcfgAddress(d, v, a, index)
	case "PREFIX", "NETMASK":
		if v.by["IPADDR"+index] == nil && !((index == "" || index == "0") && (v.by["IPADDR"] != nil || v.by["IPADDR0"] != nil)) {
			a.left("it has no address")
		}
	case "BROADCAST":
		if v.by["IPADDR"+index] == nil && v.by["IPADDR0"] == nil {
			a.left("it has no address")
		}
	case "GATEWAY":
		ifcfgGateway(d, v, a, "DEFROUTE", a.value)
	}
}

// ifcfgAddress adds IPADDRn= with its PREFIXn= or NETMASKn=. Without a number is
// as with 0.
func ifcfgAddress(d *draft, v variables, a *variable, index string) {
	suffixes := []string{index}
	switch index {
	case "":
		suffixes = append(suffixes, "0")
	case "0":
		suffixes = append(suffixes, "")
	}
	from := []*item{a.item}
	bits := ""
	for _, s := range suffixes {
		p, m := v.by["PREFIX"+s], v.by["NETMASK"+s]
		switch {
		case bits != "":
		case p != nil:
			bits, from = p.value, append(from, p.item)
			if m != nil {
				other, _ := prefixOf(m.value)
				(&variable{m.item, m.key, other}).superseded("PREFIX"+s, p.value)
			}
		case m != nil:
			from = append(from, m.item)
			bits = "?"
			if b, ok := prefixOf(m.value); ok {
				bits = b
			}
		}
	}
	if bits == "" {
		a.left("it has no PREFIX or NETMASK")
		return
	}
	for _, s := range suffixes {
		if b := v.by["BROADCAST"+s]; b != nil {
			broadcast(b.item, a.value+"/"+bits, b.value)
		}
	}
	d.address(a.value+"/"+bits, from...)
}

// ifcfgIPv6 carries over a key of the IPv6 part.
func ifcfgIPv6(d *draft, v variables, a *variable) {
	off := ipv6Off(v)
	switch a.key {
	case "IPV6INIT", "IPV6_DISABLED":
		switch b, ok := boolean(a.value); {
		case !ok:
			a.left(whyValue)
		case (b == "yes") == (a.key == "IPV6INIT"):
			a.unneeded("a unit has IPv6 by default")
		default:
			d.set("Network", "LinkLocalAddressing", "no", a.item)
		}
	case "IPV6_AUTOCONF":
		if b, ok := boolean(a.value); ok {
			d.set("Network", "IPv6AcceptRA", b, a.item)
		} else {
			a.left(whyValue)
		}
	case "IPV6ADDR", "IPV6ADDR_SECONDARIES", "IPV6_DEFAULTGW":
		if off != "" {
			a.left("not used: " + off + " has no IPv6")
			return
		}
		if a.key == "IPV6_DEFAULTGW" {
			gw, dev, _ := strings.Cut(a.value, "%")
			if dev != "" && d.link != "" && dev != d.link {
				a.left("a gateway over another link")
			} else {
				ifcfgGateway(d, v, a, "IPV6_DEFROUTE", gw)
			}
			return
		}
		list := strings.FieldsFunc(a.value, func(r rune) bool { return r == ' ' || r == ',' || r == '\t' })
		for _, x := range list {
			it := a.item
			if len(list) > 1 {
				it = a.part(x)
			}
			if !strings.Contains(x, "/") {
				x += "/64"
			}
			d.address(x, it)
		}
		if len(list) == 0 {
			a.unneeded("it is empty")
		}
	case "IPV6_ADDR_GEN_MODE":
		d.set("Network", "IPv6LinkLocalAddressGenerationMode", strings.ToLower(a.value), a.item)
	case "IPV6_PRIVACY":
		d.set("Network", "IPv6PrivacyExtensions",
			map[string]string{"no": "no", "rfc3041": "yes", "rfc4941": "yes"}[strings.ToLower(a.value)], a.item)
	}
}

// ipv6Off is the line that switches IPv6 off, "" if there is none.
func ipv6Off(v variables) string {
	if x := v.by["IPV6INIT"]; x != nil && x.value != "" && !yes(x.value) {
		return "IPV6INIT=" + x.value
	}
	if x := v.by["IPV6_DISABLED"]; x != nil && yes(x.value) {
		return "IPV6_DISABLED=" + x.value
	}
	return ""
}

// ifcfgMetric is the account of a metric that no default route has.
func ifcfgMetric(v variables, a *variable) {
	has := func(key string) bool { return v.by[key] != nil && !unspecified(v.get(key)) }
	def, gateway := "DEFROUTE", has("GATEWAY") || has("GATEWAY0")
	if a.key == "IPV6_ROUTE_METRIC" {
		def, gateway = "IPV6_DEFROUTE", has("IPV6_DEFAULTGW")
	}
	switch x := v.by[def]; {
	case !gateway:
		a.left("it has no gateway; write it into [Route] Metric= or [Address] RouteMetric=")
	case x != nil && !yes(x.value):
		a.left("not used: " + def + "=" + x.value + " has no default route; write it into [Address] RouteMetric=")
	default:
		a.unneeded("another key sets the metric")
	}
}

// onboot says whether a link is brought up by itself.
func (im *importer) onboot(d *draft, value string, it *item) {
	switch b, _ := boolean(value); b {
	case "yes":
		it.unneeded("a link with a unit is brought up")
	case "no":
		d.set("Link", "ActivationPolicy", "manual", it)
	default:
		it.left(whyValue)
	}
}

// ifcfgGateway adds the gateway with the metric of its family, unless there is to
// be no default route.
func ifcfgGateway(d *draft, v variables, a *variable, key, gw string) {
	if x := v.by[key]; x != nil && !yes(x.value) {
		a.unneeded(key + "=" + x.value + ": no default route")
		return
	}
	if unspecified(gw) {
		a.unneeded(whyNoGateway)
		return
	}
	metric := v.by["IPV4_ROUTE_METRIC"]
	if strings.HasPrefix(key, "IPV6") {
		metric = v.by["IPV6_ROUTE_METRIC"]
	} else if metric == nil {
		metric = v.by["METRIC"]
	}
	if metric != nil {
		metric = &variable{metric.item, metric.key, decimal(metric.value)}
	}
	d.gatewayMetric(gw, metric, a.item)
}

// gatewayMetric adds a default gateway, with a metric if there is one.
func (d *draft) gatewayMetric(gw string, metric *variable, it *item) {
	if metric == nil || metric.value == "-1" || unspecified(gw) {
		d.gateway(gw, it)
		return
	}
	dst := "0.0.0.0/0"
	if strings.Contains(gw, ":") {
		dst = "::/0"
	}
	d.section("Route", [][2]string{{"Destination", dst}, {"Gateway", gw}, {"Metric", metric.value}}, it, metric.item)
}
