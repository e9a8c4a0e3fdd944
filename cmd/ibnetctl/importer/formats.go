package importer

import (
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"ibnetworkd/ib"
)

// assignment is one KEY=VALUE line.
type assignment struct {
	line       int
	key, value string
	text       string
}

// assignments reads shell-like lines; others go to other.
func assignments(text string, other func(line int, text string)) []assignment {
	var out []assignment
	n := 0
	for raw := range strings.Lines(text) {
		n++
		l := strings.TrimSpace(raw)
		if l == "" || l[0] == '#' || l[0] == ';' {
			continue
		}
		k, v, ok := strings.Cut(l, "=")
		if !ok {
			other(n, l)
			continue
		}
		v = strings.TrimSpace(v)
		if len(v) >= 2 && (v[0] == '"' || v[0] == '\'') {
			if end := strings.IndexByte(v[1:], v[0]); end >= 0 {
				v = v[1 : 1+end]
			}
		} else if i := strings.Index(v, " #"); i >= 0 {
			v = strings.TrimSpace(v[:i])
		}
		out = append(out, assignment{n, strings.TrimSpace(k), v, l})
	}
	return out
}

func yes(s string) bool {
	switch strings.ToLower(s) {
	case "yes", "true", "y", "t", "1", "on":
		return true
	}
	return false
}

const (
	whyValue   = "the value is not understood"
	whyNoKey   = "there is no such setting here"
	whyDHCP    = "there is no DHCP client here: leave [Network] out and let systemd-networkd or NetworkManager ask for the address"
	whyCommand = "a command; look whether a setting does the same"
	whyNotIB   = "not an InfiniBand link"
)

// ifcfg reads /etc/sysconfig/network-scripts/ifcfg-*.
func (im *importer) ifcfg(s Source) {
	as := assignments(s.Text, func(n int, t string) { im.left(n, t, "not a KEY=VALUE line") })
	get := func(k string) string {
		v := ""
		for _, a := range as {
			if a.key == k {
				v = a.value
			}
		}
		return v
	}
	name := get("DEVICE")
	if name == "" {
		name = strings.TrimPrefix(path.Base(s.Path), "ifcfg-")
	}
	if t := get("TYPE"); t != "" && !strings.EqualFold(t, "InfiniBand") || t == "" && !isIB(name) {
		im.left(0, name, whyNotIB)
		return
	}
	if !validName(name) {
		im.left(0, name, "not the name of an interface")
		return
	}
	// A P_Key interface is a child of PHYSDEV, and its own unit has the rest.
	if yes(get("PKEY")) {
		k, ok := pkeyOf(get("PKEY_ID"), true)
		parent := get("PHYSDEV")
		if !ok || !validName(parent) {
			im.left(0, "PKEY=yes", "PKEY_ID or PHYSDEV is missing or bad")
			return
		}
		if get("DEVICE") == "" {
			name = fmt.Sprintf("%s.%04x", parent, uint16(k))
		}
		im.link(parent).partitions = append(im.link(parent).partitions, partition{k, name})
	}
	u := im.link(name)
	// A gateway without a default route is none.
	defaultRoute := func(key string) bool { v := get(key); return v == "" || yes(v) }
	prefixes := map[string]string{}
	addrs := map[string]string{}
	for _, a := range as {
		ok := true
		switch {
		case slices.Contains([]string{"DEVICE", "TYPE", "NAME", "UUID", "PKEY", "PKEY_ID", "PHYSDEV", "NM_CONTROLLED", "IPV4_FAILURE_FATAL", "PROXY_METHOD", "BROWSER_ONLY", "USERCTL", "BROADCAST", "NETWORK", "IPV6_FAILURE_FATAL", "PEERDNS"}, a.key):
		case a.key == "ONBOOT":
			u.manual = !yes(a.value)
		case a.key == "CONNECTED_MODE":
			ok = u.setMode(a.value)
		case a.key == "MTU":
			u.mtu, ok = mtuOf(a.value)
		case a.key == "BOOTPROTO":
			if v := strings.ToLower(a.value); v != "none" && v != "static" && v != "" {
				im.left(a.line, a.text, whyDHCP)
			}
		case a.key == "HWADDR":
			ok = u.matchHW(a.value)
		case strings.HasPrefix(a.key, "IPADDR"):
			addrs[strings.TrimPrefix(a.key, "IPADDR")] = a.value
		case strings.HasPrefix(a.key, "PREFIX"):
			prefixes[strings.TrimPrefix(a.key, "PREFIX")] = a.value
		case strings.HasPrefix(a.key, "NETMASK"):
			if bits, good := maskBits(a.value); good {
				prefixes[strings.TrimPrefix(a.key, "NETMASK")] = fmt.Sprint(bits)
			} else {
				ok = false
			}
		case a.key == "GATEWAY", a.key == "GATEWAY0":
			ok = !defaultRoute("DEFROUTE") || u.addGateway(a.value)
		case strings.HasPrefix(a.key, "DNS"):
			ok = u.addDNS(a.value)
		case a.key == "DOMAIN":
			for _, d := range strings.Fields(a.value) {
				ok = ok && u.addDomain(d)
			}
		case a.key == "IPV6INIT":
			if !yes(a.value) {
				u.linkLocal = "no"
			}
		case a.key == "IPV6_AUTOCONF":
			u.acceptRA = map[bool]string{true: "yes", false: "no"}[yes(a.value)]
		case a.key == "IPV6ADDR", a.key == "IPV6ADDR_SECONDARIES":
			for _, x := range strings.Fields(a.value) {
				if !strings.Contains(x, "/") {
					x += "/64"
				}
				ok = ok && u.addAddress(x)
			}
		case a.key == "IPV6_DEFAULTGW":
			gw, _, _ := strings.Cut(a.value, "%")
			ok = !defaultRoute("IPV6_DEFROUTE") || u.addGateway(gw)
		case a.key == "DEFROUTE", a.key == "IPV6_DEFROUTE":
		default:
			im.left(a.line, a.text, whyNoKey)
		}
		if !ok {
			im.left(a.line, a.text, whyValue)
		}
	}
	for _, a := range as {
		i, isAddr := strings.CutPrefix(a.key, "IPADDR")
		if !isAddr || addrs[i] == "" {
			continue
		}
		bits := prefixes[i]
		if bits == "" && i == "0" {
			bits = prefixes[""]
		}
		if bits == "" {
			im.left(a.line, a.text, "there is no PREFIX or NETMASK for it")
			continue
		}
		if !u.addAddress(addrs[i] + "/" + bits) {
			im.left(a.line, a.text, whyValue)
		}
		delete(addrs, i)
	}
}

