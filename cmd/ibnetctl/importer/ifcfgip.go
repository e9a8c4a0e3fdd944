package importer

import (
	"strconv"
	"strings"
)

// ifcfgDHCP reports whether the file asks for DHCP.
func ifcfgDHCP(v variables) bool {
	switch strings.ToLower(v.get("BOOTPROTO")) {
	case "dhcp", "bootp":
		return true
	}
	return false
}

// ifcfgAdverts reports whether the file accepts router advertisements: by default where it has
// IPv6 and does not forward it.
func ifcfgAdverts(d *draft, v variables) bool {
	if b, ok := ifcfgBool(v.get("IPV6_AUTOCONF")); ok {
		return b == "yes"
	}
	return d.noIPv6 == "" && !ifcfgYes(v.get("IPV6FORWARDING"))
}

// ifcfgAdvert sets a key of [IPv6AcceptRA], which needs IPv6AcceptRA=yes where that is the default of the file.
func (d *draft) ifcfgAdvert(v variables, key, value string, from *item) {
	if v.get("IPV6_AUTOCONF") == "" {
		d.preset("Network", "IPv6AcceptRA", "yes")
	}
	d.set("IPv6AcceptRA", key, value, from)
}

// ifcfgAutomatic is the account of a key about what DHCP and router advertisements
// provide.
func ifcfgAutomatic(d *draft, v variables, a *variable) {
	six := strings.HasPrefix(a.key, "IPV6")
	adverts, dhcp6 := ifcfgAdverts(d, v), ifcfgYes(v.get("DHCPV6C"))
	idle := whyAutomatic
	if strings.HasSuffix(a.key, "DEFROUTE") {
		idle = "covered by the gateway"
	}
	switch b, ok := ifcfgBool(a.value); {
	case !ok:
		a.left(whyBool)
	case b == "yes", six && !adverts && !dhcp6, !six && !ifcfgDHCP(v):
		a.unneeded(idle)
	case a.key == "IPV6_PEERDNS":
		if adverts {
			d.ifcfgAdvert(v, "UseDNS", "no", a.item)
		}
		d.set("DHCPv6", "UseDNS", "no", a.item)
	case six && !adverts:
		a.unneeded("DHCPv6 brings no routes")
	case a.key == "IPV6_DEFROUTE":
		d.ifcfgAdvert(v, "UseGateway", "no", a.item)
	case six:
		d.noAdvertRoutes(func(key, value string) { d.ifcfgAdvert(v, key, value, a.item) }, a.key+"=no")
	default:
		d.set("DHCPv4", map[string]string{"PEERDNS": "UseDNS", "PEERROUTES": "UseRoutes", "DEFROUTE": "UseGateway"}[a.key], "no", a.item)
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
		case "dhcp", "bootp":
			if d.nm.others { // network-scripts
				d.dhcp("ipv4", a.item)
				return
			}
			d.nmClient(v.by["DHCP_CLIENT_ID"] != nil, ifcfgNo(v.get("PEERDNS")), a.item)
		case "shared":
			a.left(whyShared)
		case "autoip":
			d.linkLocal4(a.item)
		}
	case "DHCPV6C":
		switch b, ok := ifcfgBool(a.value); {
		case !ok:
			a.left(whyValue)
		case b == "no":
			a.unneeded("the default")
		case d.noIPv6 != "":
			a.left("not used: " + d.noIPv6 + " sets no IPv6 addresses")
		default:
			d.dhcp("ipv6", a.item)
			if !d.nm.others && !ifcfgNo(v.get("IPV6_PEERDNS")) {
				d.preset("DHCPv6", "UseDomains", "yes")
			}
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
		ifcfgGatewayN(d, v, a, index)
	}
}

