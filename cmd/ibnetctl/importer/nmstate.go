package importer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

var nmstateRoute = map[string]string{"metric": "Metric", "table-id": "Table", "next-hop-address": "Gateway",
	"source": "PreferredSource", "cwnd": "InitialCongestionWindow", "route-type": "Type"}

var nmstateRule = map[string]string{"ip-from": "From", "ip-to": "To", "route-table": "Table", "priority": "Priority",
	"fwmark": "FirewallMark", "iif": "IncomingInterface", "action": "Type"}

// nmstate reads desired states of nmstate, alone or in a Kubernetes
// NodeNetworkConfigurationPolicy.
func (im *importer) nmstate(files []*file) {
	for _, f := range files {
		docs, ok := parseYAML(f)
		if !ok {
			continue
		}
		for _, doc := range docs {
			state := doc
			if inner := doc.get("spec").get("desiredState"); inner != nil {
				for _, n := range doc.kids {
					if n.key != "spec" {
						n.unneeded("about the policy, not about a link")
					}
				}
				for _, n := range doc.get("spec").kids {
					if n != inner {
						n.left("it selects hosts; write [Match] Host=")
					}
				}
				state = inner
			} else if inner := doc.get("desiredState"); inner != nil {
				state = inner
			}
			im.nmstateOne(f, state)
		}
	}
}

func (im *importer) nmstateOne(f *file, state *ynode) {
	links := map[string]*draft{}
	names := map[string]bool{}
	bridges := map[string]port{} // by the names of their ports
	for _, n := range state.get("interfaces").list0() {
		for _, key := range []string{"port", "ports", "slaves"} {
			for _, x := range n.get("bridge").get(key).list0() {
				bridges[x.str("name")] = port{n.str("name"), x.it}
			}
		}
	}
	for _, n := range state.get("interfaces").list0() {
		name := n.str("name")
		names[name] = true
		if n.str("type") == "vrf" && n.str("state") != "absent" && n.str("state") != "ignore" && name != "" {
			im.nmstateVRF(f, n)
			continue
		}
		if n.str("type") != "bond" && n.str("type") != "infiniband" && n.get("infiniband") == nil && !(n.get("type") == nil && isIB(name)) {
			n.left(whyNotIB + onEthernet(strings.ReplaceAll(n.str("type"), "-", "")))
			im.outside("nmstate", n.str("controller"), name)
			continue
		}
		if !validName(name) {
			n.left(fmt.Sprintf("%q is %s", name, whyName))
			continue
		}
		if d := im.nmstateLink(f, n, name, bridges[name]); d != nil {
			links[name] = d
		}
	}
	for _, top := range state.kids {
		switch top.key {
		case "interfaces", "desiredState", "spec":
		case "routes", "route-rules":
			for _, c := range top.kids {
				if c.key != "config" {
					c.unneeded("the running state, not configuration")
					continue
				}
				for _, r := range c.kids {
					im.nmstateRoute(links, r, top.key == "route-rules")
				}
			}
		case "dns-resolver":
			im.nmstateDNS(links, top)
		case "apiVersion", "kind", "metadata":
			top.unneeded("about the policy, not about a link")
		default:
			top.left(whyUnknown)
		}
	}
}

// list0 is list of a node that need not exist.
func (n *ynode) list0() []*ynode {
	if n == nil {
		return nil
	}
	return n.kids
}

func (im *importer) nmstateRoute(links map[string]*draft, r *ynode, rule bool) {
	if r.str("state") == "absent" {
		r.left("ibnetworkd removes what it set")
		return
	}
	if rule {
		// The rules of a host go with the first link of the file.
		for _, n := range slices.Sorted(maps.Keys(links)) {
			im.yamlSection(links[n], "RoutingPolicyRule", r, nmstateRule)
			return
		}
		r.left("no InfiniBand link for it")
		return
	}
	d := links[r.str("next-hop-interface")]
	if d == nil {
		r.left("a route over a link that is not an InfiniBand link of this file")
		return
	}
	im.yamlSection(d, "Route", r, nmstateRoute)
}