// maskBits is the prefix length of a dotted netmask.
func maskBits(s string) (int, bool) {
	a, err := netip.ParseAddr(s)
	if err != nil || !a.Is4() {
		return 0, false
	}
	b := a.As4()
	m := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	n := 0
	for m&(1<<31) != 0 {
		n++
		m <<= 1
	}
	return n, m == 0
}

// keyfile reads NetworkManager's connection profiles.
func (im *importer) keyfile(s Source) {
	section := ""
	type entry struct {
		assignment
		section string
	}
	var all []entry
	n := 0
	for raw := range strings.Lines(s.Text) {
		n++
		l := strings.TrimSpace(raw)
		switch {
		case l == "", l[0] == '#', l[0] == ';':
		case l[0] == '[' && strings.HasSuffix(l, "]"):
			section = l[1 : len(l)-1]
		default:
			k, v, ok := strings.Cut(l, "=")
			if !ok {
				im.left(n, l, "not a key=value line")
				continue
			}
			all = append(all, entry{assignment{n, strings.TrimSpace(k), strings.TrimSpace(v), l}, section})
		}
	}
	get := func(sec, key string) string {
		for _, e := range all {
			if e.section == sec && e.key == key {
				return e.value
			}
		}
		return ""
	}
	if t := get("connection", "type"); t != "infiniband" {
		im.left(0, "type="+t, whyNotIB)
		return
	}
	name := get("connection", "interface-name")
	parent := get("infiniband", "parent")
	if pk := get("infiniband", "p-key"); pk != "" && pk != "-1" {
		k, ok := pkeyOf(pk, false)
		if !ok || !validName(parent) {
			im.left(0, "p-key="+pk, "p-key or parent is missing or bad")
			return
		}
		if name == "" {
			name = fmt.Sprintf("%s.%04x", parent, uint16(k))
		}
		if !validName(name) {
			im.left(0, name, "not the name of an interface")
			return
		}
		im.link(parent).partitions = append(im.link(parent).partitions, partition{k, name})
	}
	mac := get("infiniband", "mac-address")
	var u *linkUnit
	switch {
	case validName(name):
		u = im.link(name)
		if mac != "" && !u.matchHW(mac) {
			im.left(0, "mac-address="+mac, whyValue)
		}
	case mac != "":
		a, err := ib.ParseHWAddr(mac)
		if err != nil {
			im.left(0, "mac-address="+mac, whyValue)
			return
		}
		// Flags and queue pair change; the GUID stays.
		u = im.unit(fmt.Sprintf("guid-%016x", uint64(a.GUID())), "PortGUID="+a.GUID().String(), "Type=infiniband")
	default:
		im.left(0, "", "neither interface-name nor mac-address says which link it is for")
		return
	}
	for _, e := range all {
		ok := true
		switch e.section + "." + e.key {
		case "connection.id", "connection.uuid", "connection.type", "connection.interface-name", "connection.timestamp", "connection.permissions", "infiniband.p-key", "infiniband.parent", "infiniband.mac-address",
			"ipv4.may-fail", "ipv6.may-fail", "ipv4.never-default", "ipv6.never-default", "ipv6.addr-gen-mode", "connection.autoconnect-priority":
		case "connection.autoconnect":
			u.manual = !yes(e.value)
		case "infiniband.transport-mode":
			ok = u.setMode(e.value)
		case "infiniband.mtu":
			if e.value != "0" && e.value != "auto" {
				u.mtu, ok = mtuOf(e.value)
			}
		case "ipv4.method", "ipv6.method":
			switch e.value {
			case "manual", "disabled", "ignore":
				if e.section == "ipv6" && e.value != "manual" {
					u.linkLocal = "no"
				}
			case "link-local":
				u.networkSeen = true
			case "auto":
				if e.section == "ipv4" {
					im.left(e.line, e.text, whyDHCP)
				} else {
					u.acceptRA, u.networkSeen = "yes", true
				}
			default:
				im.left(e.line, e.text, whyNoKey)
			}
		case "ipv4.gateway", "ipv6.gateway":
			ok = yes(get(e.section, "never-default")) || u.addGateway(e.value)
		case "ipv4.dns", "ipv6.dns", "ipv4.dns-search", "ipv6.dns-search":
			for _, v := range strings.FieldsFunc(e.value, func(r rune) bool { return r == ';' || r == ',' }) {
				if strings.HasSuffix(e.key, "search") {
					ok = ok && u.addDomain(v)
				} else {
					ok = ok && u.addDNS(v)
				}
			}
		default:
			switch k := strings.TrimRight(e.key, "0123456789"); {
			case (e.section == "ipv4" || e.section == "ipv6") && (k == "address" || k == "addresses"):
				parts := strings.Split(e.value, ",")
				ok = u.addAddress(parts[0])
				if len(parts) > 1 && parts[1] != "" && !yes(get(e.section, "never-default")) {
					ok = ok && u.addGateway(parts[1])
				}
			case (e.section == "ipv4" || e.section == "ipv6") && k == "route" && !strings.HasSuffix(e.key, "options"):
				parts := append(strings.Split(e.value, ","), "", "")
				ok = u.addRoute(parts[0], parts[1], parts[2])
			case e.section == "proxy" || e.section == "user":
			default:
				im.left(e.line, "["+e.section+"] "+e.text, whyNoKey)
			}
		}
		if !ok {
			im.left(e.line, e.text, whyValue)
		}
	}
	im.note("NetworkManager must let go of %s: nmcli connection delete, or unmanaged-devices= in its configuration", u.name)
}