// ifcfgGatewayN adds the gateway of IPADDRn=. NetworkManager uses the first one:
// without a number, then by number.
func ifcfgGatewayN(d *draft, v variables, a *variable, index string) {
	before := ""
	for i := -1; i < 256; i++ {
		n := ""
		if i >= 0 {
			n = strconv.Itoa(i)
		}
		if n == index {
			break
		}
		if before == "" && v.by["IPADDR"+n] != nil && v.by["GATEWAY"+n] != nil {
			before = "GATEWAY" + n
		}
	}
	if before == "" {
		ifcfgGateway(d, v, a, "DEFROUTE", a.value)
	} else {
		a.left("not used: " + before + "= has precedence")
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
	// The first ones may be missing (read_full_ip4_address of NetworkManager).
	if n, err := strconv.Atoi(index); err == nil {
		for i := 2; i < min(n, 256); i++ {
			if key := "IPADDR" + strconv.Itoa(i); v.by[key] == nil {
				why := "not used: there is no " + key + "=, and those after it are not read"
				leftAll(append(v.items("PREFIX"+index, "NETMASK"+index), a.item), why)
				return
			}
		}
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
	off := d.noIPv6
	switch a.key {
	case "IPV6INIT", "IPV6_DISABLED":
		switch b, ok := ifcfgBool(a.value); {
		case !ok:
			a.left(whyValue)
		case (b == "yes") == (a.key == "IPV6INIT"):
			a.unneeded("a unit has IPv6 by default")
		default:
			d.set("Network", "LinkLocalAddressing", "no", a.item)
		}
	case "IPV6_AUTOCONF":
		if b, ok := ifcfgBool(a.value); ok {
			d.set("Network", "IPv6AcceptRA", b, a.item)
		} else {
			a.left(whyValue)
		}
	case "IPV6ADDR", "IPV6ADDR_SECONDARIES", "IPV6_DEFAULTGW":
		if off != "" {
			a.left("not used: " + off + " sets no IPv6 addresses")
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
	case "IPV6_TOKEN":
		if ifcfgAdverts(d, v) {
			d.ifcfgAdvert(v, "Token", a.value, a.item)
		} else {
			a.unneeded(whyAutomatic)
		}
	case "IPV6_PRIVACY":
		d.set("Network", "IPv6PrivacyExtensions",
			map[string]string{"no": "no", "rfc3041": "yes", "rfc4941": "yes"}[strings.ToLower(a.value)], a.item)
	}
}

// ipv6Off is the line that switches IPv6 off, "" if there is none. The default of
// IPV6INIT= is no, or what /etc/sysconfig/network says.
func ipv6Off(v variables, host bool) string {
	if x := v.by["IPV6_DISABLED"]; x != nil && ifcfgYes(x.value) {
		return "IPV6_DISABLED=" + x.value
	}
	switch x := v.by["IPV6INIT"]; {
	case x == nil || x.value == "":
		if !host {
			return "a file without IPV6INIT=yes"
		}
	case !ifcfgYes(x.value):
		return "IPV6INIT=" + x.value
	}
	return ""
}

// ifcfgMetric is the account of a metric that no default route has, unless a lease brings one.
func ifcfgMetric(d *draft, v variables, a *variable) {
	has := func(key string) bool { return v.by[key] != nil && !unspecified(v.get(key)) }
	def, gateway := "DEFROUTE", has("GATEWAY") || has("GATEWAY0")
	if a.key == "IPV6_ROUTE_METRIC" {
		def, gateway = "IPV6_DEFROUTE", has("IPV6_DEFAULTGW")
	}
	switch x := v.by[def]; {
	case a.key != "IPV6_ROUTE_METRIC" && ifcfgDHCP(v):
		d.dhcpSetting("DHCPv4", map[string]dhcpKey{a.key: {"RouteMetric", nmMetric}}, a.key, a.value, a.item)
	case a.key == "IPV6_ROUTE_METRIC" && ifcfgAdverts(d, v) && !ifcfgNo(v.get(def)) && !ifcfgNo(v.get("IPV6_PEERROUTES")):
		advertMetric(func(key, value string) { d.ifcfgAdvert(v, key, value, a.item) }, a.value, a.item)
	case !gateway:
		a.left("it has no gateway; write it into [Route] Metric= or [Address] RouteMetric=")
	case x != nil && ifcfgNo(x.value):
		a.left("not used: " + def + "=" + x.value + " has no default route; write it into [Address] RouteMetric=")
	default:
		a.unneeded("another key sets the metric")
	}
}

// onboot converts whether a link is brought up by itself: yes, no, or "" for a value
// that is none.
func (im *importer) onboot(d *draft, b string, it *item) {
	switch b {
	case "yes":
		it.unneeded("a link with a unit is brought up")
	case "no":
		d.set("Link", "ActivationPolicy", "manual", it)
	default:
		it.left(whyBool)
	}
}

// ifcfgBool reads a boolean as NetworkManager does (svParseBoolean in its plugin
// ifcfg-rh): unlike elsewhere on and off are none. Where a value is none, the
// default of the key counts.
func ifcfgBool(s string) (string, bool) {
	switch strings.ToLower(s) {
	case "on", "off":
		return "", false
	}
	return boolean(s)
}

func ifcfgNo(s string) bool {
	b, _ := ifcfgBool(s)
	return b == "no"
}

func ifcfgYes(s string) bool {
	b, _ := ifcfgBool(s)
	return b == "yes"
}

// ifcfgGateway adds the gateway with the metric of its family, unless there is to
// be no default route.
func ifcfgGateway(d *draft, v variables, a *variable, key, gw string) {
	if x := v.by[key]; x != nil && ifcfgNo(x.value) {
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
