package importer

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// nmDefaults are what the keys of [ipv4] or [ipv6] say of gateways and routes.
type nmDefaults struct {
	table  string // "" is the main one
	never  bool   // no default route
	metric *variable
	// gateway is the key whose gateway is used: gateway=, else that of the first
	// address that has one.
	gateway *entry
}

// keyfileIP carries over a line of [ipv4] or [ipv6].
func (im *importer) keyfileIP(d *draft, e *entry, by map[string]*entry) {
	var def nmDefaults
	if t := by[e.section+".route-table"]; t != nil && t.value != "0" && t.value != "254" {
		def.table = decimal(t.value)
	}
	def.never = keyfileYes(by, e.section+".never-default")
	if m := by[e.section+".route-metric"]; m != nil {
		def.metric = &variable{m.item, m.key, m.value} // as in a unit, 0x10 and 010 are hexadecimal and octal
	}
	def.gateway = keyfileGateway(e.section, by)
	list := func() []string {
		return strings.FieldsFunc(e.value, func(r rune) bool { return r == ';' || r == ',' || r == ' ' })
	}
	six := e.section == "ipv6"
	switch k := strings.TrimRight(e.key, "0123456789"); {
	case e.key == "method":
		keyfileMethod(d, e, by)
	case e.key == "gateway":
		switch {
		case def.never:
			e.unneeded("never-default=true: no default route")
		case unspecified(e.value):
			e.unneeded(whyNoGateway)
		default:
			d.gatewayTable(e.value, def.table, def.metric, e.item)
		}
	case e.key == "route-table":
		if def.table == "" {
			e.unneeded("the main table")
		} else if !six && by["ipv4.method"].value == "auto" {
			d.set("DHCPv4", "RouteTable", def.table, e.item)
		} else if inVRF(by) {
			e.unneeded("routes and gateways are written with Table=" + def.table + ", and the routes of the addresses are in the VRF's table")
		} else {
			e.left("routes and gateways are written with Table=" + def.table + ", but the routes of the addresses are in the main table")
		}
	case e.key == "route-metric":
		gw := by[e.section+".gateway"] != nil || slices.ContainsFunc(slices.Sorted(maps.Keys(by)), func(k string) bool {
			return strings.HasPrefix(k, e.section+".address") && strings.Contains(by[k].value, ",")
		})
		if e.value == "-1" {
			e.unneeded("the default")
		} else if !six && by["ipv4.method"].value == "auto" {
			d.set("DHCPv4", "RouteMetric", e.value, e.item)
		} else if six && by["ipv6.method"].value == "auto" && !def.never && !keyfileYes(by, "ipv6.ignore-auto-routes") {
			advertMetric(func(key, value string) { d.set("IPv6AcceptRA", key, value, e.item) }, e.value, e.item)
		} else if !gw || def.never {
			e.left("it is for the routes of the addresses; write it into [Address] RouteMetric=")
		}
	case e.key == "dad-timeout" && !six:
		d.dadTimeout(e.value, e.item)
	case e.key == "dns":
		d.words("DNS", list(), e.item)
	case e.key == "dns-search":
		d.words("Domains", list(), e.item)
	case six && e.key == "addr-gen-mode":
		switch v := map[string]string{"0": "eui64", "1": "stable-privacy"}[e.value]; {
		case e.value == "2" || e.value == "3" || strings.HasPrefix(e.value, "default"):
			e.unneeded("the default")
		case v == "stable-privacy" || e.value == "stable-privacy":
			e.left("NetworkManager generates this address with its own key; write IPv6LinkLocalAddressGenerationMode=stable-privacy for " +
				"the kernel's")
		case v == "eui64" || e.value == "eui64":
			d.set("Network", "IPv6LinkLocalAddressGenerationMode", "eui64", e.item)
		default:
			e.left(whyValue)
		}
	case six && e.key == "token":
		if m := by["ipv6.method"]; m != nil && m.value == "auto" {
			d.set("IPv6AcceptRA", "Token", e.value, e.item)
		} else {
			e.unneeded(whyAutomatic)
		}
	case six && e.key == "ip6-privacy":
		if e.value == "-1" {
			e.unneeded("the default")
		} else {
			d.set("Network", "IPv6PrivacyExtensions", map[string]string{"0": "no", "1": "prefer-public", "2": "yes"}[e.value], e.item)
		}
	case k == "address" || k == "addresses":
		im.keyfileAddresses(d, e, def)
	case k == "route" || k == "routes":
		keyfileRoute(d, e, by[e.section+"."+e.key+"_options"], def.table)
	case strings.HasPrefix(e.key, "route") && strings.HasSuffix(e.key, "_options"):
		if by[e.section+"."+strings.TrimSuffix(e.key, "_options")] == nil {
			e.left("it has no route")
		}
	case strings.HasPrefix(e.key, "routing-rule"):
		if dirs, why := ipRule(words(e.value), six); why != "" {
			e.left(why)
		} else {
			d.section("RoutingPolicyRule", dirs, e.item)
		}
	default:
		e.left("[" + e.section + "]: " + whyUnknown)
	}
}

