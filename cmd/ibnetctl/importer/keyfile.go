package importer

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// entry is one key=value line in a section.
type entry struct {
	*variable
	section  string
	instance int // which header of the file it is below
}

// sections reads key=value lines in sections, as desktop entries and systemd
// have them.
func sections(f *file, items []*item) []*entry {
	var out []*entry
	section := ""
	instance := 0
	for _, it := range items {
		l := it.text
		if l[0] == '[' {
			if !strings.HasSuffix(l, "]") {
				it.left("a section header that does not end")
				continue
			}
			section = l[1 : len(l)-1]
			it.unneeded("its lines are listed separately")
			instance++
			continue
		}
		k, v, ok := strings.Cut(l, "=")
		if !ok {
			it.left("not a key=value line")
			continue
		}
		out = append(out, &entry{&variable{it, strings.TrimSpace(k), strings.TrimSpace(v)}, section, instance})
	}
	return out
}

// keyfileIdle are keys of NetworkManager that a unit needs nothing for, and why.
var keyfileIdle = map[string]string{
	"connection.id": "a display name", "connection.uuid": "the identity of the profile",
	"connection.type": "implied by the sections of the unit", "connection.timestamp": "NetworkManager uses " + TimestampsFile,
	"connection.permissions": "who may use the profile", "connection.autoconnect-priority": "the choice among profiles",
	"connection.autoconnect-retries": "the link is configured again whenever it changes",
	"connection.multi-connect":       "the choice among profiles", "connection.wait-device-timeout": "the unit waits for the link",
	"connection.wait-activation-delay": "the unit waits for the link",
	"connection.read-only":             "the profile is not changed", "connection.lldp": "IPoIB has no LLDP",
	"connection.gateway-ping-timeout": "for network-online.target of NetworkManager",
	"connection.stable-id":            "for addresses that ibnetworkd does not set",
	"ipv4.may-fail":                   "each address is set by itself", "ipv6.may-fail": "each address is set by itself",

	"ipv4.dad-timeout": "ibnetworkd does not probe IPv4 addresses", "ipv4.link-local": "for addresses that ibnetworkd does not set",
	"connection.metered": "for programs that ask NetworkManager",
}

// keyfiles reads NetworkManager's connection profiles.
func (im *importer) keyfiles(files []*file) {
	for _, f := range shadowed(files) {
		im.keyfile(f)
	}
}

