package importer

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
)

// netplanPart is what one file says of a device.
type netplanPart struct {
	f *file
	n *ynode
}

// netplanDevice is a device by its id: what all files say of it, in their order.
type netplanDevice struct {
	id    string
	parts []netplanPart
	bond  bool
	vrf   bool
	// manager is the renderer: of the device, else of all files.
	manager string
	of      string // what it is a port of
	ofIt    *item  // the line that says so
}

// netplan reads /etc/netplan/*.yaml: files in the order of their names, of which
// later ones add to lists and override single values.
func (im *importer) netplan(files []*file) {
	var made []*netplanUnit
	several := false // one is for links by a pattern
	for _, dev := range netplanDevices(netplanOrder(files)) {
		if dev.vrf {
			im.netplanVRF(dev)
			continue
		}
		if u := im.netplanDevice(dev); u != nil {
			made = append(made, u)
			several = several || u.pattern
		}
	}
	// netplan gives systemd-networkd a file for each id, of which the first by name
	// applies to a link.
	slices.SortStableFunc(made, func(a, b *netplanUnit) int { return strings.Compare(a.id, b.id) })
	links := map[string]string{}
	for _, u := range made {
		links[u.id] = cmp.Or(u.link, u.renamed)
	}
	for i, u := range made {
		u.order, u.rule = i, "of netplan's files for systemd-networkd the first one by id applies to a link"
		if several {
			u.inOrder = "10-" + unitName(u.id)
		}
		if p := u.sec("Bond").keys["Primary"]; p != nil { // an id
			if p.value = links[p.value]; p.value == "" {
				u.sweep(func(_ *section, x *directive) bool { return x == p }, "the name of that link is not known: write Primary= with it")
			}
		}
		im.drafts = append(im.drafts, u.draft)
	}
}

// netplanOrder sorts files by name, and refuses those of a name that a file in
// another directory has: /run hides /etc, which hides /lib.
func netplanOrder(files []*file) []*file {
	files = slices.Clone(files)
	rank := func(f *file) int {
		return slices.IndexFunc([]string{"/run/", "/etc/", ""}, func(p string) bool { return strings.HasPrefix(f.path, p) })
	}
	slices.SortStableFunc(files, func(a, b *file) int {
		return cmp.Or(strings.Compare(path.Base(a.path), path.Base(b.path)), cmp.Compare(rank(a), rank(b)))
	})
	seen := map[string]*file{}
	return slices.DeleteFunc(files, func(f *file) bool {
		first := seen[path.Base(f.path)]
		if first == nil || path.Dir(first.path) == path.Dir(f.path) {
			seen[path.Base(f.path)] = f
			return false
		}
		f.refuse("not used: " + first.path + " has the same name and overrides it")
		return true
	})
}

// netplanDevices merges the files: the devices in the order in which they are
// first named.
func netplanDevices(files []*file) []*netplanDevice {
	var out []*netplanDevice
	by := map[string]*netplanDevice{}
	ports := map[string]port{}
	manager := ""
	for _, f := range files {
		docs, _ := parseYAML(f)
		for i, doc := range docs {
			for _, top := range doc.kids {
				if top.key != "network" || i > 0 {
					top.left(whyUnknown)
					continue
				}
				for _, n := range top.kids {
					switch n.key {
					case "version", "renderer":
						n.unneeded("it selects the program that reads the file")
						if n.key == "renderer" {
							manager = n.value
						}
					case "ethernets", "bonds", "vrfs":
						for _, d := range n.kids {
							if by[d.key] == nil {
								by[d.key] = &netplanDevice{id: d.key}
								out = append(out, by[d.key])
							}
							by[d.key].parts = append(by[d.key].parts, netplanPart{f, d})
							by[d.key].bond, by[d.key].vrf = n.key == "bonds", n.key == "vrfs"
						}
					default:
						n.left("unsupported kind of link")
					}
					for _, d := range n.kids {
						for _, x := range d.get("interfaces").list0() {
							ports[x.value] = port{d.key, x.it}
						}
					}
				}
			}
		}
	}
	for _, d := range out {
		d.of, d.ofIt = ports[d.id].name, ports[d.id].it
		d.manager = cmp.Or(d.str("renderer"), manager)
	}
	return out
}