// keyfileAutomatic is the account of a key about what DHCP and router advertisements
// provide. It reports whether the key is one.
func keyfileAutomatic(d *draft, e *entry, by map[string]*entry) bool {
	method := ""
	if m := by[e.section+".method"]; m != nil {
		method = m.value
	}
	auto := method == "auto" || method == "dhcp"
	if strings.HasPrefix(e.key, "dhcp-") {
		if auto {
			keyfileDHCP(d, e)
		} else {
			e.unneeded(whyNoDHCP)
		}
		return true
	}
	idle := whyAutomatic
	switch e.key {
	case "ignore-auto-dns", "ignore-auto-routes":
	case "never-default":
		idle = "covered by the gateway"
	default:
		return false
	}
	switch b, ok := keyfileBool(e.value); {
	case !ok:
		e.left(whyBool)
	case !auto || b == "no":
		e.unneeded(idle)
	case e.section == "ipv4":
		key := map[string]string{"ignore-auto-dns": "UseDNS", "ignore-auto-routes": "UseRoutes", "never-default": "UseGateway"}[e.key]
		d.set("DHCPv4", key, "no", e.item)
	case e.key == "ignore-auto-dns":
		d.set("DHCPv6", "UseDNS", "no", e.item)
		if method == "auto" {
			d.set("IPv6AcceptRA", "UseDNS", "no", e.item)
		}
	case method == "dhcp":
		e.unneeded("DHCPv6 brings no routes")
	case e.key == "never-default":
		d.set("IPv6AcceptRA", "UseGateway", "no", e.item)
	default:
		d.noAdvertRoutes(func(key, value string) { d.set("IPv6AcceptRA", key, value, e.item) }, e.key+"=true")
	}
	return true
}

func keyfileMethod(d *draft, e *entry, by map[string]*entry) {
	six := e.section == "ipv6"
	switch {
	case e.value == "manual" && !six:
		e.unneeded("addresses are written one by one")
	case e.value == "manual":
		d.set("Network", "IPv6AcceptRA", "no", e.item)
	case e.value == "ignore" && six:
		e.unneeded("NetworkManager leaves IPv6 to the kernel")
	case e.value == "disabled":
		if six {
			d.set("Network", "LinkLocalAddressing", "no", e.item)
		} else {
			e.unneeded("no address is given")
		}
	case e.value == "link-local" && six:
		d.set("Network", "LinkLocalAddressing", "ipv6", e.item)
		d.set("Network", "IPv6AcceptRA", "no", e.item)
	case e.value == "link-local":
		d.linkLocal4(e.item)
	case e.value == "auto" && six:
		d.set("Network", "IPv6AcceptRA", "yes", e.item)
		if !keyfileYes(by, "ipv6.ignore-auto-dns") {
			d.set("IPv6AcceptRA", "UseDomains", "yes", e.item) // NetworkManager's default
			d.preset("DHCPv6", "UseDomains", "yes")
		}
	case e.value == "shared":
		e.left(whyShared)
	case six: // dhcp
		d.dhcp("ipv6", e.item)
		d.set("Network", "IPv6AcceptRA", "no", e.item)
		if !keyfileYes(by, "ipv6.ignore-auto-dns") {
			d.preset("DHCPv6", "UseDomains", "yes")
		}
	default: // auto
		d.nmClient(by["ipv4.dhcp-client-id"] != nil, keyfileYes(by, "ipv4.ignore-auto-dns"), e.item)
	}
}