// netplan reads /etc/netplan/*.yaml.
func (im *importer) netplan(s Source) {
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(s.Text), &root); err != nil {
		im.left(0, "", "not YAML: "+err.Error())
		return
	}
	if len(root.Content) == 0 {
		return
	}
	each := func(n *yaml.Node, f func(k *yaml.Node, v *yaml.Node)) {
		if n == nil || n.Kind != yaml.MappingNode {
			return
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			v := n.Content[i+1]
			if v.Kind == yaml.AliasNode {
				im.left(v.Line, n.Content[i].Value, "YAML aliases are not followed")
				continue
			}
			f(n.Content[i], v)
		}
	}
	child := func(n *yaml.Node, key string) (out *yaml.Node) {
		each(n, func(k, v *yaml.Node) {
			if k.Value == key {
				out = v
			}
		})
		return out
	}
	network := child(root.Content[0], "network")
	each(child(network, "ethernets"), func(k, v *yaml.Node) {
		name := k.Value
		set := child(child(v, "match"), "name")
		if set != nil {
			name = set.Value
		}
		if child(v, "infiniband-mode") == nil && !isIB(name) {
			im.left(k.Line, k.Value, whyNotIB)
			return
		}
		file := name
		if !validName(file) {
			file = k.Value
		}
		if !validName(file) {
			im.left(k.Line, name, "not the name of an interface")
			return
		}
		u := im.link(file)
		if file != name && !strings.ContainsAny(name, " \t\n") {
			u.match = []string{"Name=" + name}
		}
		each(v, func(k, v *yaml.Node) {
			ok := true
			switch k.Value {
			case "infiniband-mode":
				ok = u.setMode(v.Value)
			case "mtu":
				u.mtu, ok = mtuOf(v.Value)
			case "optional":
				u.optional = yes(v.Value)
			case "addresses":
				for _, a := range v.Content {
					if a.Kind != yaml.ScalarNode || !u.addAddress(a.Value) {
						im.left(a.Line, a.Value, whyValue)
					}
				}
			case "gateway4", "gateway6":
				ok = u.addGateway(v.Value)
			case "dhcp4", "dhcp6":
				if yes(v.Value) {
					im.left(k.Line, k.Value+": "+v.Value, whyDHCP)
				}
			case "accept-ra":
				u.acceptRA = map[bool]string{true: "yes", false: "no"}[yes(v.Value)]
			case "link-local":
				u.linkLocal = "no"
				for _, a := range v.Content {
					if a.Value == "ipv6" || a.Value == "ipv4" {
						if u.linkLocal == "no" {
							u.linkLocal = a.Value
						} else {
							u.linkLocal = "yes"
						}
					}
				}
			case "nameservers":
				if a := child(v, "addresses"); a != nil {
					for _, x := range a.Content {
						ok = ok && u.addDNS(x.Value)
					}
				}
				if a := child(v, "search"); a != nil {
					for _, x := range a.Content {
						ok = ok && u.addDomain(x.Value)
					}
				}
			case "routes":
				for _, r := range v.Content {
					val := func(key string) string {
						if x := child(r, key); x != nil {
							return x.Value
						}
						return ""
					}
					var more []string
					each(r, func(k, v *yaml.Node) {
						if k.Value == "to" || k.Value == "via" || k.Value == "metric" {
							return
						}
						if line := netplanRoute(k.Value, v.Value); line != "" {
							more = append(more, line)
						} else {
							im.left(k.Line, "route to "+val("to")+": "+k.Value, whyNoKey)
						}
					})
					if !u.addRoute(val("to"), val("via"), val("metric"), more...) {
						im.left(r.Line, "route to "+val("to"), whyValue)
					}
				}
			case "match":
				each(v, func(k, v *yaml.Node) {
					switch {
					case k.Value == "name":
					case k.Value == "macaddress":
						if !u.matchHW(v.Value) {
							im.left(k.Line, k.Value, whyValue)
						}
					case k.Value == "driver" && v.Kind == yaml.ScalarNode && !strings.ContainsAny(v.Value, " \n"):
						u.match = append(u.match, "Driver="+v.Value)
					default:
						im.left(k.Line, k.Value, whyNoKey)
					}
				})
			default:
				im.left(k.Line, k.Value, whyNoKey)
			}
			if !ok {
				im.left(k.Line, k.Value+": "+v.Value, whyValue)
			}
		})
		im.note("remove %s from netplan, then netplan apply", name)
	})
	each(network, func(k, v *yaml.Node) {
		switch k.Value {
		case "ethernets", "version", "renderer":
		default:
			im.left(k.Line, k.Value, whyNoKey)
		}
	})
}