// get is the node of the last file that has it, nil if none has.
func (d *netplanDevice) get(keys ...string) *ynode {
	for _, p := range slices.Backward(d.parts) {
		n := p.n
		for _, k := range keys {
			n = n.get(k)
		}
		if n != nil && !(n.leaf && n.value == "") {
			return n
		}
	}
	return nil
}

// overrides is the node of a later file, or later in the file, that replaces n, a
// setting that is more than one key of a unit; nil if none does.
func (d *netplanDevice) overrides(n *ynode) *ynode {
	switch n.key {
	case "dhcp4", "dhcp6", "gateway4", "gateway6":
		if last := d.get(n.key); last != n {
			return last
		}
	}
	return nil
}

// str is the value of a node that is a scalar.
func (d *netplanDevice) str(keys ...string) string {
	if n := d.get(keys...); n != nil && n.leaf {
		return n.value
	}
	return ""
}

// matched reports whether the id is not the name of the link.
func (d *netplanDevice) matched() bool {
	return slices.ContainsFunc(d.parts, func(p netplanPart) bool { return p.n.get("match") != nil })
}

func (d *netplanDevice) left(why string) {
	for _, p := range d.parts {
		p.n.left(why)
	}
}

// isIB reports whether the device is for IPoIB links.
func (d *netplanDevice) isIB(names []string) bool {
	drivers := false
	for _, p := range d.parts {
		for _, x := range p.n.get("match").get("driver").list0() {
			drivers = drivers || strings.Contains(x.value, "ipoib")
		}
	}
	return d.str("infiniband-mode") != "" || drivers || len(d.str("match", "macaddress")) == 59 || isIB(d.str("set-name")) ||
		slices.ContainsFunc(names, isIB) || isIB(d.id) && !(d.matched() && len(names) > 0)
}

type netplanUnit struct {
	*draft
	id      string
	pattern bool // it is for links by a pattern
}

func (im *importer) netplanDevice(dev *netplanDevice) *netplanUnit {
	var names []string
	nameNode := dev.get("match", "name")
	if nameNode != nil {
		for _, x := range nameNode.list() {
			names = append(names, x.value)
		}
	}
	setName, mac, matched := dev.str("set-name"), dev.str("match", "macaddress"), dev.matched()
	switch {
	case !dev.bond && !dev.isIB(names):
		dev.left(whyNotIB)
		if dev.ofIt != nil {
			dev.ofIt.left(whyNotIB)
		}
		im.outside("netplan", dev.of, dev.id)
		return nil
	}
	d := &draft{tool: "netplan", prefix: "10", name: dev.id, bond: dev.bond, refuse: dev.left}
	if dev.of != "" {
		d.master(dev.of, dev.ofIt)
	}
	switch {
	case !matched:
		d.link = dev.id
		d.set("Match", "Name", dev.id, dev.parts[0].n.it)
	case mac != "":
		// The address is enough, whatever the link is called.
		d.renamed = setName
	case setName != "":
		d.link = setName
		d.set("Match", "Name", setName)
	case len(names) == 1 && validName(names[0]):
		d.link = names[0]
	}
	switch {
	case d.link != "" && validName(d.link):
		d.name = d.link
	case d.link != "" || !validName(dev.id):
		dev.left(fmt.Sprintf("%q is %s", cmp.Or(d.link, dev.id), whyName))
		return nil
	default:
		d.prefix = severalPrefix
	}
	if setName != "" {
		dev.get("set-name").it.left("ibnetworkd does not rename links: keep the name by a systemd.link(5) file ([Match] as here, [Link] Name=" +
			setName + ")")
		if nameNode != nil && mac == "" {
			nameNode.it.unneeded("the link is called " + setName + " then")
		}
	}
	for _, p := range dev.parts {
		d.source(p.f)
		im.netplanLink(d, dev, p.n, setName != "" || mac != "")
		d.release = append(d.release, fmt.Sprintf("remove %s from %s, then netplan apply", dev.id, p.f.path))
	}
	if dev.manager != "NetworkManager" {
		d.netplanClient(dev)
	}
	if len(d.sec("Match").dirs) == 0 {
		dev.left("match: selects no link: without name, macaddress or driver it would select all")
		return nil
	}
	return &netplanUnit{d, dev.id, d.link == "" && mac == ""}
}

var netplanRoute = map[string]string{"metric": "Metric", "table": "Table", "from": "PreferredSource", "scope": "Scope",
	"type": "Type", "mtu": "MTUBytes", "via": "Gateway",
	"congestion-window": "InitialCongestionWindow", "advertised-receive-window": "InitialAdvertisedReceiveWindow",
	"advertised-mss": "TCPAdvertisedMaximumSegmentSize"}

