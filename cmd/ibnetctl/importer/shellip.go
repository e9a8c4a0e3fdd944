package importer

import (
	"cmp"
	"slices"
	"strings"
)

// ip carries a command of iproute2 over.
func (sh *shell) ip(it *item, w []string) string {
	six := false
	for len(w) > 0 && strings.HasPrefix(w[0], "-") {
		switch w[0] {
		case "-6":
			six = true
		case "-4":
		case "-f", "-family":
			if len(w) < 2 {
				return whyCommand
			}
			six = w[1] == "inet6"
			w = w[1:]
		default:
			return whyCommand
		}
		w = w[1:]
	}
	if len(w) < 2 {
		return whyCommand
	}
	abbreviates := func(word string) bool { return word != "" && strings.HasPrefix(word, w[0]) }
	verb := w[1]
	switch {
	case (abbreviates("link") || w[0] == "l") && verb == "set":
		return sh.ipLink(it, w[2:])
	case (abbreviates("link") || w[0] == "l") && verb == "add":
		return sh.ipLinkAdd(it, w[2:])
	case abbreviates("address") && (verb == "add" || verb == "replace"):
		return sh.ipAddress(it, w[2:])
	case len(w[0]) > 1 && abbreviates("route") || w[0] == "r":
		if verb != "add" && verb != "replace" && verb != "append" {
			return whyCommand
		}
		dev, dirs, why := ipRoute(w[2:], six)
		if why != "" {
			return why
		}
		links := []string{dev}
		if dev == "" {
			links = sh.linksOf(over(dirs))
		}
		if len(links) == 0 {
			return "a route without an interface"
		}
		return sh.each(links, func(d *draft) { d.route(dirs, it) })
	case len(w[0]) > 1 && abbreviates("rule") && (verb == "add" || verb == "replace"):
		dirs, why := ipRule(w[2:], six)
		if why != "" {
			return why
		}
		if sh.iface == "" || !validName(sh.iface) {
			return "a routing rule of the host; write it as [RoutingPolicyRule] into the unit of its link"
		}
		sh.link(sh.iface).section("RoutingPolicyRule", dirs, it)
		return ""
	case (abbreviates("neighbor") || abbreviates("neighbour")) && (verb == "add" || verb == "replace"):
		return sh.ipNeighbor(it, w[2:])
	case len(w[0]) > 2 && abbreviates("nexthop") && (verb == "add" || verb == "replace"):
		return sh.ipNextHop(it, w[2:], six)
	}
	return whyCommand
}

// over is the ID of the nexthop object that a route leads over, "" for none.
func over(dirs [][2]string) string {
	for _, x := range dirs {
		if x[0] == "NextHop" {
			return x[1]
		}
	}
	return ""
}

// linksOf are the links of nexthops by their IDs, or else that of the interface's line.
func (sh *shell) linksOf(ids ...string) (out []string) {
	for _, id := range ids {
		for _, l := range sh.hops[id] {
			if !slices.Contains(out, l) {
				out = append(out, l)
			}
		}
	}
	if len(out) == 0 && sh.iface != "" {
		out = []string{sh.iface}
	}
	return out
}

// each changes the drafts of links, or says why not.
func (sh *shell) each(links []string, change func(*draft)) string {
	for _, l := range links {
		if !validName(l) {
			return whyCommand
		}
		if !sh.isLink(l) {
			return whyOther
		}
	}
	for _, l := range links {
		change(sh.link(l))
	}
	return ""
}

// ipNextHop carries a nexthop object over. A group, and a route over it, go to the units of
// all links that its members are on: they stay while one of these exists.
func (sh *shell) ipNextHop(it *item, w []string, six bool) string {
	id, dev, group, dirs, why := ipNextHop(w, six)
	if why != "" {
		return why
	}
	links := []string{dev}
	if dev == "" {
		links = sh.linksOf(group...)
	}
	if len(links) == 0 {
		return "a nexthop without an interface; write it as [NextHop] into the unit of a link"
	}
	if why := sh.each(links, func(d *draft) { d.section("NextHop", dirs, it) }); why != "" {
		return why
	}
	sh.hops[id] = links
	return ""
}