var (
	echoMode = regexp.MustCompile(`echo\s+['"]?(connected|datagram)['"]?\s*(?:>|\|\s*tee)\s*/sys/class/net/([^/\s]+)/mode`)
	echoKey  = regexp.MustCompile(`echo\s+['"]?(0x[0-9a-fA-F]{1,4}|[0-9a-fA-F]{1,4})['"]?\s*(?:>|\|\s*tee)\s*/sys/class/net/([^/\s]+)/create_child`)
	setMTU   = regexp.MustCompile(`(?:ip\s+link\s+set\s+(?:dev\s+)?(\S+)\s+mtu\s+(\d+)|ifconfig\s+(\S+)\s+mtu\s+(\d+)|echo\s+(\d+)\s*>\s*/sys/class/net/([^/\s]+)/mtu)`)
	modprobe = regexp.MustCompile(`modprobe\s+(?:-\S+\s+)*(ib_ipoib|ib_umad)\b`)
)

// interfaces reads /etc/network/interfaces.
func (im *importer) interfaces(s Source) {
	var u *linkUnit
	name := ""
	address, addressLine, bits := "", 0, ""
	autos := map[string]bool{}
	flush := func() {
		if u == nil || address == "" {
			address, bits = "", ""
			return
		}
		if !strings.Contains(address, "/") {
			if bits == "" {
				im.left(addressLine, "address "+address, "there is no netmask for it")
				address = ""
				return
			}
			address += "/" + bits
		}
		if !u.addAddress(address) {
			im.left(addressLine, "address "+address, whyValue)
		}
		address, bits = "", ""
	}
	ifaces := map[string]bool{}
	n := 0
	for raw := range strings.Lines(s.Text) {
		n++
		l := strings.TrimSpace(raw)
		if l == "" || l[0] == '#' {
			continue
		}
		word, rest, _ := strings.Cut(l, " ")
		if i := strings.IndexByte(word, '\t'); i >= 0 {
			word, rest = l[:i], l[i+1:]
		}
		rest = strings.TrimSpace(strings.ReplaceAll(rest, "$IFACE", name))
		switch word {
		case "auto", "allow-auto", "allow-hotplug":
			for _, i := range strings.Fields(rest) {
				autos[i] = true
			}
			continue
		case "iface":
			flush()
			f := append(strings.Fields(rest), "", "", "")
			name = f[0]
			u = nil
			if !isIB(name) {
				if name != "lo" {
					im.left(n, l, whyNotIB)
				}
				continue
			}
			if !validName(name) {
				im.left(n, l, "not the name of an interface")
				continue
			}
			u = im.link(name)
			ifaces[name] = true
			switch f[2] {
			case "static", "manual", "":
			case "auto":
				u.acceptRA, u.networkSeen = "yes", true
			default:
				im.left(n, l, whyDHCP)
			}
			continue
		case "source", "source-directory", "mapping", "no-auto-down", "no-scripts":
			im.left(n, l, "name the file itself too")
			continue
		}
		if u == nil {
			continue
		}
		ok := true
		switch word {
		case "address":
			flush()
			address, addressLine = rest, n
		case "netmask":
			if b, good := maskBits(rest); good {
				bits = fmt.Sprint(b)
			} else if strings.Trim(rest, "0123456789") == "" {
				bits = rest
			} else {
				ok = false
			}
		case "broadcast", "network":
		case "gateway":
			ok = u.addGateway(rest)
		case "mtu":
			u.mtu, ok = mtuOf(rest)
		case "dns-nameservers", "dns-nameserver":
			for _, d := range strings.Fields(rest) {
				ok = ok && u.addDNS(d)
			}
		case "dns-search", "dns-domain":
			for _, d := range strings.Fields(rest) {
				ok = ok && u.addDomain(d)
			}
		case "pre-up", "up", "post-up", "down", "pre-down", "post-down":
			if strings.Contains(word, "down") {
				im.left(n, l, whyCommand)
				continue
			}
			switch {
			case echoMode.MatchString(rest):
				m := echoMode.FindStringSubmatch(rest)
				if validName(m[2]) {
					im.link(m[2]).setMode(m[1])
					ifaces[m[2]] = true
				}
			case echoKey.MatchString(rest):
				m := echoKey.FindStringSubmatch(rest)
				if k, good := pkeyOf(strings.ToLower(m[1]), true); good && validName(m[2]) {
					p := im.link(m[2])
					p.partitions = append(p.partitions, partition{k, fmt.Sprintf("%s.%04x", m[2], uint16(k))})
				} else {
					ok = false
				}
			case setMTU.MatchString(rest):
				m := setMTU.FindStringSubmatch(rest)
				dev, mtu := m[1]+m[3]+m[6], m[2]+m[4]+m[5]
				if v, good := mtuOf(mtu); good && validName(dev) {
					im.link(dev).mtu = v
				} else {
					ok = false
				}
			case modprobe.MatchString(rest):
				// udev loads them.
			default:
				im.left(n, l, whyCommand)
			}
		default:
			im.left(n, l, whyNoKey)
		}
		if !ok {
			im.left(n, l, whyValue)
		}
	}
	flush()
	for i := range ifaces {
		if u := im.links[i]; u != nil && !autos[i] && slices.Contains(u.from, s.Path) {
			u.manual = true
		}
		im.note("remove %s from %s", i, s.Path)
	}
	slices.Sort(im.notes)
}