func (im *importer) keyfile(f *file) {
	all := sections(f, f.content(hashOrSem))
	by := map[string]*entry{}
	for _, e := range all {
		k := e.section + "." + e.key
		if old := by[k]; old != nil {
			old.left(fmt.Sprintf("not used: line %d overrides it", e.line))
		}
		by[k] = e
	}
	all = slices.DeleteFunc(all, func(e *entry) bool { return by[e.section+"."+e.key] != e })
	get := func(key string) string {
		if e := by[key]; e != nil {
			return e.value
		}
		return ""
	}
	from := func(keys ...string) []*item {
		var out []*item
		for _, k := range keys {
			if e := by[k]; e != nil {
				out = append(out, e.item)
			}
		}
		return out
	}
	if t := get("connection.type"); t != "infiniband" {
		if t == "" {
			f.refuse("no key type= in [connection]")
		} else {
			f.refuse(whyNotIB + " (type=" + t + ")")
		}
		return
	}
	// Without one of the conditions the profile would be for other links and hosts.
	if i := slices.IndexFunc(all, func(e *entry) bool { return e.section == "match" && e.key != "path" && e.value != "" }); i >= 0 {
		f.refuse(fmt.Sprintf("line %d: [match] %s= is not converted: write a unit with the same conditions in [Match]", all[i].line, all[i].key))
		return
	}
	link, parent, mac := get("connection.interface-name"), get("infiniband.parent"), get("infiniband.mac-address")
	if m := cmp.Or(get("connection.master"), get("connection.controller")); m != "" {
		f.refuse(fmt.Sprintf(whyPort, link, m))
		return
	}
	var c *child
	if pk := get("infiniband.p-key"); pk != "" && pk != "-1" {
		k, ok := pkeyC(pk)
		if !ok || !validName(parent) {
			f.refuse("p-key= or parent= is missing or invalid")
			return
		}
		name := childName(parent, k)
		if link != "" && link != name {
			leftAll(from("connection.interface-name"), "the name of a P_Key interface is "+name+" in NetworkManager, regardless of interface-name=")
			delete(by, "connection.interface-name")
		}
		link = name
		c = &child{parent, name, k, from("infiniband.p-key", "infiniband.parent", "connection.interface-name")}
		if _, plain, isChild := keyOfName(parent); isChild {
			f.refuse(fmt.Sprintf("parent=%s is a P_Key interface itself (0x%04x): a child is made on a port's own interface", parent, plain))
			return
		}
	}
	if mac != "" {
		mac = decimalMAC(mac)
	}
	var d *draft
	switch {
	case validName(link):
		d = im.profile("NetworkManager", link, f, from("connection.interface-name")...)
		if mac != "" {
			d.hw(mac, from("infiniband.mac-address")...)
		}
	case link != "":
		f.refuse(fmt.Sprintf("interface-name=%s is %s", link, whyName))
		return
	case mac != "":
		if d = im.byAddress("NetworkManager", mac, f, from("infiniband.mac-address")...); d == nil {
			f.refuse("mac-address= is not a hardware address, and interface-name= is missing")
			return
		}
	default:
		f.refuse("neither interface-name= nor mac-address= selects a link")
		return
	}
	d.child = c
	if !slices.ContainsFunc(all, func(e *entry) bool { return e.section == "ipv4" }) {
		d.otherIP, d.lacks = whyOtherIP, "without a section [ipv4] NetworkManager uses DHCP: "+whyDHCP
	}
	im.nm(d, get("connection.autoconnect"), get("connection.autoconnect-priority"), get("connection.uuid"))
	for _, e := range all {
		im.keyfileEntry(d, e, by)
	}
	im.note("NetworkManager must release %s: nmcli connection delete, or unmanaged-devices= in its configuration", d.subject())
}

// isStatic reports the keys of [ipv4] and [ipv6] that set addresses, routes and
// what goes with them. Rules are for the host, and apply with any method.
func isStatic(key string) bool {
	for _, p := range []string{"address", "gateway", "route", "dns"} {
		if strings.HasPrefix(key, p) {
			return true
		}
	}
	return false
}

// decimalMAC turns the old form of a hardware address, decimal bytes with
// semicolons, into the usual one.
func decimalMAC(s string) string {
	f := strings.Split(strings.TrimSuffix(s, ";"), ";")
	if len(f) < 6 {
		return s
	}
	for i, b := range f {
		n, err := strconv.ParseUint(b, 10, 8)
		if err != nil {
			return s
		}
		f[i] = fmt.Sprintf("%02x", n)
	}
	return strings.Join(f, ":")
}

// keyfileEntry carries one line over.
func (im *importer) keyfileEntry(d *draft, e *entry, by map[string]*entry) {
	if why := keyfileIdle[e.section+"."+e.key]; why != "" {
		e.unneeded(why)
		return
	}
	switch e.section {
	case "connection":
		im.keyfileConnection(d, e)
	case "infiniband":
		keyfileInfiniband(d, e)
	case "ipv4", "ipv6":
		if keyfileAutomatic(d, e, by) {
			return
		}
		if m := by[e.section+".method"]; m != nil && (m.value == "disabled" || m.value == "ignore") && isStatic(e.key) {
			e.left("not used: method=" + m.value + " has no addresses and routes")
			return
		}
		im.keyfileIP(d, e, by)
	case "proxy", "user":
		e.unneeded("for programs that ask NetworkManager")
	case "match": // of whose keys path= alone is left here
		for _, x := range strings.FieldsFunc(e.value, func(r rune) bool { return r == ';' || r == ' ' }) {
			d.add("Match", "Path", x, e.item)
		}
	default:
		e.left("[" + e.section + "]: " + whyUnknown)
	}
}