// netplanRule are keys of a routing policy in netplan and of [RoutingPolicyRule].
var netplanRule = map[string]string{"from": "From", "to": "To", "table": "Table", "priority": "Priority", "mark": "FirewallMark",
	"type-of-service": "TypeOfService"}

// decimals are the keys of a route or a policy whose values netplan reads as decimal
// numbers.
var decimals = map[string]bool{"metric": true, "table": true, "mtu": true, "congestion-window": true, "advertised-receive-window": true,
	"priority": true, "mark": true, "type-of-service": true}

// netplanLink carries over what one file says of a device.
func (im *importer) netplanLink(d *draft, all *netplanDevice, dev *ynode, noName bool) {
	for _, n := range dev.kids {
		if last := all.overrides(n); last != nil {
			n.left("not used: " + last.it.at() + " sets it again, to " + last.it.text)
			continue
		}
		yesNo := func(sec, key string) {
			if b, ok := boolean(n.value); ok {
				d.set(sec, key, b, n.it)
			} else {
				n.left(whyValue)
			}
		}
		switch n.key {
		case "infiniband-mode":
			d.mode(n.value, n.it)
		case "mtu":
			d.mtu(n.value, n.it)
		case "optional":
			switch b, _ := boolean(n.value); b {
			case "yes":
				d.set("Link", "RequiredForOnline", "no", n.it)
			case "no":
				n.unneeded("the default")
			default:
				n.left(whyValue)
			}
		case "activation-mode":
			d.set("Link", "ActivationPolicy", map[string]string{"manual": "manual", "off": "always-down"}[n.value], n.it)
		case "addresses":
			for _, a := range n.list() {
				im.netplanAddress(d, a)
			}
		case "gateway4", "gateway6":
			d.gateway(n.value, n.it)
		case "dhcp4", "dhcp6", "dhcp4-overrides", "dhcp6-overrides", "dhcp-identifier":
			netplanDHCP(d, all, n)
		case "ra-overrides":
			netplanAdverts(d, n)
		case "accept-ra":
			yesNo("Network", "IPv6AcceptRA")
		case "ipv6-privacy":
			yesNo("Network", "IPv6PrivacyExtensions")
		case "ipv6-mtu":
			d.set("Network", "IPv6MTUBytes", decimal(n.value), n.it)
		case "ipv6-address-token":
			d.set("IPv6AcceptRA", "Token", n.value, n.it)
		case "ipv6-address-generation":
			d.set("Network", "IPv6LinkLocalAddressGenerationMode", n.value, n.it)
		case "ignore-carrier":
			yesNo("Network", "ConfigureWithoutCarrier")
		case "renderer":
			n.unneeded("it selects the program that reads the file")
		case "set-name":
		case "link-local":
			im.netplanLinkLocal(d, n)
		case "nameservers":
			for _, k := range n.kids {
				switch k.key {
				case "addresses", "search":
					for _, x := range k.list() {
						d.add("Network", map[string]string{"addresses": "DNS", "search": "Domains"}[k.key], x.value, x.it)
					}
				}
			}
		case "interfaces": // the ports have it
		case "parameters":
			for _, k := range n.list0() {
				d.bondOption(k.key, k.value, k.it)
			}
		case "routes":
			for _, r := range n.kids {
				im.yamlSection(d, "Route", r, netplanRoute)
			}
		case "routing-policy":
			for _, r := range n.kids {
				im.yamlSection(d, "RoutingPolicyRule", r, netplanRule)
			}
		case "match":
			netplanMatch(d, n, noName)
		default:
			n.left(whyUnknown)
		}
	}
}

// netplanMatch carries over match:, without the name if something else selects the
// link.
func netplanMatch(d *draft, n *ynode, noName bool) {
	for _, k := range n.kids {
		switch k.key {
		case "name":
			if !noName {
				for _, x := range k.list() {
					d.add("Match", "Name", x.value, x.it)
				}
			} else if k.it.idle == "" || !k.leaf {
				k.unneeded("implied by the hardware address or set-name")
			}
		case "macaddress":
			d.hw(k.value, k.it)
		case "driver":
			for _, x := range k.list() {
				d.add("Match", "Driver", x.value, x.it)
			}
		}
	}
}