var indexed = regexp.MustCompile(`^(mode|mtu)\[([^\]]+)\]$`)

// ipoibmodemtu reads the configuration of the oneshot unit of that name.
func (im *importer) ipoibmodemtu(s Source) {
	for _, a := range assignments(s.Text, func(n int, t string) { im.left(n, t, "not a KEY=VALUE line") }) {
		m := indexed.FindStringSubmatch(a.key)
		if m == nil || !validName(strings.Trim(m[2], `"'`)) {
			im.left(a.line, a.text, whyNoKey)
			continue
		}
		u := im.link(strings.Trim(m[2], `"'`))
		ok := false
		if m[1] == "mode" {
			ok = u.setMode(a.value)
		} else {
			u.mtu, ok = mtuOf(a.value)
		}
		if !ok {
			im.left(a.line, a.text, whyValue)
		}
	}
	im.note("disable the old unit: systemctl disable --now ipoibmodemtu")
}

// openib reads /etc/infiniband/openib.conf.
func (im *importer) openib(s Source) {
	for _, a := range assignments(s.Text, func(n int, t string) { im.left(n, t, "not a KEY=VALUE line") }) {
		switch a.key {
		case "SET_IPOIB_CM":
			u := im.unit("infiniband", "Type=infiniband")
			if !u.setMode(a.value) {
				im.left(a.line, a.text, whyValue)
			}
		case "IPOIB_MTU":
			u := im.unit("infiniband", "Type=infiniband")
			var ok bool
			if u.mtu, ok = mtuOf(a.value); !ok {
				im.left(a.line, a.text, whyValue)
			}
		case "IPOIB_LOAD", "UMAD_LOAD", "ONBOOT":
			if !yes(a.value) {
				im.left(a.line, a.text, "udev loads the module when an adapter is there; mask the rule if it must not")
			}
		default:
			im.left(a.line, a.text, whyNoKey)
		}
	}
}