func (im *importer) nmstateDNS(links map[string]*draft, top *ynode) {
	for _, c := range top.kids {
		if c.key != "config" {
			c.unneeded("the running state, not configuration")
			continue
		}
		for _, k := range c.kids {
			key := map[string]string{"server": "DNS", "search": "Domains"}[k.key]
			if key == "" || len(links) != 1 {
				k.left("the name servers of the host; write DNS= and Domains= into the unit of the link that reaches them")
				continue
			}
			for _, d := range links {
				for _, x := range k.list() {
					d.add("Network", key, x.value, x.it)
				}
			}
		}
	}
}

func (im *importer) nmstateLink(f *file, n *ynode, name string, of port) *draft {
	switch n.str("state") {
	case "absent", "ignore", "down":
		n.left("state: " + n.str("state") + ": no unit is written for it")
		return nil
	}
	d := im.profile("nmstate", name, f, n.get("name").it)
	d.bond, d.refuse, d.rule = n.str("type") == "bond", n.left, "nmstate applies the last state"
	if c := n.get("controller"); c != nil && c.value != "" {
		of = port{c.value, c.it}
	}
	if of.name != "" {
		d.master(of.name, of.it)
	}
	d.order = -len(im.drafts)
	d.release = []string{fmt.Sprintf("remove %s from %s, and the profile that nmstate created: nmcli connection delete %s",
		name, f.path, name)}
	for _, k := range n.kids {
		switch k.key {
		case "name", "type":
			if k.key == "type" {
				k.unneeded("implied by the sections of the unit")
			}
		case "state":
			if k.value != "up" {
				k.left(whyValue)
			} else {
				k.unneeded("a link with a unit is brought up")
			}
		case "description", "profile-name", "identifier":
			if k.key == "identifier" && k.value != "name" {
				k.left("a unit matches by MACAddress= or PortGUID= instead")
			} else {
				k.unneeded("a display name")
			}
		case "mac-address":
			d.hw(k.value, k.it)
		case "mtu":
			d.mtu(k.value, k.it)
		case "accept-all-mac-addresses":
			k.left("IPoIB has no promiscuous mode")
		case "controller":
		case "link-aggregation":
			for _, x := range k.kids {
				switch x.key {
				case "port", "ports", "slaves":
					for _, p := range x.list() {
						d.slaves = append(d.slaves, port{p.value, p.it})
					}
				case "mode":
					d.bondOption("mode", x.value, x.it)
				case "options":
					for _, o := range x.kids {
						d.bondOption(o.key, o.value, o.it)
					}
				}
			}
		case "infiniband":
			im.nmstateIB(d, k, name)
		case "ipv4", "ipv6":
			im.nmstateIP(d, k)
		default:
			k.left(whyUnknown)
		}
	}
	return d
}

func (im *importer) nmstateIB(d *draft, n *ynode, name string) {
	parent, pkey := n.str("base-iface"), n.str("pkey")
	var from []*item
	for _, k := range n.kids {
		switch k.key {
		case "mode":
			d.mode(k.value, k.it)
		case "base-iface", "pkey":
			from = append(from, k.it)
		default:
			k.left(whyUnknown)
		}
	}
	if pkey == "" || strings.EqualFold(pkey, "0xffff") || pkey == "default" {
		for _, it := range from {
			it.unneeded("the default partition, no P_Key interface")
		}
		return
	}
	k, ok := pkeyC(pkey)
	if !ok || !validName(parent) {
		leftAll(from, "a P_Key interface needs pkey and base-iface, and one is missing or invalid")
		return
	}
	if why := disagrees(name, k, "pkey "+pkey); why != "" {
		n.get("pkey").it.left(why)
	}
	d.child = &child{parent, name, k, from}
}