func (im *importer) keyfileConnection(d *draft, e *entry) {
	switch e.key {
	case "interface-name":
	case "autoconnect":
		im.onboot(d, e.value, e.item)
	case "zone":
		e.left(d.zone(e.value))
	case "mdns", "llmnr":
		if e.value == "-1" || e.value == "default" {
			e.unneeded("the default")
			return
		}
		d.set("Network", map[string]string{"mdns": "MulticastDNS", "llmnr": "LLMNR"}[e.key],
			map[string]string{"0": "no", "1": "resolve", "2": "yes", "no": "no", "resolve": "resolve", "yes": "yes"}[e.value], e.item)
	default:
		e.left("[connection]: " + whyUnknown)
	}
}

func keyfileInfiniband(d *draft, e *entry) {
	switch e.key {
	case "mac-address":
	case "p-key":
		if e.value == "-1" {
			e.unneeded("no P_Key interface")
		}
	case "parent":
		if d.child == nil {
			e.left("it has no p-key=")
		}
	case "transport-mode":
		d.mode(e.value, e.item)
	case "mtu":
		if e.value == "0" || e.value == "auto" {
			e.unneeded("the default")
		} else {
			d.mtu(e.value, e.item)
		}
	default:
		e.left("[infiniband]: " + whyUnknown)
	}
}

// nmDefaults are what the keys of [ipv4] or [ipv6] say of gateways and routes.
type nmDefaults struct {
	table  string // "" is the main one
	never  bool   // no default route
	metric *variable
}

// keyfileIP carries over a line of [ipv4] or [ipv6].
func (im *importer) keyfileIP(d *draft, e *entry, by map[string]*entry) {
	var def nmDefaults
	if t := by[e.section+".route-table"]; t != nil && t.value != "0" && t.value != "254" {
		def.table = decimal(t.value)
	}
	def.never = by[e.section+".never-default"] != nil && yes(by[e.section+".never-default"].value)
	if m := by[e.section+".route-metric"]; m != nil {
		def.metric = &variable{m.item, m.key, decimal(m.value)}
	}
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
		} else {
			e.left("routes and gateways are written with Table=" + def.table + ", but the routes of the addresses are in the main table")
		}
	case e.key == "route-metric":
		gw := by[e.section+".gateway"] != nil || slices.ContainsFunc(sortedKeys(by), func(k string) bool {
			return strings.HasPrefix(k, e.section+".address") && strings.Contains(by[k].value, ",")
		})
		if e.value == "-1" {
			e.unneeded("the default")
		} else if !gw || def.never {
			e.left("it is for the routes of the addresses; write it into [Address] RouteMetric=")
		}
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
			e.left(whyDHCPKey)
		} else {
			e.unneeded("for DHCP")
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
	switch b, ok := boolean(e.value); {
	case !ok:
		e.left(whyValue)
	case !auto || b == "no":
		e.unneeded(idle)
	case e.section == "ipv4":
		e.left(whyDHCPKey)
	case e.key == "ignore-auto-dns":
		d.set("IPv6AcceptRA", "UseDNS", "no", e.item)
	default:
		e.left(whyRARoutes)
	}
	return true
}

func keyfileMethod(d *draft, e *entry, by map[string]*entry) {
	six := e.section == "ipv6"
	switch {
	case e.value == "manual":
		e.unneeded("addresses are written one by one")
	case e.value == "disabled" || e.value == "ignore":
		if six {
			d.set("Network", "LinkLocalAddressing", "no", e.item)
		} else {
			e.unneeded("no address is given")
		}
	case e.value == "link-local" && six:
		d.set("Network", "LinkLocalAddressing", "ipv6", e.item)
	case e.value == "link-local":
		e.left(whyNoIPv4LL)
	case e.value == "auto" && six:
		d.set("Network", "IPv6AcceptRA", "yes", e.item)
		if x := by["ipv6.ignore-auto-dns"]; x == nil || !yes(x.value) {
			d.set("IPv6AcceptRA", "UseDomains", "yes", e.item) // NetworkManager's default
		}
	case e.value == "auto" || e.value == "dhcp":
		d.otherIP = whyOtherIP
		e.left(whyDHCP)
	default:
		e.left(whyValue)
	}
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
	addr, gw, _ := strings.Cut(e.value, ",")
	if f := strings.Split(strings.TrimSuffix(e.value, ";"), ";"); len(f) == 3 {
		addr, gw = f[0]+"/"+f[1], f[2]
	}
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
	} else {
		d.gatewayTable(gw, def.table, def.metric, p)
	}
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

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