var bdf = regexp.MustCompile(`^[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]$`)

// portUnit is the unit of a port of a PCI device.
func (im *importer) portUnit(dev string, port int, typ string) {
	dev = strings.ToLower(dev)
	u := im.unit(fmt.Sprintf("port-%s-%d", strings.NewReplacer(":", "-", ".", "-").Replace(dev), port), "Path=pci-"+dev, fmt.Sprintf("Port=%d", port))
	u.portType = typ
}

// mlx4 reads /etc/rdma/mlx4.conf: lines of a PCI address and a type for each
// port.
func (im *importer) mlx4(s Source) {
	n := 0
	for raw := range strings.Lines(s.Text) {
		n++
		l := strings.TrimSpace(raw)
		if l == "" || l[0] == '#' {
			continue
		}
		f := strings.Fields(l)
		if len(f) < 2 || len(f) > 3 || !bdf.MatchString(f[0]) {
			im.left(n, l, "not a PCI address and one or two port types")
			continue
		}
		for i, t := range f[1:] {
			if t != "ib" && t != "eth" && t != "auto" {
				im.left(n, l, whyValue)
				continue
			}
			im.portUnit(f[0], i+1, t)
		}
	}
}

var portArray = regexp.MustCompile(`\bport_type_array=([0-9,]+)`)

// modprobe reads options of mlx4_core.
func (im *importer) modprobe(s Source) {
	n := 0
	for raw := range strings.Lines(s.Text) {
		n++
		l := strings.TrimSpace(raw)
		if l == "" || l[0] == '#' || !strings.HasPrefix(l, "options mlx4_core") {
			continue
		}
		m := portArray.FindStringSubmatch(l)
		if m == nil {
			im.left(n, l, whyNoKey)
			continue
		}
		u := im.unit("port-mlx4", "Driver=mlx4_core")
		types := strings.Split(m[1], ",")
		same := true
		for _, t := range types {
			same = same && t == types[0]
		}
		word := map[string]string{"1": "ib", "2": "eth", "3": "auto"}[types[0]]
		if !same || word == "" {
			delete(im.links, "port-mlx4")
			im.left(n, l, "the ports have different types: write a unit with Path= and Port= for each")
			continue
		}
		u.portType = word
	}
}