func (im *importer) nmstateIP(d *draft, n *ynode) {
	six := n.key == "ipv6"
	if b, ok := boolean(n.str("enabled")); ok && b == "no" {
		for _, k := range n.kids {
			k.unneeded("the family is not enabled")
		}
		if six {
			d.set("Network", "LinkLocalAddressing", "no", n.get("enabled").it)
		}
		return
	}
	for _, k := range n.kids {
		switch k.key {
		case "enabled":
			if _, ok := boolean(k.value); ok {
				k.unneeded("addresses are written one by one")
			} else {
				k.left(whyValue)
			}
		case "autoconf":
			if b, ok := boolean(k.value); ok {
				d.set("Network", "IPv6AcceptRA", b, k.it)
			} else {
				k.left(whyValue)
			}
		case "address":
			for _, a := range k.kids {
				ip, bits := a.get("ip"), a.get("prefix-length")
				if ip == nil || bits == nil || slices.ContainsFunc(a.kids, func(x *ynode) bool { return x != ip && x != bits }) {
					a.left("not an address of ip and prefix-length alone")
					continue
				}
				d.address(ip.value+"/"+bits.value, ip.it, bits.it)
			}
			if k.leaf {
				k.unneeded("it is empty")
			}
		case "auto-dns", "auto-gateway", "auto-routes":
			nmstateAutomatic(d, n, k)
		case "dhcp", "auto-route-table-id", "auto-route-metric", "dhcp-client-id", "dhcp-duid", "dhcp-send-hostname", "dhcp-custom-hostname":
			nmstateDHCP(d, n, k)
		case "token":
			if yes(n.str("autoconf")) {
				d.set("IPv6AcceptRA", "Token", k.value, k.it)
			} else {
				k.unneeded(whyAutomatic)
			}
		case "addr-gen-mode":
			d.set("Network", "IPv6LinkLocalAddressGenerationMode", k.value, k.it)
		default:
			k.left(whyUnknown)
		}
	}
	im.nmstateGlobals(d, n)
}

// nmstateGlobals carries over the lines of NetworkManager for all links, which count for
// the profile that nmstate makes where that has no such key (rust/src/lib/nm/settings/ip.rs).
func (im *importer) nmstateGlobals(d *draft, n *ynode) {
	by := map[string]*entry{}
	own := func(key, value string) {
		by[n.key+"."+key] = &entry{variable: &variable{&item{}, key, value}, section: n.key}
	}
	method := "manual"
	switch dhcp, adverts := yes(n.str("dhcp")), n.key == "ipv6" && yes(n.str("autoconf")); {
	case dhcp && n.key == "ipv6" && !adverts:
		method = "dhcp"
	case dhcp || adverts:
		method = "auto"
	}
	own("method", method)
	if n.key == "ipv6" {
		own("addr-gen-mode", "")
	}
	if method != "manual" {
		keys := map[string][]string{"ipv4": {"dhcp-timeout", "dhcp-client-id", "dhcp-send-hostname"},
			"ipv6": {"dhcp-timeout", "ra-timeout", "dhcp-duid", "dhcp-iaid", "dhcp-send-hostname"}}
		for _, key := range keys[n.key] {
			own(key, "")
		}
		for key, auto := range map[string]string{"route-metric": "auto-route-metric", "route-table": "auto-route-table-id"} {
			if n.get(auto) != nil {
				own(key, n.str(auto))
			}
		}
	}
	for _, e := range im.keyfileGlobals(by) {
		im.keyfileEntry(d, e, by)
	}
}

// nmstateAutomatic is the account of a key k of the family n about what DHCP and
// router advertisements provide.
func nmstateAutomatic(d *draft, n, k *ynode) {
	adverts := n.key == "ipv6" && yes(n.str("autoconf"))
	switch b, ok := boolean(k.value); {
	case !ok:
		k.left(whyValue)
	case b == "yes", !adverts && !yes(n.str("dhcp")):
		k.unneeded(whyAutomatic)
	case n.key == "ipv6" && k.key == "auto-dns":
		d.set("DHCPv6", "UseDNS", "no", k.it)
		if adverts {
			d.set("IPv6AcceptRA", "UseDNS", "no", k.it)
		}
	case adverts && k.key == "auto-gateway":
		d.set("IPv6AcceptRA", "UseGateway", "no", k.it)
	case adverts:
		d.noAdvertRoutes(func(key, value string) { d.set("IPv6AcceptRA", key, value, k.it) }, k.key+": false")
	case n.key == "ipv6":
		k.unneeded("DHCPv6 brings no routes")
	default:
		key := map[string]string{"auto-dns": "UseDNS", "auto-routes": "UseRoutes", "auto-gateway": "UseGateway"}[k.key]
		d.set("DHCPv4", key, "no", k.it)
	}
}