// section adds a section with directives of one item.
func (d *draft) section(name string, dirs [][2]string, from ...*item) {
	s := d.more(name)
	for _, x := range dirs {
		s.add(x[0], x[1], from...)
	}
}

// route adds a route; a default route with nothing but a gateway is Gateway=.
func (d *draft) route(dirs [][2]string, from ...*item) {
	var rest [][2]string
	via := ""
	for _, x := range dirs {
		switch {
		case x[0] == "Gateway":
			via = x[1]
		case x[0] == "Destination" && (x[1] == "0.0.0.0/0" || x[1] == "::/0"):
		default:
			rest = append(rest, x)
		}
	}
	if via != "" && len(rest) == 0 {
		d.gateway(via, from...)
		return
	}
	d.section("Route", dirs, from...)
}

func (sh *shell) ipLink(it *item, w []string) string {
	v, rest, ok := wordValues(w, "dev", "type", "mtu", "mode", "umcast", "allmulticast")
	if v["dev"] != "" {
		rest = append(rest, v["dev"])
	}
	down := slices.Contains(rest, "down")
	rest = slices.DeleteFunc(rest, func(x string) bool { return x == "up" })
	umcast, isBool := boolean(cmp.Or(v["umcast"], "no"))
	all, isBool2 := boolean(cmp.Or(v["allmulticast"], "no"))
	switch {
	case down:
		return "a command that brings the link down"
	case !ok || len(rest) != 1 || !validName(rest[0]) || cmp.Or(v["type"], "ipoib") != "ipoib":
		return whyCommand
	case !isBool || !isBool2 || !slices.Contains([]string{"", "connected", "datagram"}, v["mode"]):
		return whyValue
	case !sh.isLink(rest[0]):
		return whyOther
	}
	if v["mtu"]+v["mode"]+v["umcast"]+v["allmulticast"] == "" {
		it.unneeded("a link with a unit is brought up")
		return ""
	}
	d := sh.link(rest[0])
	if v["mtu"] != "" {
		d.mtu(v["mtu"], it)
	}
	if v["mode"] != "" {
		d.set("IPoIB", "Mode", v["mode"], it)
	}
	if v["umcast"] != "" {
		d.set("IPoIB", "IgnoreUserspaceMulticastGroups", umcast, it)
	}
	if v["allmulticast"] != "" {
		d.set("Link", "AllMulticast", all, it)
	}
	return ""
}

// wordValues takes words with their values out of a command, dev ib0; the others are left in
// their order. ok is false if a value is missing.
func wordValues(w []string, words ...string) (values map[string]string, rest []string, ok bool) {
	values = map[string]string{}
	for i := 0; i < len(w); i++ {
		switch {
		case !slices.Contains(words, w[i]):
			rest = append(rest, w[i])
		case i+1 == len(w) || w[i+1] == "":
			return nil, nil, false
		default:
			values[w[i]] = w[i+1]
			i++
		}
	}
	return values, rest, true
}

func (sh *shell) ipLinkAdd(it *item, w []string) string {
	v, rest, ok := wordValues(w, "link", "name", "dev", "type", "pkey", "mode", "umcast", "mtu")
	if name := cmp.Or(v["name"], v["dev"]); name != "" {
		rest = append(rest, name)
	}
	k, isKey := pkeyC(v["pkey"])
	if !ok || len(rest) != 1 || v["type"] != "ipoib" || !validName(v["link"]) || !validName(rest[0]) || !isKey {
		return whyCommand
	}
	umcast, isBool := boolean(cmp.Or(v["umcast"], "no"))
	if !isBool {
		return whyValue
	}
	name := rest[0]
	sh.link(v["link"])
	sh.known[name] = true
	sh.im.children = append(sh.im.children, &child{v["link"], name, k, []*item{it}})
	if v["mode"] != "" {
		sh.link(name).set("IPoIB", "Mode", v["mode"], it)
	}
	if v["umcast"] != "" {
		sh.link(name).set("IPoIB", "IgnoreUserspaceMulticastGroups", umcast, it)
	}
	if v["mtu"] != "" {
		sh.link(name).mtu(v["mtu"], it)
	}
	return ""
}