// opensm reads /etc/default/opensm, /etc/sysconfig/opensm and opensm.conf.
func (im *importer) opensm(s Source) {
	type item struct {
		line      int
		key, v, t string
	}
	var items []item
	for _, a := range assignments(s.Text, func(n int, t string) {
		f := strings.SplitN(t, " ", 2)
		if len(f) == 2 {
			items = append(items, item{n, f[0], strings.TrimSpace(f[1]), t})
		} else {
			im.left(n, t, whyNoKey)
		}
	}) {
		items = append(items, item{a.line, a.key, a.value, a.text})
	}
	var guids []string
	lines := []string{"Manage=auto"}
	for _, i := range items {
		switch strings.ToLower(i.key) {
		case "ports", "guids", "guid":
			for _, g := range strings.FieldsFunc(i.v, func(r rune) bool { return r == ' ' || r == ',' || r == '\t' }) {
				if g == "ALL" || g == "0x0000000000000000" || g == "0" {
					continue
				}
				if g == "NONE" {
					lines[0] = "Manage=no"
					continue
				}
				if v, err := ib.ParseGUID(g); err != nil {
					im.left(i.line, i.t, whyValue)
				} else {
					guids = append(guids, v.String())
				}
			}
		case "priority", "sm_priority":
			var n int
			if _, err := fmt.Sscanf(i.v, "%d", &n); err != nil || n < 0 || n > 15 {
				im.left(i.line, i.t, whyValue)
			} else if n != 0 {
				lines = append(lines, fmt.Sprintf("Priority=%d", n))
			}
		case "routing_engine":
			if v := strings.Trim(i.v, `()"`); v != "null" && v != "" && strings.Trim(v, "abcdefghijklmnopqrstuvwxyzQSABCDEFGHIJKLMNOPRTUVWXYZ0123456789-,_") == "" {
				lines = append(lines, "RoutingEngine="+v)
			}
		case "subnet_prefix":
			if strings.HasPrefix(i.v, "0x") && i.v != "0xfe80000000000000" && len(i.v) == 18 {
				lines = append(lines, "SubnetPrefix="+i.v)
			}
		case "partition_config_file":
			if strings.HasPrefix(i.v, "/") && !strings.ContainsAny(i.v, " \t") {
				lines = append(lines, "PartitionsFile="+i.v)
			}
		case "lmc":
			if len(i.v) == 1 && i.v[0] > '0' && i.v[0] <= '7' {
				lines = append(lines, "LMC="+i.v)
			}
		default:
			im.left(i.line, i.t, whyNoKey)
		}
	}
	match := []string{"Type=infiniband"}
	name := "infiniband"
	if len(guids) > 0 {
		match = []string{"PortGUID=" + strings.Join(guids, " ")}
		name = "subnet-manager"
	}
	u := im.unit(name, match...)
	u.sm = lines
	im.note("opensm must not be started by its own unit any more: systemctl disable --now opensm; a unit that matches a link by its name needs the [SubnetManager] section in itself, because only the first unit that matches applies")
}

// partitions reads nothing out of the file: it is handed to the subnet manager
// as it is.
func (im *importer) partitions(s Source) {
	if !strings.HasPrefix(s.Path, "/") || strings.ContainsAny(s.Path, " \t\n") {
		im.left(0, s.Path, "give the file by its absolute name, without blanks")
		return
	}
	u := im.unit("infiniband", "Type=infiniband")
	if len(u.sm) == 0 {
		u.sm = []string{"Manage=auto"}
	}
	u.sm = append(u.sm, "PartitionsFile="+s.Path)
}

// netplanRoute is the line of a [Route] section that a key of a netplan route
// becomes, empty for one that there is nothing for.
func netplanRoute(key, value string) string {
	if value == "" || strings.ContainsAny(value, " \n") {
		return ""
	}
	name, ok := map[string]string{"table": "Table", "from": "PreferredSource", "scope": "Scope", "type": "Type", "mtu": "MTUBytes", "on-link": "GatewayOnLink"}[key]
	if !ok {
		return ""
	}
	if key == "on-link" {
		value = map[string]string{"true": "yes", "yes": "yes", "on": "yes", "false": "no", "no": "no", "off": "no"}[value]
		if value == "" {
			return ""
		}
	}
	return name + "=" + value
}