// keyfileGateway is the key that has the default gateway of a section.
func keyfileGateway(section string, by map[string]*entry) *entry {
	if x := by[section+".gateway"]; x != nil {
		return x
	}
	var first *entry
	least := 0
	for _, k := range slices.Sorted(maps.Keys(by)) {
		e := by[k]
		n, ok := addressNumber(e)
		if _, gw := keyfileAddress(e.value); ok && gw != "" && e.section == section && (first == nil || n < least) {
			first, least = e, n
		}
	}
	return first
}

// keyfileRoute reads route1=DESTINATION,NEXTHOP,METRIC and its route1_options=.
func keyfileRoute(d *draft, e, options *entry, table string) {
	args := strings.Split(e.value, ",")
	if a, err := netip.ParseAddr(args[0]); err == nil && a.Is4() {
		args[0] += "/24" // NetworkManager's default; IPv6's is 128
	}
	w := []string{args[0]}
	for i, word := range []string{"via", "metric"} {
		if len(args) > i+1 && args[i+1] != "" {
			w = append(w, word, decimal(args[i+1]))
		}
	}
	from := []*item{e.item}
	why := ""
	if options != nil {
		from = append(from, options.item)
		for _, x := range strings.Split(options.value, ",") {
			k, v, _ := strings.Cut(x, "=")
			switch k = strings.TrimSpace(k); k {
			case "onlink":
				if yes(v) {
					w = append(w, "onlink")
				}
			case "src", "table", "mtu", "initcwnd", "initrwnd", "scope", "quickack", "from", "advmss":
				w = append(w, k, decimal(v))
			case "type":
				w = append([]string{v}, w...)
			default:
				why = fmt.Sprintf("[Route] has no key for %q", k)
			}
		}
	}
	if table != "" && !slices.Contains(w, "table") {
		w = append(w, "table", table)
	}
	if len(args) > 3 {
		why = whyValue
	}
	var dirs [][2]string
	if why == "" {
		_, dirs, why = ipRoute(w, e.section == "ipv6")
	}
	if why != "" {
		leftAll(from, why)
		return
	}
	d.route(dirs, from...)
}

// unspecified reports an address that stands for no gateway.
func unspecified(s string) bool {
	a, err := netip.ParseAddr(strings.TrimSpace(s))
	return err == nil && a.IsUnspecified()
}

// keyfileAddresses reads address1=ADDRESS/BITS,GATEWAY and the old form
// addresses=ADDRESS;BITS;GATEWAY;.
func (im *importer) keyfileAddresses(d *draft, e *entry, def nmDefaults) {
	addr, gw := keyfileAddress(e.value)
	if unspecified(gw) {
		gw = ""
	}
	// NetworkManager's default (libnm-core's reader of keyfiles).
	if a, err := netip.ParseAddr(addr); err == nil {
		addr += map[bool]string{true: "/24", false: "/64"}[a.Is4()]
	}
	if gw == "" {
		d.address(addr, e.item)
		return
	}
	d.address(addr, e.part(e.key+"="+addr))
	if p := e.part("gateway " + gw); def.never {
		p.unneeded("never-default=true: no default route")
	} else if def.gateway != e {
		p.left("not used: " + def.gateway.key + "= has the gateway that NetworkManager uses")
	} else {
		d.gatewayTable(gw, def.table, def.metric, p)
	}
}

// keyfileAddress splits the value of an address key.
func keyfileAddress(value string) (addr, gateway string) {
	addr, gateway, _ = strings.Cut(value, ",")
	if f := strings.Split(strings.TrimSuffix(value, ";"), ";"); len(f) == 3 {
		addr, gateway = f[0]+"/"+f[1], f[2]
	}
	return addr, gateway
}

// gatewayTable adds a default gateway in a table, the main one if table is empty.
func (d *draft) gatewayTable(gw, table string, metric *variable, it *item) {
	if table == "" {
		d.gatewayMetric(gw, metric, it)
		return
	}
	dirs := [][2]string{{"Destination", map[bool]string{true: "::/0", false: "0.0.0.0/0"}[strings.Contains(gw, ":")]}, {"Gateway", gw}}
	from := []*item{it}
	if metric != nil && metric.value != "-1" {
		dirs, from = append(dirs, [2]string{"Metric", metric.value}), append(from, metric.item)
	}
	d.section("Route", append(dirs, [2]string{"Table", table}), from...)
}