func (im *importer) netplanLinkLocal(d *draft, n *ynode) {
	four, six := false, false
	var from []*item
	for _, a := range n.list() {
		switch a.value {
		case "ipv4":
			four = true
			from = append(from, a.it)
		case "ipv6":
			six = true
			from = append(from, a.it)
		default:
			a.left(whyValue)
		}
	}
	switch {
	case four && six:
		d.set("Network", "LinkLocalAddressing", "yes", from...)
	case four:
		d.set("Network", "LinkLocalAddressing", "ipv4", from...)
	case six:
		d.set("Network", "LinkLocalAddressing", "ipv6", from...)
	case len(n.list()) == 0:
		n.it.idle = ""
		d.set("Network", "LinkLocalAddressing", "no", n.it)
	}
}

// netplanAddress carries over an address, alone or with its options.
func (im *importer) netplanAddress(d *draft, a *ynode) {
	set := func(value string, it *item) {
		if strings.Contains(value, "/") {
			d.address(value, it)
		} else {
			it.left("it has no prefix length, without which netplan rejects the file")
		}
	}
	if a.leaf {
		set(a.value, a.it)
		return
	}
	for _, addr := range a.kids {
		if addr.leaf {
			set(addr.key, addr.it)
			continue
		}
		dirs := [][2]string{{"Address", addr.key}}
		from := []*item{addr.it}
		addr.it.idle = ""
		for _, o := range addr.kids {
			switch {
			case o.key == "label":
				dirs = append(dirs, [2]string{"Label", o.value})
				from = append(from, o.it)
			case o.key == "lifetime" && (o.value == "0" || o.value == "forever"):
				dirs = append(dirs, [2]string{"PreferredLifetime", o.value})
				from = append(from, o.it)
			default:
				o.left(whyUnknown)
			}
		}
		d.section("Address", dirs, from...)
	}
}

// yamlSection carries over a route or a rule. Without one of its keys it would
// be another one, so it is converted as a whole or not at all.
func (im *importer) yamlSection(d *draft, section string, r *ynode, keys map[string]string) {
	var dirs [][2]string
	var from []*item
	via := r.str("via") + r.str("next-hop-address")
	for _, k := range r.kids {
		key, v := keys[k.key], k.value
		switch {
		case section == "Route" && (k.key == "to" || k.key == "destination"):
			key = "Destination"
			if v == "default" {
				v = map[bool]string{true: "::/0", false: "0.0.0.0/0"}[strings.Contains(via, ":")]
			}
			p, err := prefix(v)
			if err != nil {
				r.left("to: " + whyValue)
				return
			}
			v = p.Masked().String()
		case k.key == "on-link":
			b, ok := boolean(v)
			if !ok {
				r.left("on-link: " + whyValue)
				return
			}
			key, v = "GatewayOnLink", b
		case k.key == "metric" && v == "-1", k.key == "next-hop-interface", k.key == "table-id" && v == "0", k.key == "state" && v == "present":
			k.unneeded("the default, or known from the unit")
			continue
		case k.key == "family":
			key = "Family"
		}
		if key == "" || !k.leaf {
			r.left(fmt.Sprintf("[%s] has no key for %q", section, k.key))
			return
		}
		if decimals[k.key] && !number(v) {
			r.left(k.key + ": not a decimal number")
			return
		}
		dirs = append(dirs, [2]string{key, decimal(v)})
		from = append(from, k.it)
	}
	if len(dirs) == 0 {
		r.left("an empty entry")
		return
	}
	if section == "Route" && r.get("to") == nil && r.get("destination") == nil {
		r.left("a route without a destination")
		return
	}
	if section == "Route" {
		d.route(dirs, from...)
		return
	}
	d.section(section, dirs, from...)
}

// netplanAdverts carries over what is used of router advertisements.
func netplanAdverts(d *draft, n *ynode) {
	for _, k := range n.kids {
		b, ok := boolean(k.value)
		switch {
		case k.key == "use-dns" && ok:
			d.set("IPv6AcceptRA", "UseDNS", b, k.it)
		case k.key == "use-domains" && ok:
			d.set("IPv6AcceptRA", "UseDomains", b, k.it)
		case k.key == "use-domains" && k.value == "route":
			d.set("IPv6AcceptRA", "UseDomains", "route", k.it)
		case k.key == "use-dns" || k.key == "use-domains":
			k.left(whyValue)
		default:
			k.left(whyUnknown)
		}
	}
}
