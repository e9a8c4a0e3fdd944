package importer

import (
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
	dev := ""
	var sets []func()
	bad := ""
	next := func(i *int) string {
		*i++
		if *i >= len(w) {
			bad = whyCommand
			return ""
		}
		return w[*i]
	}
	for i := 0; i < len(w); i++ {
		switch w[i] {
		case "dev":
			dev = next(&i)
		case "up":
		case "down":
			return "a command that brings the link down"
		case "mtu":
			v := next(&i)
			sets = append(sets, func() { sh.link(dev).mtu(v, it) })
		case "type":
			if next(&i) != "ipoib" {
				return whyCommand
			}
		case "mode":
			v := next(&i)
			if v != "connected" && v != "datagram" {
				return whyValue
			}
			sets = append(sets, func() { sh.link(dev).set("IPoIB", "Mode", v, it) })
		case "umcast":
			v, ok := boolean(next(&i))
			if !ok {
				return whyValue
			}
			sets = append(sets, func() { sh.link(dev).set("IPoIB", "IgnoreUserspaceMulticastGroups", v, it) })
		case "allmulticast":
			v, ok := boolean(next(&i))
			if !ok {
				return whyValue
			}
			sets = append(sets, func() { sh.link(dev).set("Link", "AllMulticast", v, it) })
		default:
			if dev != "" {
				return whyCommand
			}
			dev = w[i]
		}
	}
	if bad != "" || !validName(dev) {
		return whyCommand
	}
	if !sh.isLink(dev) {
		return whyOther
	}
	if len(sets) == 0 {
		it.unneeded("a link with a unit is brought up")
	}
	for _, f := range sets {
		f()
	}
	return ""
}

func (sh *shell) ipLinkAdd(it *item, w []string) string {
	parent, name, key, typ := "", "", "", ""
	var inner [][2]string
	for i := 0; i < len(w); i++ {
		k := w[i]
		switch k {
		case "link", "name", "dev", "type", "pkey", "mode", "umcast", "mtu":
			if i++; i >= len(w) {
				return whyCommand
			}
			v := w[i]
			switch k {
			case "link":
				parent = v
			case "name", "dev":
				name = v
			case "type":
				typ = v
			case "pkey":
				key = v
			case "mode":
				inner = append(inner, [2]string{"Mode", v})
			case "mtu":
				inner = append(inner, [2]string{"MTUBytes", v})
			case "umcast":
				b, ok := boolean(v)
				if !ok {
					return whyValue
				}
				inner = append(inner, [2]string{"IgnoreUserspaceMulticastGroups", b})
			}
		default:
			if name != "" {
				return whyCommand
			}
			name = k
		}
	}
	k, ok := pkeyC(key)
	if typ != "ipoib" || !validName(parent) || !validName(name) || !ok {
		return whyCommand
	}
	sh.link(parent)
	sh.known[name] = true
	sh.im.children = append(sh.im.children, &child{parent, name, k, []*item{it}})
	for _, x := range inner {
		d := sh.link(name)
		if x[0] == "MTUBytes" {
			d.mtu(x[1], it)
		} else {
			d.set("IPoIB", x[0], x[1], it)
		}
	}
	return ""
}

func (sh *shell) ipAddress(it *item, w []string) string {
	dev, addr, label := sh.iface, "", ""
	for i := 0; i < len(w); i++ {
		switch {
		case (w[i] == "dev" || w[i] == "label" || w[i] == "brd" || w[i] == "broadcast") && i+1 < len(w):
			i++
			switch {
			case w[i-1] == "dev":
				dev = w[i]
			case w[i-1] == "label":
				label = w[i]
			case w[i] != "+":
				return "a broadcast address of its own; write [Address] Broadcast="
			}
		case addr == "":
			addr = w[i]
		default:
			return whyCommand
		}
	}
	if !validName(dev) || addr == "" {
		return whyCommand
	}
	if !sh.isLink(dev) {
		return whyOther
	}
	if label != "" && label != dev {
		sh.link(dev).section("Address", [][2]string{{"Address", addr}, {"Label", label}}, it)
	} else {
		sh.link(dev).address(addr, it)
	}
	return ""
}

func (sh *shell) ipNeighbor(it *item, w []string) string {
	dev, addr, lladdr := sh.iface, "", ""
	for i := 0; i < len(w); i++ {
		switch {
		case (w[i] == "dev" || w[i] == "lladdr" || w[i] == "nud" || w[i] == "to") && i+1 < len(w):
			i++
			switch w[i-1] {
			case "dev":
				dev = w[i]
			case "lladdr":
				lladdr = w[i]
			case "to":
				addr = w[i]
			default:
				if w[i] != "permanent" {
					return "an entry that is not permanent"
				}
			}
		case addr == "":
			addr = w[i]
		default:
			return whyCommand
		}
	}
	if !validName(dev) || addr == "" || lladdr == "" {
		return whyCommand
	}
	if !sh.isLink(dev) {
		return whyOther
	}
	sh.link(dev).section("Neighbor", [][2]string{{"Address", addr}, {"LinkLayerAddress", lladdr}}, it)
	return ""
}

func (sh *shell) ifconfig(it *item, w []string) string {
	if len(w) < 2 {
		return whyCommand
	}
	dev, addr, mask, mtu := w[0], "", "", ""
	for i := 1; i < len(w); i++ {
		switch {
		case w[i] == "up":
		case (w[i] == "mtu" || w[i] == "netmask") && i+1 < len(w):
			i++
			if w[i-1] == "mtu" {
				mtu = w[i]
			} else {
				mask = w[i]
			}
		case addr == "" && strings.ContainsAny(w[i], ".:"):
			addr = w[i]
		default:
			return whyCommand
		}
	}
	if !validName(dev) {
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
	dst, mask, via, dev, metric := "", "", "", sh.iface, ""
	if len(w) == 0 || w[0] != "add" {
		return whyCommand
	}
	host := false
	for i := 1; i < len(w); i++ {
		switch {
		case w[i] == "-net":
		case w[i] == "-host":
			host = true
		case slices.Contains([]string{"netmask", "gw", "dev", "metric"}, w[i]) && i+1 < len(w):
			i++
			switch w[i-1] {
			case "netmask":
				mask = w[i]
			case "gw":
				via = w[i]
			case "dev":
				dev = w[i]
			default:
				metric = w[i]
			}
		case dst == "":
			dst = w[i]
		default:
			return whyCommand
		}
	}
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