func (sh *shell) ipAddress(it *item, w []string) string {
	v, rest, ok := wordValues(w, "dev", "label", "brd", "broadcast")
	dev, label := cmp.Or(v["dev"], sh.iface), v["label"]
	switch brd := cmp.Or(v["brd"], v["broadcast"], "+"); {
	case brd != "+":
		return "a broadcast address of its own; write [Address] Broadcast="
	case !ok || len(rest) != 1 || !validName(dev):
		return whyCommand
	case !sh.isLink(dev):
		return whyOther
	case label != "" && label != dev:
		sh.link(dev).section("Address", [][2]string{{"Address", rest[0]}, {"Label", label}}, it)
	default:
		sh.link(dev).address(rest[0], it)
	}
	return ""
}

func (sh *shell) ipNeighbor(it *item, w []string) string {
	v, rest, ok := wordValues(w, "dev", "lladdr", "nud", "to")
	if v["to"] != "" {
		rest = append(rest, v["to"])
	}
	dev := cmp.Or(v["dev"], sh.iface)
	switch {
	case cmp.Or(v["nud"], "permanent") != "permanent":
		return "an entry that is not permanent"
	case !ok || len(rest) != 1 || !validName(dev) || v["lladdr"] == "":
		return whyCommand
	case !sh.isLink(dev):
		return whyOther
	}
	sh.link(dev).section("Neighbor", [][2]string{{"Address", rest[0]}, {"LinkLayerAddress", v["lladdr"]}}, it)
	return ""
}

func (sh *shell) ifconfig(it *item, w []string) string {
	if len(w) < 2 {
		return whyCommand
	}
	v, rest, ok := wordValues(w[1:], "mtu", "netmask")
	rest = slices.DeleteFunc(rest, func(x string) bool { return x == "up" })
	dev, addr, mask, mtu := w[0], strings.Join(rest, ""), v["netmask"], v["mtu"]
	if !ok || !validName(dev) || len(rest) > 1 || addr != "" && !strings.ContainsAny(addr, ".:") {
		return whyCommand
	}
	if !sh.isLink(dev) {
		return whyOther
	}
	if mask != "" {
		bits, ok := prefixOf(mask)
		if !ok || addr == "" {
			return whyValue
		}
		addr += "/" + bits
	} else if addr != "" && !strings.Contains(addr, "/") {
		return "an address without a netmask"
	}
	if addr != "" {
		sh.link(dev).address(addr, it)
	}
	if mtu != "" {
		sh.link(dev).mtu(mtu, it)
	}
	if addr == "" && mtu == "" {
		it.unneeded("a link with a unit is brought up")
	}
	return ""
}

// route carries a command of net-tools over.
func (sh *shell) route(it *item, w []string) string {
	if len(w) == 0 || w[0] != "add" {
		return whyCommand
	}
	v, rest, ok := wordValues(w[1:], "netmask", "gw", "dev", "metric")
	mask, via, dev, metric := v["netmask"], v["gw"], cmp.Or(v["dev"], sh.iface), v["metric"]
	host := slices.Contains(rest, "-host")
	rest = slices.DeleteFunc(rest, func(x string) bool { return x == "-net" || x == "-host" })
	if !ok || len(rest) != 1 {
		return whyCommand
	}
	dst := rest[0]
	switch {
	case dst == "default":
	case mask != "":
		bits, ok := prefixOf(mask)
		if !ok {
			return whyValue
		}
		dst += "/" + bits
	case !host && !strings.Contains(dst, "/"):
		return "a network without a netmask"
	}
	args := []string{dst}
	if via != "" {
		args = append(args, "via", via)
	}
	if metric != "" && metric != "0" {
		args = append(args, "metric", metric)
	}
	_, dirs, why := ipRoute(args, false)
	if why != "" {
		return why
	}
	if !validName(dev) {
		return "a route without an interface"
	}
	if !sh.isLink(dev) {
		return whyOther
	}
	sh.link(dev).route(dirs, it)
	return ""
}
